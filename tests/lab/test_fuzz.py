"""Requests that nobody meant: whatever comes, the answer is never a 500."""

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simgrad.lab.app import create_app
from simgrad.lab.lab import Lab
from tests.lab.conftest import LIMITS

QUIET = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    derandomize=True,
)
ADDRESSES = st.sampled_from(
    ["/", "/search", "/api/search", "/api/bench", "/api/search/picture", "/runs/", "/pictures/"]
)
KINDS = st.sampled_from(["application/json", "multipart/form-data; boundary=x"])


@pytest.fixture(scope="module")
def steady(runs: dict[str, Path]) -> object:
    lab = Lab(runs.values(), limits=LIMITS)
    client = TestClient(create_app(lab), base_url="http://127.0.0.1", raise_server_exceptions=False)
    with client:
        yield client


@pytest.mark.long
def test_schema(steady: TestClient, server: str) -> None:
    schemathesis = pytest.importorskip(
        "schemathesis", reason="fuzzing by the schema needs: pip install schemathesis"
    )
    schema = schemathesis.openapi.from_dict(steady.get("/api/openapi.json").json())
    tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @given(case=operation.as_strategy())
        @settings(QUIET, max_examples=12)
        def attack(case: object) -> None:
            nonlocal tried
            answer = case.call(base_url=server)  # type: ignore[attr-defined]
            tried += 1
            assert answer.status_code < 500, (case, answer.text)

        attack()
    assert tried > 50


@given(path=st.text(max_size=40), query=st.text(max_size=60), place=ADDRESSES)
@QUIET
def test_addresses(steady: TestClient, path: str, query: str, place: str) -> None:
    for address in (
        f"{place}{quote(path, safe='', errors='surrogatepass')}",
        f"{place}?q={quote(query, errors='surrogatepass')}&run={quote(path, errors='replace')}",
    ):
        assert steady.get(address).status_code < 500


@given(
    body=st.binary(max_size=300),
    kind=st.sampled_from(["application/json", "multipart/form-data; boundary=x"]),
)
@QUIET
def test_bodies(steady: TestClient, body: bytes, kind: str) -> None:
    for place in ("/api/bench", "/api/search/picture", "/search/picture"):
        answer = steady.post(place, content=body, headers={"content-type": kind})
        assert answer.status_code < 500


@given(
    parameters=st.dictionaries(
        st.sampled_from(
            ["tau", "margin", "alpha", "beta", "lambda", "epsilon", "triplet", "scale"]
        ),
        st.one_of(st.floats(), st.text(max_size=8), st.booleans(), st.integers()),
        max_size=3,
    ),
    name=st.sampled_from(["triplet", "nt-xent", "smooth-ap", "goal", "siglip", "adap-off-quin"]),
)
@QUIET
def test_sliders(steady: TestClient, parameters: dict[str, object], name: str) -> None:
    body = json.dumps({"objective": name, "parameters": parameters, "size": 4})
    answer = steady.post("/api/bench", content=body)
    assert answer.status_code in {200, 422}, answer.text
