"""The journal of a study's searches: one line for everything that happened, with its checksum.

    {"row": "nt-xent", "trial": 3, "asked": {"lr": 0.0012}, "how": "tpe"}
    {"row": "nt-xent", "trial": 3, "state": "complete", "score": 251.2}

Whoever touches it holds the search's lock. It can be done without: the same settings are asked for
again, and their runs are found finished.
Journals of earlier versions, which Optuna wrote, are read as the same events.
"""

import json
import os
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.files import from_line, refuse_link, to_line, writing

# Optuna's numbers of operations, and of the states of a trial.
_STUDY, _TRIAL, _PARAMETER, _STATE, _NOTE = 0, 4, 5, 6, 8
_STATES = {1: "complete", 3: "failed"}


class OpCodes:
    """What the lines so far have said."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.counts: list[int] = []  # trials of each row
        self.trials: list[dict[str, Any]] = []  # of all rows

    def events(self, told: dict[str, Any]) -> list[dict[str, Any]]:
        """What one more line says; errors of any kind where it is damaged."""
        operation = told["op_code"]
        if operation == _STUDY:
            self.rows.append(str(told["study_name"]))
            self.counts.append(0)
        elif operation == _TRIAL:
            row = int(told["study_id"])
            trial = {"row": self.rows[row], "trial": self.counts[row]}
            self.trials.append({"is": trial, "asked": {}})
            self.counts[row] += 1
        elif operation == _PARAMETER:
            trial = self.trials[told["trial_id"]]
            trial["asked"][told["param_name"]] = _value(told)
        elif operation == _NOTE:
            return self._note(self.trials[told["trial_id"]], told["user_attr"])
        elif operation == _STATE:
            return self._state(self.trials[told["trial_id"]], told)
        elif type(operation) is not int or not 0 < operation <= 10:  # others say nothing to us
            raise ValueError(operation)
        return []

    def _note(self, trial: dict[str, Any], noted: dict[str, Any]) -> list[dict[str, Any]]:
        ((name, value),) = noted.items()
        if name != "how":
            return []
        trial["how"] = value
        return [{**trial["is"], "asked": trial["asked"], "how": value}]

    def _state(self, trial: dict[str, Any], told: dict[str, Any]) -> list[dict[str, Any]]:
        state = _STATES.get(told["state"])
        if state is None or "how" not in trial:
            return []
        score = float(told["values"][0]) if state == "complete" else None
        return [{**trial["is"], "state": state, "score": score}]


def _value(told: dict[str, Any]) -> Any:
    number, where = told["param_value_internal"], json.loads(told["distribution"])
    choices = where["attributes"].get("choices")
    return float(number) if choices is None else choices[int(number)]


JOURNAL = "journal.log"
STATES = ("complete", "failed")
Event = dict[str, Any]
_NUMBERS = (int, float)


class Journal:
    """The events of all rows; what was read once is not read again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self._events: list[Event] = []
        self._read = 0  # bytes
        self._lines = 0
        self._earlier = OpCodes()

    def events(self) -> list[Event]:
        """All that is there; a damaged line is named."""
        mend(self.path)
        size = self.path.stat().st_size if self.path.is_file() else 0
        if size < self._read:
            self._forget()
        if size > self._read:
            with open(self.path, "rb") as file:
                file.seek(self._read)
                lines = file.read(size - self._read).splitlines()
            try:
                for line in lines:
                    self._lines += 1
                    self._events += self._understood(line)
            except InputError:
                self._forget()
                raise
            self._read = size
        return self._events

    def _understood(self, line: bytes) -> list[Event]:
        where = f"{self.path}, line {self._lines}"
        try:
            told = from_line(line, where)
            if "op_code" in told:  # as Optuna wrote it for versions before 0.2.0
                return self._earlier.events(told)
            if not _is_event(told):
                raise InputError(f"{where}: damaged: it is not what a search writes.")
            return [told]
        except (KeyError, TypeError, ValueError, IndexError):
            problem = f"{where}: damaged: it is not what a search writes."
        except InputError as error:
            problem = str(error)
        raise InputError(
            f"{problem} Copy the file again; or move it away and run the study's command again: it "
            "is written anew from the trials' folders, and no finished trial is trained again."
        )

    def add(self, event: Event) -> None:
        """Add a line; it is on the disk when this returns."""
        with writing(self.path):
            refuse_link(self.path)
            with open(self.path, "ab") as file:
                file.write(to_line(event).encode())
                file.flush()
                os.fsync(file.fileno())


def mend(path: Path) -> None:
    """Cut off a last line that a kill has left half-written."""
    with writing(path):
        refuse_link(path)
    if not path.is_file():
        return
    with open(path, "rb+") as file:
        if not file.seek(0, 2) or file.seek(-1, 2) < 0 or file.read(1) == b"\n":
            return
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def _is_event(told: Event) -> bool:
    if not isinstance(told.get("row"), str) or type(told.get("trial")) is not int:
        return False
    kinds: dict[str, Any] = {
        "asked": dict, "how": str, "score": (*_NUMBERS, type(None)),
        "halved": bool,  # of earlier versions
    }  # fmt: skip
    what = [key for key in ("asked", "state") if key in told]
    state = told.get("state", STATES[0])
    return (
        len(what) == 1
        and told.keys() <= {"row", "trial", "state", *kinds}
        and all(isinstance(told[key], kind) for key, kind in kinds.items() if key in told)
        and (isinstance(state, str) and state in STATES)
        and ("asked" not in told or "how" in told)
        and ("halved" not in told or "asked" in told)
        and (told.get("state") != "complete" or isinstance(told.get("score"), _NUMBERS))
    )


def optuna_or_say() -> Any:
    """The package, asked for where it is needed: it is an extra."""
    try:
        import optuna
    except ImportError:
        raise InputError(
            "a search that learns from its trials (tpe) needs a package that is not installed: "
            "pip install 'simgrad[tune]', or use `search: quasi-random`."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
