"""A study in which one objective trains, one collapses and one diverges, on every page of it."""

from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi", reason="needs the extra: pip install 'simgrad[serve]'")

from fastapi.testclient import TestClient

from simgrad.cli.study import conclude
from simgrad.lab.app import create_app
from simgrad.lab.lab import Lab
from simgrad.report.build import write_report
from simgrad.runs.outcome import outcome_of
from simgrad.studies.plan import plan_from_dict
from simgrad.studies.study import Study
from simgrad.studies.worker import work
from tests.report.reading import Page

SAID = "No fair comparison: triplet-sh collapsed in all 2 seeds; siglip diverged in all 2 seeds."


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    plan = {
        "title": "Three ends",
        "recipe": {
            "data": "scenes(train=160, val=40, test=60, features=global)",
            "model": "vse++(dimension=32, word_dimension=16)",
            "epochs": 6,
            "lr": 5e-3,
            "batch": 64,
            "min_count": 1,
            "device": "cpu",
        },
        "rows": [
            {"label": "triplet-sh", "set": {"objective": "triplet-sh", "lr": 0.05, "clip": 0}},
            {"label": "siglip", "set": {"objective": "siglip", "lr": 1e30, "clip": 0}},
            {"label": "nt-xent", "set": {"objective": "nt-xent"}, "baseline": True},
        ],
        "seeds": 2,
    }
    made = Study.create(plan_from_dict(plan, "plan"), tmp_path_factory.mktemp("ends") / "ends")
    work(made)
    return Study.open(made.path)


@pytest.fixture
def client(study: Study) -> Iterator[TestClient]:
    with TestClient(create_app(Lab([study.path])), base_url="http://127.0.0.1") as made:
        yield made


@pytest.mark.long
def test_every_run_ends_as_something(study: Study) -> None:
    ends = {label: {outcome_of(run) for run in runs} for label, runs in study.ended.items()}
    assert ends == {"nt-xent": {"trained"}, "triplet-sh": {"collapsed"}, "siglip": {"diverged"}}


@pytest.mark.long
def test_the_table_says_it_and_has_no_p(study: Study, capsys: pytest.CaptureFixture[str]) -> None:
    conclude(study)  # what diverged is a result: nothing is left to do
    said = capsys.readouterr()
    assert SAID in said.out.replace("\n", " ")
    assert "diverged, which counts: siglip-s0" in said.err
    written = (study.path / "table.md").read_text()
    assert SAID in written
    assert "p\\<" not in written
    assert "p=" not in written


@pytest.mark.long
def test_the_report_says_it_first(study: Study) -> None:
    write_report([study.path], study.path / "report.html", device="cpu")
    written = (study.path / "report.html").read_text()
    assert written.count('<span class="word bad">failed</span>') == 2
    assert '<span class="word good">leader</span>' in written
    page = Page(written).text
    numbers = page[page.rindex("All numbers") :]
    assert numbers.index("nt-xent") < numbers.index("triplet-sh")  # best first
    assert page.index(SAID) < page.index("nt-xent has rsum")
    assert "6 runs" in page
    assert "missing or unfinished" not in page
    assert "difference from nt-xent" not in page


@pytest.mark.long
def test_the_lab_page_shows_it(study: Study, client: TestClient) -> None:
    page = client.get("/studies/ends").text
    assert page.index("nt-xent</span></th>") < page.index("triplet-sh</span></th>")  # best first
    assert page.count('<span class="word bad">2 of 2</span><small>') == 2
    assert "All are of <code>vse++(" in page
    assert ">Model<" not in page
    assert page.index(SAID) < page.index("nt-xent has rsum")
    runs = {run["id"]: run for run in client.get("/api/overview").json()["runs"]}
    assert runs["ends.nt-xent-s0"]["outcome"] == "trained"
    home = client.get("/").text
    assert 'class="status collapsed"' in home
    assert 'class="status diverged"' in home
    assert 'class="status finished"' not in home
    assert "6 of 6 runs finished" in home
    assert "2 collapsed, 2 diverged" in home
    assert "Lower the learning rate" in client.get("/runs/ends.siglip-s1").text
    assert "<code>first_objective: triplet, " in client.get("/runs/ends.triplet-sh-s0").text
