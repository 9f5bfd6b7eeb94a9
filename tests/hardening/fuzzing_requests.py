"""Requests of any kind to the lab page: addresses, queries, headers, bodies, sliders.

The page serves a small run that is trained when the first request is made.
"""

import io
import json
import logging
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st

from simgrad.objectives import objectives
from tests.hardening.bad_requests import FORM, JSON, Bad
from tests.hardening.jobs import run_job

_PLACES = [
    "/", "/search", "/bench", "/api", "/runs/", "/runs/run", "/studies/", "/pictures/",
    "/pictures/run/test/", "/static/", "/api/search", "/api/search/picture", "/search/picture",
    "/api/bench", "/api/runs/", "/api/runs/run", "/api/runs/run/diagram", "/api/objectives",
    "/api/overview",
]  # fmt: skip
_QUERIES = ["q", "run", "split", "top", "size", "token", "x"]
_HEADERS = ["origin", "accept", "cookie", "authorization", "content-length", "host", "range"]
_NUMBERS = st.integers() | st.floats() | st.sampled_from(["0", "-1", "3", "run", "test", ""])


def _quoted(value: object) -> str:
    return quote(str(value), safe="", errors="surrogatepass")


def _address(place: str, tail: str, queries: dict[str, object]) -> str:
    asked = "&".join(f"{key}={_quoted(value)}" for key, value in queries.items())
    return f"{place}{_quoted(tail)}" + (f"?{asked}" if asked else "")


_ADDRESSES = st.builds(
    _address,
    st.sampled_from(_PLACES),
    st.just("") | st.text(max_size=20),
    st.dictionaries(st.sampled_from(_QUERIES), st.text(max_size=30) | _NUMBERS, max_size=3),
)
# What a client can put on the wire: h11 refuses the rest before the application sees it.
_VISIBLE = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
_EXTRA = st.dictionaries(st.sampled_from(_HEADERS), _VISIBLE.map(str.strip), max_size=1)


@cache
def _picture() -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.effect_noise((24, 16), 80).save(buffer, "PNG")
    return buffer.getvalue()


def _upload(name: str, data: bytes, cut: int) -> bytes:
    """A form; its picture is damaged at one place, unless that lies behind its end."""
    whole = bytearray(_picture())
    whole[cut : cut + len(data)] = data
    line = f'--x\r\nContent-Disposition: form-data; name="{name}"; filename="a.png"\r\n\r\n'
    return line.encode("utf-8", "surrogatepass") + bytes(whole) + b"\r\n--x--\r\n"


_SLIDERS = st.fixed_dictionaries(
    {},
    optional={
        "objective": st.sampled_from([d.name for d in objectives]) | st.text(max_size=8),
        "parameters": st.dictionaries(
            st.sampled_from([p.name for d in objectives for p in d.parameters]) | st.text(),
            st.floats() | st.integers() | st.booleans() | st.text(max_size=6) | st.none(),
            max_size=3,
        ),
        "run": st.sampled_from(["run", "", "nowhere"]) | st.none(),
        "split": st.sampled_from(["test", "val", "x"]),
        "size": st.integers(-2, 70),
        "seed": st.integers(),
    },
)
REQUESTS = st.one_of(
    st.builds(lambda path, headers: Bad(path, "GET", b"", headers), _ADDRESSES, _EXTRA),
    st.builds(
        lambda path, method, body, headers, extra: Bad(path, method, body, {**headers, **extra}),
        _ADDRESSES,
        st.sampled_from(["POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "X"]),
        st.binary(max_size=200),
        st.sampled_from([JSON, FORM, {}]),
        _EXTRA,
    ),
    _SLIDERS.map(lambda asked: Bad("/api/bench", "POST", json.dumps(asked).encode(), JSON)),
    st.builds(
        lambda name, data, cut: Bad("/api/search/picture", "POST", _upload(name, data, cut), FORM),
        st.sampled_from(["picture", "picture", "file"]) | st.text(max_size=5),
        st.binary(max_size=6),
        st.integers(0, 600),
    ),
)


logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # it tells of every bad form


@cache
def lab_page() -> Any:
    """The page in this process; it lives as long as the process."""
    from fastapi.testclient import TestClient

    from simgrad.lab.app import create_app
    from simgrad.lab.lab import Lab
    from simgrad.lab.workers import UploadLimits

    folder = tempfile.TemporaryDirectory(prefix="fuzzed")
    run = Path(folder.name) / "run"
    run_job().work(run)
    lab = Lab([run], limits=UploadLimits(bytes=1 << 20, pixels=2_000_000))
    client = TestClient(create_app(lab), base_url="http://127.0.0.1", raise_server_exceptions=False)
    client.folder = folder  # type: ignore[attr-defined]  # goes when the client goes
    client.__enter__()
    return client


def requests(asked: Bad) -> None:
    """Answered, and never with the server's own fault."""
    answer = lab_page().request(
        asked.method, asked.path, content=asked.body, headers=asked.headers, follow_redirects=False
    )
    assert answer.status_code < 500, (asked, answer.status_code, answer.text[:500])
    assert "Traceback" not in answer.text, asked
