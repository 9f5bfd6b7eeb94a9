"""What commands do, done in Python: short calls, plain errors, a readable help."""

import pydoc
import re
from pathlib import Path
from typing import Any

import pytest

import simgrad
from simgrad.core.errors import InputError

DATA = "scenes(train=60, val=20, test=20, features=global)"
SMALL = {"model": "vse++(dimension=16, word_dimension=16)", "epochs": 1, "device": "cpu"}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[simgrad.Run]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        simgrad.train(objective=one, data=DATA, lr=lr, folder=folder / one, quiet=True, **SMALL)
        for one, lr in (("nt-xent", 2e-3), ("triplet", 1e-3))
    ]


def test_a_run_needs_no_recipe_and_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = simgrad.data.open_dataset(DATA)
    run = simgrad.train(objective="nt-xent", data=data, quiet=True, **SMALL)
    assert run.path == Path("runs/vse++-nt-xent-scenes-s0")
    assert run.finished
    assert run.recipe.data == DATA
    again = simgrad.train(objective="nt-xent", data=data, quiet=True, **SMALL)
    assert again == run
    other = simgrad.train(objective="nt-xent", data=data, quiet=True, **{**SMALL, "epochs": 2})
    assert other.path == Path("runs/vse++-nt-xent-scenes-s0-2")


def test_fields_alone_get_what_is_usual_for_their_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on the command line: a pretrained model is not trained at the rate of another one."""
    made: list[simgrad.Recipe] = []
    monkeypatch.setattr(
        "simgrad.training.rounds.train_round", lambda recipe, *_, **__: made.append(recipe)
    )
    (tmp_path / "mine.yaml").write_text("epochs: 3")
    simgrad.train(folder=tmp_path / "a", model="clip(source=none)", data=DATA)
    simgrad.train(tmp_path / "mine.yaml", tmp_path / "b", objective="triplet-sh", data=DATA)
    simgrad.train(simgrad.Recipe(lr=0.1, data=DATA), tmp_path / "c", model="light")
    assert [(one.objective, one.lr, one.epochs) for one in made] == [
        ("nt-xent(learned=true)", 1e-5, 30),
        ("triplet-sh", 2e-4, 3),
        ("focused-deviance", 0.1, 30),
    ]


def test_runs_are_compared_and_drawn_as_they_are(two: list[simgrad.Run]) -> None:
    found = simgrad.compare(*two)
    assert found.names == ("nt-xent", "triplet")
    assert found["rsum"].second - found["rsum"].first == pytest.approx(found["rsum"].difference)
    assert found["rsum"].first == pytest.approx(two[0].test["rsum"])
    opened = simgrad.compare(simgrad.open(two[0]), two[1].ranks())
    assert opened["rsum"].difference == found["rsum"].difference
    seeds = simgrad.compare([two[0], two[0]], [two[1], two[1]])
    assert seeds.names == ("A", "B")
    assert str(simgrad.plot(two)) == str(simgrad.plot(*two))


def test_a_study_is_trained_and_read(tmp_path: Path) -> None:
    rows = [
        {"label": name, "set": {"objective": name}, "baseline": name == "nt-xent"}
        for name in ("nt-xent", "triplet")
    ]
    plan = {"recipe": {"data": DATA, **SMALL}, "rows": rows, "seeds": 2}
    study = simgrad.Study.create(plan, tmp_path / "mine").train(1, quiet=True)
    assert study.complete
    table = study.table()
    assert [row.label for row in table.rows] == ["nt-xent", "triplet"]
    lines = str(table).splitlines()
    assert lines[0].startswith("mine")
    assert lines[2].split()[0] == "nt-xent"
    assert "<table" in table._repr_html_()
    frame = study.to_frame()
    rsum = frame[frame.metric == "rsum"]["mean"]
    assert rsum["triplet"] == pytest.approx(table.rows[1].cells["rsum"].mean)
    assert list(frame.columns) == ["group", "metric", "mean", "std", "low", "high", "seeds"]
    assert (tmp_path / "mine" / "table.tex").is_file()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: simgrad.train(objectve="nt-xent"), "Did you mean 'objective'?"),
        (lambda: simgrad.train(data="nowhere", quiet=True), "no such file or folder"),
        (lambda: simgrad.compare(3, 4), "compare what? Give two runs"),
        (lambda: simgrad.plot("nowhere"), "no such folder"),
        (lambda: simgrad.Study.create({"rows": 1}, "nowhere"), "rows takes a list"),
        (lambda: simgrad.Study("nowhere").table(), "there is no such file"),
        (lambda: simgrad.open("nowhere"), "there is no such run"),
    ],
)
def test_errors_are_sentences(
    wrong: object, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=said.replace("?", r"\?")):
        wrong()  # type: ignore[operator]
    assert list(tmp_path.rglob("*.yaml")) == []


def test_help_can_be_read() -> None:
    told = pydoc.plain(pydoc.render_doc(simgrad)).splitlines()
    assert any("simgrad.choose(" in line for line in told[:12])
    assert not any("BeforeValidator" in line for line in told)
    assert "simgrad.train(" in pydoc.plain(pydoc.render_doc(simgrad.train))
    signature = pydoc.plain(pydoc.render_doc(simgrad.Recipe)).splitlines()[3]
    assert "objective='focused-deviance'" in signature


def test_help_explains_the_parameters_of_an_objective() -> None:
    told = pydoc.plain(pydoc.render_doc(simgrad.objective("nt-xent"))).splitlines()
    assert any("NTXent(tau: float = 0.1, learned: bool = False)" in line for line in told[:4])
    lines = [line.strip(" |") for line in told[:25]]
    assert "tau: temperature of the softmax; greater than 0; 0.1 by default" in lines
    assert "paper: Chen et al., ICML 2020" in lines
    assert "formula: -log (e^(s+/tau) / (e^(s+/tau) + sum_n e^(s_n/tau)))" in lines
    assert "Initialize internal Module state" not in "".join(told[:60])

    @simgrad.objectives.declare("example-told", description="what it does")
    def told_of(similarities: Any, positives: Any, pairs: Any, power: float = 2.0) -> Any: ...

    assert "power: 2 by default" in (told_of.__doc__ or "")
    for entry in simgrad.objectives.objectives:
        text = str(entry.factory.__doc__).partition("Examples:")[0]
        assert all(f"    {p.name}: " in text for p in entry.parameters)
        assert "\\" not in text  # no LaTeX


def test_help_explains_the_fields_of_a_recipe() -> None:
    text = simgrad.Recipe.__doc__ or ""
    told = " ".join(text.split())
    for name, field in simgrad.Recipe.model_fields.items():
        assert f"{name}: {' '.join(str(field.description).split())}" in told
    assert max(map(len, text.splitlines())) < 90
    assert ">>> recipe = " in text.partition("Examples:")[2]
    assert simgrad.Recipe.model_json_schema()["description"].count("\n") < 9


def test_a_folder_below_the_home_folder_is_named_with_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    run = simgrad.train(data=DATA, folder="~/first", quiet=True, **SMALL)
    assert run.path == tmp_path / "home" / "first"
    plan = simgrad.choose(DATA, minutes=5, output="~/answer", model="light", dry_run=True)
    assert "light" in str(plan)
    (tmp_path / "home" / "answer").mkdir()
    (tmp_path / "home" / "answer" / "choose.json").write_text("{}")
    with pytest.raises(InputError, match=re.escape(str(tmp_path / "home" / "answer"))):
        simgrad.choose("~/answer")  # an earlier one is meant, and this is none
    assert not (tmp_path / "~").exists()
