"""Pickles of strangers, read as plain data by a machine of our own.

A pickle is a program for a small stack machine. Python's runs whatever function the program names,
and lets a program of some hundred bytes take any time and memory: a tuple of tuples as a key is
hashed anew at each level, a text that is kept can be encoded a thousand times. This machine knows
the instructions that plain data need, and

- calls only what its user has listed, each with its own checks;
- takes texts and whole numbers as keys alone, whose hash takes no time;
- counts what it does: no more steps than `STEPS` for each byte (a call counts what it copies), and
  no more than `OBJECTS` lists, tuples and so on in all;
- refuses what would be larger written out than in the file, as lists of lists are that are the
  same, and what contains itself.

So what a pickle takes is bounded before it begins: 256 MiB and some seconds, for `LARGEST` bytes of
the worst instruction (tests/core/test_pickles.py), and in proportion less for fewer.
"""

import pickletools
from collections.abc import Callable, Iterator
from typing import Any

LARGEST = 8 << 20  # bytes; published vocabularies and the pickles of checkpoints are below 1 MB
STEPS = 4  # for each byte, and some for small ones
OBJECTS = 250_000
_FEW = 1000
_KEY = 1 << 60  # below it the hash of a whole number is the number itself

_IGNORED = {"PROTO", "FRAME"}
_PLAIN = {
    "INT", "LONG", "LONG1", "LONG4", "BININT", "BININT1", "BININT2", "FLOAT", "BINFLOAT",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
    "STRING",
}  # fmt: skip
_OLD_TEXTS = {"BINSTRING", "SHORT_BINSTRING"}  # texts of Python 2: bytes, which are UTF-8
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set}
_SIZES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUT = {"PUT", "BINPUT", "LONG_BINPUT"}
_GET = {"GET", "BINGET", "LONG_BINGET"}


class TooLarge(ValueError):
    """Asks for more than the file holds."""


class RefusedName(Exception):
    """The pickle names something that is not on its reader's list."""


class Call:
    """A function or class that a pickle may name and call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


class Machine:
    """Runs pickles, one after another from a stream.

    `find`: what a name stands for, a `Call` or plain data, or `RefusedName`. `build`: gives what
    was made its attributes. `stored`: what lies outside the pickle.
    """

    def __init__(
        self,
        find: Callable[[str], Any],
        build: Callable[[Any, Any], None],
        stored: Callable[[Any], Any] | None = None,
    ) -> None:
        self._find, self._build, self._stored = find, build, stored
        self._made = self._steps = 0

    def load(self, stream: Any, size: int) -> Any:
        """The next pickle of a stream of which `size` bytes are left at most."""
        size = min(size, LARGEST)
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._steps = _FEW + STEPS * size
        begun = stream.tell()
        for opcode, argument, place in pickletools.genops(stream):
            if (place or 0) - begun > size:
                raise ValueError("a pickle of this size")
            self.count(1)
            if opcode.name == "STOP":
                value = self._stack.pop()
                refuse_repeats(value, _FEW + STEPS * size)
                return value
            self._do(opcode.name, argument)
        raise ValueError("it ends too early")

    def count(self, steps: int) -> None:
        """So many steps are taken."""
        self._steps -= steps
        if self._steps < 0:
            raise ValueError("it repeats too much")

    def _do(self, name: str, argument: Any) -> None:
        if name in _PLAIN:
            self._stack.append(argument)
        elif name in _GET:
            self._stack.append(self._memo[int(argument)])
        elif name in _PUT:
            self._keep(int(argument))
        elif name == "MEMOIZE":
            self._keep(len(self._memo))
        elif name in _OLD_TEXTS:
            self._stack.append(argument.encode("latin-1").decode("utf-8"))
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name])
        elif name not in _IGNORED:
            self._make(name, argument)

    def _make(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _EMPTY:
            stack.append(self._new(_EMPTY[name]()))
        elif name in _SIZES:
            stack.append(self._new(tuple(self._top(_SIZES[name]))))
        elif name == "MARK":
            self._below.append(self._new(stack))
            self._stack = []
        elif name in ("TUPLE", "LIST", "DICT"):
            items = self._since_mark()
            made: Any = {} if name == "DICT" else tuple(items) if name == "TUPLE" else items
            if name == "DICT":
                self._set_items(made, items)
            self._stack.append(self._new(made))
        elif name in ("APPEND", "APPENDS"):
            items = self._since_mark() if name == "APPENDS" else self._top(1)
            self._target(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = self._since_mark() if name == "SETITEMS" else self._top(2)
            self._set_items(self._target(dict), items)
        elif name == "ADDITEMS":
            items = self._since_mark()
            self._target(set).update(map(key_of, items))
        else:
            self._call(name, argument)

    def _call(self, name: str, argument: Any) -> None:
        if name == "GLOBAL":
            self._stack.append(self._find(argument.replace(" ", ".", 1)))
        elif name == "STACK_GLOBAL":
            self._stack.append(self._find(".".join(map(str, self._top(2)))))
        elif name in ("REDUCE", "NEWOBJ"):
            named, arguments = self._top(2)
            self._stack.append(self._result(named, arguments))
        elif name == "INST":  # Python 2
            arguments = tuple(self._since_mark())
            self._stack.append(self._result(self._find(argument.replace(" ", ".", 1)), arguments))
        elif name == "BUILD":
            (state,) = self._top(1)
            self._build(self._stack[-1], state)
        elif name == "BINPERSID" and self._stored is not None:
            (told,) = self._top(1)
            self._stack.append(self._new(self._stored(told)))
        else:
            raise ValueError(f"the instruction {name}, which plain data do not need")

    def _result(self, named: Any, arguments: Any) -> Any:
        if not isinstance(named, Call) or type(arguments) is not tuple:
            raise ValueError("a call of what cannot be called")
        for argument in arguments:  # what it copies
            self.count(len(argument) if isinstance(argument, str | bytes | list | tuple) else 1)
        return self._new(named.function(*arguments))

    def _new(self, value: Any) -> Any:
        self._made += 1
        if self._made > OBJECTS:
            raise ValueError("more objects than are read")
        return value

    def _keep(self, number: int) -> None:
        if number not in self._memo:
            self._new(None)
        self._memo[number] = self._stack[-1]

    def _top(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise ValueError("too little on its stack")
        items = self._stack[-count:]
        del self._stack[-count:]
        return items

    def _since_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._below.pop()
        return items

    def _target(self, kind: type) -> Any:
        if not isinstance(self._stack[-1], kind):
            raise ValueError(f"items for what is no {kind.__name__}")
        return self._stack[-1]

    def _set_items(self, target: Any, items: list[Any]) -> None:
        for place in range(0, len(items), 2):
            target[key_of(items[place])] = items[place + 1]


def key_of(value: Any) -> Any:
    """The value, if it may be a key: its hash takes no time, and is hardly another's."""
    if type(value) is str or (isinstance(value, int) and abs(value) < _KEY):
        return value
    raise ValueError(f"a {type(value).__name__} as a key")


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple | set):
        yield from value
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        yield from attributes.values()


def refuse_repeats(value: Any, most: int, weight: Callable[[Any], int] = lambda _: 1) -> None:
    """Refuse what would weigh more than this with everything as often as it is reached."""
    sizes: dict[int, int | None] = {}  # by identity; None: its parts are still looked through
    open_: list[tuple[Any, Iterator[Any]]] = [(value, _parts(value))]
    sizes[id(value)] = None
    totals = [weight(value)]
    while open_:
        current, parts = open_[-1]
        for part in parts:
            known = sizes.get(id(part), 0)
            if known is None:
                raise ValueError("it contains itself")
            if known:
                totals[-1] += known
            elif isinstance(part, dict | list | tuple | set) or hasattr(part, "__dict__"):
                sizes[id(part)] = None
                open_.append((part, _parts(part)))
                totals.append(weight(part))
                break
            else:
                totals[-1] += weight(part)
        else:
            open_.pop()
            size = sizes[id(current)] = totals.pop()
            if totals:
                totals[-1] += size
            if size > most:
                raise TooLarge("written out it would be larger than the file")
