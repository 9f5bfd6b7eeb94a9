"""Every route: what it shows, what it says when something is wrong, and that nothing leaks."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from simgrad.core.files import lock, write_json
from simgrad.lab.app import create_app
from simgrad.lab.facts import run_summary
from simgrad.lab.lab import Lab, find_paths
from simgrad.objectives import objectives
from simgrad.retriever.search import Searcher
from simgrad.runs.run import Run, write_info
from simgrad.studies.plan import plan_from_dict
from simgrad.studies.study import Study

PAGES = ("/", "/runs/nt", "/search", "/search?q=a+red+heart&sure=", "/bench", "/api")


@pytest.mark.parametrize("address", PAGES)
def test_pages(client: TestClient, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 200
    assert answer.text.rstrip().endswith("</html>")
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    # The policy forbids both; a page that had them would be broken, or unsafe.
    assert " style=" not in answer.text
    assert "<script>" not in answer.text


def test_a_sentence_finds_its_picture(client: TestClient, easy: tuple[str, int]) -> None:
    caption, row = easy
    found = client.get("/api/search", params={"q": caption, "run": ["nt", "tri"]}).json()
    assert [result["run"] for result in found] == ["nt", "tri"]
    assert found[0]["images"][0]["row"] == row
    assert found[0]["images"][0]["right"] is True
    assert 0 < found[0]["images"][0]["probability"] < 1
    assert "with a probability of" in found[0]["verdict"]
    strict = client.get("/api/search", params={"q": caption, "run": "nt", "sure": 1}).json()
    assert strict[0]["verdict"].startswith("Nothing fits")
    picture = client.get(found[0]["images"][0]["picture"])
    assert picture.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(picture.content)).size == (64, 64)
    page = client.get("/search", params={"q": caption}).text
    assert f"/pictures/nt/test/{row}" in page


def test_an_uploaded_picture_finds_its_captions(client: TestClient, searcher: Searcher) -> None:
    data = png_of(searcher, 4)
    found = client.post(
        "/api/search/picture", files={"picture": ("mine.png", data)}, data={"run": "nt", "top": 60}
    ).json()[0]
    assert found["error"] is None
    rows = [hit.row for hit in searcher.row(4, 60).captions]
    assert [item["row"] for item in found["captions"]] == rows
    page = client.post("/search/picture", files={"picture": ("<b>.png", data)})
    assert page.status_code == 200
    assert "&lt;b&gt;.png" in page.text
    assert "data:image/jpeg;base64," in page.text


def png_of(searcher: Searcher, row: int) -> bytes:
    assert searcher.split is not None
    assert searcher.split.pictures is not None
    buffer = io.BytesIO()
    searcher.split.pictures.picture(row).save(buffer, "PNG")
    return buffer.getvalue()


def test_a_picture_from_elsewhere_says_why_not(client: TestClient) -> None:
    buffer = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (30, 30, 3), dtype=np.uint8)
    Image.fromarray(noise).save(buffer, "PNG")
    found = client.post("/api/search/picture", files={"picture": buffer.getvalue()}).json()
    assert "the data's own pictures" in found[0]["error"]


def test_searching_with_a_picture_of_the_data(client: TestClient, searcher: Searcher) -> None:
    page = client.get("/search", params={"origin": "nt", "row": 4, "run": "nt"}).text
    best = searcher.row(4, 1).captions[0].captions[0]
    assert best in page
    assert client.get("/search?origin=nt&row=100000").status_code == 422


@pytest.mark.parametrize("name", [entry.name for entry in objectives])
def test_every_objective_on_the_bench(client: TestClient, name: str) -> None:
    asked = {"objective": name, "run": "nt", "size": 6}
    told = {entry["name"]: entry for entry in client.get("/api/objectives").json()}[name]
    answer = client.post("/api/bench", json=asked)
    assert answer.status_code == 200
    found = answer.json()
    assert np.array(found["i2t"]).shape == (6, 6)
    assert len(found["images"]) == len(found["captions"]) == 6
    weights = np.array(found["i2t"]) + np.array(found["t2i"])
    assert np.abs(weights).max() > 0
    # Every end of every slider is a place where the objective can be tried.
    for parameter in told["parameters"]:
        if parameter["kind"] == "number":
            for end in (parameter["low"], parameter["high"]):
                answer = client.post(
                    "/api/bench", json={**asked, "parameters": {parameter["name"]: end}}
                )
                assert answer.status_code == 200, (parameter["name"], end, answer.text)


def test_bench_changes_with_its_parameters(client: TestClient) -> None:
    sharp, flat = (
        client.post("/api/bench", json={"objective": "nt-xent", "parameters": {"tau": tau}}).json()
        for tau in (0.02, 0.4)
    )
    assert sharp["field"]["push"] != flat["field"]["push"]
    assert sharp["attention"]["i2t"]["effective"] < flat["attention"]["i2t"]["effective"]


def test_diagram_of_a_run(client: TestClient) -> None:
    found = client.get("/api/runs/nt/diagram").json()
    assert found["objective"].startswith("nt-xent")
    assert set(found["phases"]) <= {"early", "middle", "late"}
    assert found["phases"]["late"]


def test_overview_and_run(client: TestClient) -> None:
    runs = {run["id"]: run for run in client.get("/api/overview").json()["runs"]}
    assert runs["nt"]["status"] == "finished"
    assert runs["nt"]["progress"] == 1
    assert runs["nt"]["on"] == "test"
    detail = client.get("/api/runs/nt").json()
    assert detail["splits"] == ["train", "val", "test"]
    assert len(detail["history"]) == 3
    assert detail["recipe"]["objective"] == "nt-xent"


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/runs/none", 404),
        ("/studies/none", 404),
        ("/api/runs/none", 404),
        ("/api/runs/none/diagram", 404),
        ("/api/studies/none", 404),
        ("/api/search?q=x&run=none", 404),
        ("/api/search?q=", 422),
        ("/api/search", 422),
        ("/api/search?q=x&top=0", 422),
        ("/api/search?q=x&top=nine", 422),
        ("/api/search?q=x&sure=2", 422),
        ("/search?q=x&sure=nan", 422),
        ("/api/search?q=x&top=99999999999999999999999", 422),
        ("/api/search?q=" + "x" * 1001, 422),
        ("/api/search?q=x" + "&run=nt" * 9, 422),
        ("/search?q=x&run=none", 404),
        ("/pictures/nt/test/60", 404),
        ("/pictures/nt/test/-1", 422),
        ("/pictures/nt/test/1.5", 422),
        ("/pictures/nt/none/1", 404),
        ("/pictures/none/test/1", 404),
        ("/pictures/nt/test/1?side=100000", 422),
        ("/nothing", 404),
    ],
)
def test_what_does_not_fit_is_told(client: TestClient, address: str, status: int) -> None:
    answer = client.get(address)
    assert answer.status_code == status
    assert isinstance(answer.json()["detail"], str)
    page = client.get(address, headers={"accept": "text/html"})
    assert page.status_code == status


@pytest.mark.parametrize(
    "body",
    [
        {"objective": "none"},
        {"objective": "nt-xent", "parameters": {"tau": 0}},
        {"objective": "nt-xent", "parameters": {"tau": -1e308}},
        {"objective": "debiased-nt-xent", "parameters": {"tau": 1.4e-45}},
        {"objective": "nt-xent", "parameters": {"none": 1}},
        {"objective": "nt-xent", "parameters": {"tau": "1, margin=2"}},
        {"objective": "goal", "parameters": {"pair": "constructor"}},
        {"objective": ["nt-xent"]},
        {"run": "nt", "split": "none"},
        {"run": "none"},
        {"size": 1},
        {"size": 10**9},
        {"seed": -1},
        {"surprise": True},
        [],
        "nt-xent",
        None,
    ],
)
def test_bench_refuses_what_does_not_fit(client: TestClient, body: object) -> None:
    assert client.post("/api/bench", json=body).status_code in {404, 422}


def test_a_study_is_compared_while_it_runs(runs: dict[str, Path], tmp_path: Path) -> None:
    recipe = Run(runs["nt"]).recipe.to_dict()
    plan = plan_from_dict(
        {
            "title": "<i>Which</i>?",
            "recipe": recipe,
            "grid": {"objective": ["nt-xent", "triplet"]},
            "seeds": 1,
            "baseline": "nt-xent",
        },
        "study",
    )
    study = Study.create(plan, tmp_path / "both")
    lab = Lab([study.path])
    with TestClient(create_app(lab), base_url="http://127.0.0.1") as client:
        assert client.get("/").status_code == 200
        assert client.get("/studies/both").status_code == 200
        for name, source in (("nt-xent-s0", "nt"), ("triplet-s0", "tri")):
            shutil.copytree(runs[source], study.path / "runs" / name)
        found = client.get("/api/studies/both").json()
        assert found["finished"] == found["runs"] == 2
        assert found["rows"][0]["baseline"] is True
        assert found["rows"][1]["cells"]["rsum"][0] > 0
        assert found["rows"][1]["against_baseline"]
        page = client.get("/studies/both").text
        assert "&lt;i&gt;Which&lt;/i&gt;" in page
        assert "data-lines=" in page
        assert page.count("data-source=") == 2
        assert "seed 0" not in page  # there is one seed alone
        assert client.get("/runs/both.nt-xent-s0").status_code == 200
        assert client.get("/search?q=heart&run=both.nt-xent-s0").status_code == 200


def test_damaged_and_unfinished_runs_do_not_spoil_the_page(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    for name in ("bad-json", "bad-recipe", "waiting", "nan"):
        shutil.copytree(runs["nt"], tmp_path / "runs" / name)
    (tmp_path / "runs/bad-json/run.json").write_text("{")
    (tmp_path / "runs/bad-recipe/recipe.yaml").write_text("epochs: [")
    shutil.rmtree(tmp_path / "runs/waiting/best")
    for file in ("run.json", "metrics.jsonl", "test.json", "triplets.npz"):
        (tmp_path / "runs/waiting" / file).unlink()
    line = {"step": 1, "epoch": 1.0, "loss": float("nan"), "val": {"rsum": float("inf")}}
    (tmp_path / "runs/nan/metrics.jsonl").write_text(json.dumps(line) + '\n{"cut off')
    write_info(tmp_path / "runs/nan", {**Run(tmp_path / "runs/nan").info, "status": "running"})
    lab = Lab(find_paths(tmp_path))
    with TestClient(create_app(lab), base_url="http://127.0.0.1") as client:
        found = {run["id"]: run for run in client.get("/api/overview").json()["runs"]}
        assert found["bad-json"]["status"] == found["bad-recipe"]["status"] == "unreadable"
        assert found["waiting"]["status"] == "waiting"
        assert found["nan"]["loss"] is None
        assert client.get("/").status_code == 200
        assert client.get("/runs/bad-json").status_code == 422
        assert client.get("/runs/waiting").status_code == 200
        assert client.get("/runs/nan").status_code == 200
        assert client.get("/api/runs/nan").json()["history"][0]["loss"] is None
        assert client.get("/api/runs/waiting/diagram").json()["phases"] == {}
        answer = client.get("/api/search?q=x&run=waiting").json()
        assert "no checkpoint yet" in answer[0]["error"]
        assert client.get("/search?q=heart").status_code == 200


def test_a_run_whose_process_was_killed_is_not_running(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    shutil.copytree(runs["nt"], folder)
    write_json(folder / "run.json", {**Run(folder).info, "status": "running"})
    lab = Lab([folder])
    status = [run_summary(lab, "killed", Run(folder)).status]
    with lock(folder / ".lock"):
        status.append(run_summary(lab, "killed", Run(folder)).status)
    status.append(run_summary(lab, "killed", Run(folder)).status)
    lab.close()
    assert status == ["stopped", "running", "stopped"]
