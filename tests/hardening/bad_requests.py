"""Requests that are wrong, each with what it may be answered with: 4xx, never 5xx."""

from dataclasses import dataclass, field

JSON = {"content-type": "application/json"}
FORM = {"content-type": "multipart/form-data; boundary=x"}


@dataclass(frozen=True)
class Bad:
    """One request."""

    path: str
    method: str = "GET"
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def _bench(body: bytes) -> Bad:
    return Bad("/api/bench", "POST", body, JSON)


def _part(name: str, data: bytes, file: str = "a.png") -> bytes:
    head = f'--x\r\nContent-Disposition: form-data; name="{name}"; filename="{file}"\r\n\r\n'
    return head.encode() + data + b"\r\n--x--\r\n"


REQUESTS: dict[str, Bad] = {
    "no such page": Bad("/nowhere"),
    "no such run": Bad("/api/runs/nowhere"),
    "no such study": Bad("/api/studies/nowhere"),
    "no such page of a run": Bad("/runs/nowhere"),
    "a path upwards": Bad("/static/../../../../etc/passwd"),
    "a path upwards in code": Bad("/static/%2e%2e/%2e%2e/pyproject.toml"),
    "nul": Bad("/api/runs/a%00b"),
    "not UTF-8": Bad("/api/runs/%ff%fe"),
    "name without end": Bad("/api/runs/" + "a" * 5000),
    "another method": Bad("/api/overview", "DELETE"),
    "write to a page": Bad("/", "PUT", b"x"),
    "no query": Bad("/api/search"),
    "query without end": Bad("/api/search?q=" + "a" * 1500),
    "no results wanted": Bad("/api/search?q=a&top=0"),
    "all results wanted": Bad("/api/search?q=a&top=100000000"),
    "results in words": Bad("/api/search?q=a&top=many"),
    "no such run to search": Bad("/api/search?q=a&run=nowhere"),
    "picture before the first": Bad("/pictures/run/test/-1"),
    "picture beyond the last": Bad("/pictures/run/test/999999999999999999999"),
    "picture of no split": Bad("/pictures/run/nowhere/0"),
    "bench: no JSON": _bench(b"{"),
    "bench: a list": _bench(b"[1]"),
    "bench: null": _bench(b"null"),
    "bench: no objective": _bench(b'{"objective": "nowhere"}'),
    "bench: number for a name": _bench(b'{"objective": 7}'),
    "bench: no size": _bench(b'{"objective": "triplet", "size": 0}'),
    "bench: size without end": _bench(b'{"objective": "triplet", "size": 1000000000}'),
    "bench: NaN": _bench(b'{"objective": "triplet", "parameters": {"margin": NaN}}'),
    "bench: beyond floats": _bench(b'{"objective": "triplet", "parameters": {"margin": 1e999}}'),
    "bench: beyond singles": _bench(b'{"objective": "goal", "parameters": {"beta": 4e38}}'),
    "bench: no parameter": _bench(b'{"objective": "triplet", "parameters": {"x": 1}}'),
    "bench: more than asked": _bench(b'{"objective": "triplet", "admin": true}'),
    "bench: nested": _bench(b'{"objective": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"),
    "bench: digits": _bench(b'{"objective": "triplet", "size": ' + b"9" * 5000 + b"}"),
    "bench: bytes": _bench(bytes(range(256))),
    "upload: nothing": Bad("/api/search/picture", "POST", b"", FORM),
    "upload: no picture": Bad("/api/search/picture", "POST", _part("picture", b"hello"), FORM),
    "upload: another name": Bad("/api/search/picture", "POST", _part("file", b"hello"), FORM),
    "upload: empty": Bad("/api/search/picture", "POST", _part("picture", b""), FORM),
    "upload: cut": Bad("/api/search/picture", "POST", _part("picture", b"\xff\xd8\xff")[:60], FORM),
    "upload: no boundary": Bad(
        "/api/search/picture", "POST", b"x", {"content-type": "multipart/form-data"}
    ),
    "upload: JSON": Bad("/api/search/picture", "POST", b"{}", JSON),
    "upload: too large": Bad("/api/search/picture", "POST", b"x" * (5 << 20), FORM),
    "another host": Bad("/", headers={"host": "evil.example"}),
    "another origin": Bad("/api/bench", "POST", b"{}", {"origin": "http://evil.example", **JSON}),
}
