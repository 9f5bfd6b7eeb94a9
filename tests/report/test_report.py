"""The whole report, of studies and runs in every state they are found in."""

import dataclasses
import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from simgrad.cli.program import main
from simgrad.core.errors import InputError
from simgrad.data.base import Dataset
from simgrad.report import build_report, write_report
from simgrad.report.material import collect
from simgrad.runs.run import Run
from simgrad.studies.study import Study
from tests.report.conftest import EVIL
from tests.report.reading import Page

ANCHORS = [
    "comparison", "training", "push", "cocos", "triplets", "crossranks", "examples",
    "disagreements", "provenance",
]  # fmt: skip


def read(path: Path) -> Page:
    page = Page(path.read_text(encoding="utf-8"))
    page.check()
    return page


def anchors(page: Page) -> list[str]:
    return [attributes["id"] for attributes in page.all("section")]


def test_an_output_without_an_ending_is_a_folder(features_run: Run, tmp_path: Path) -> None:
    options: dict[str, Any] = {"batches": 0, "pictures": False}
    for format, name in (("html", "report.html"), ("md", "report.md")):
        made = write_report([features_run.path], tmp_path / "new", format, **options)  # type: ignore[arg-type]
        assert made == tmp_path / "new" / name
        assert made.is_file()


@pytest.mark.parametrize("format", ["html", "md"])
def test_a_report_replaces_reports_alone(features_run: Run, tmp_path: Path, format: str) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("my notes\n")
    with pytest.raises(InputError, match=r"mine.txt: there is another kind of file already"):
        write_report([features_run.path], path, format, batches=0)  # type: ignore[arg-type]
    assert path.read_text() == "my notes\n"
    path.unlink()
    for _ in range(2):
        write_report([features_run.path], path, format, batches=0, pictures=False)  # type: ignore[arg-type]
    assert "Written by simgrad" in path.read_text()


def test_a_short_study_calls_nobody_ahead(study: Path, tmp_path: Path) -> None:
    """What `choose --short` writes: its report knows it, too."""
    shutil.copytree(study, tmp_path / "short")
    plan = dataclasses.replace(Study.open(tmp_path / "short").plan, short=True)
    assert Study.create(plan, tmp_path / "short").plan.short
    page = read(write_report([tmp_path / "short"], tmp_path / "report.html", batches=0))
    assert "Too short a training to say who leads." in page.text
    assert "difference from triplet" not in page.text
    assert not re.search(r"\b(leads with|ahead of|behind by)\b|\bp [<=] 0", page.text)


def test_a_study_has_every_section(study: Path, tmp_path: Path) -> None:
    start = time.monotonic()
    page = read(write_report([study], tmp_path / "report.html", batches=2))
    assert time.monotonic() - start < 30
    assert anchors(page) == [*ANCHORS, "words"]
    assert (tmp_path / "report.html").stat().st_size < 8_000_000
    for words in ("A tiny study", "Less is more.", "3 settings", "4 of 6 runs finished"):
        assert words in page.text
    # what is missing, what was published, how it was run
    assert "smooth-ap: 2 of 2 runs have not begun." in page.text
    assert "in the paper" in page.text
    assert "30.8" in page.text
    info = Run.open(study / "runs" / "triplet-s0").info
    assert info["data_fingerprint"][:16] in page.text
    assert f"torch {info['versions']['torch']}" in page.text
    assert "seeds 0, 1" in page.text


def test_the_numbers_are_those_of_the_runs(study: Path) -> None:
    tests = {
        label: [Run.open(study / "runs" / f"{label}-s{seed}").test["rsum"] for seed in (0, 1)]
        for label in ("triplet", "nt-xent")
    }
    report = build_report([study], batches=0, pictures=False)
    table = report.sections[0].blocks[1]
    shown = {row.cells[0].text: row.cells[7] for row in table.rows}  # type: ignore[union-attr]
    for label, values in tests.items():
        assert shown[label].text == f"{sum(values) / 2:.1f}"
    assert shown["smooth-ap"].text == "–"
    best = max(tests, key=lambda label: sum(tests[label]))
    assert shown[best].strong
    assert not any(cell.strong for label, cell in shown.items() if label != best)
    first = report.head[0].words  # type: ignore[union-attr]
    assert first[0].text == best


def test_pictures_are_embedded_once_and_right_ones_marked(study: Path, tmp_path: Path) -> None:
    html = write_report([study], tmp_path / "r.html", batches=0).read_text()
    page = Page(html)
    pictures = re.findall(r'href="(data:image/webp;base64,[^"]+)"', html)
    assert len(pictures) == len(set(pictures)) > 10
    used = [a["href"] for a in page.all("use")]
    assert len(used) > len(set(used))  # the same picture in several places
    assert {u.removeprefix("#") for u in used} == {a["id"] for a in page.all("symbol")}
    assert html.count('<li class="right">') >= 1
    assert all(a.get("aria-label", "").startswith("picture ") for a in page.all("svg")
               if "aria-label" in a)  # fmt: skip


def test_the_marked_picture_is_the_right_one(study: Path) -> None:
    report = build_report([study], batches=0)
    dataset = Run.open(study / "runs" / "triplet-s0").dataset()
    split = dataset.split("test")
    examples = [
        example
        for section in report.sections
        if section.anchor in ("examples", "disagreements")
        for example in section.blocks[1].examples  # type: ignore[union-attr]
        if example.sentence is not None
    ]
    assert len(examples) >= 5
    for example in examples:
        assert example.picture is not None
        owners = {
            split.image_names[split.image_of_caption[row]]
            for row, caption in enumerate(split.captions)
            if caption == example.sentence
        }
        assert example.picture.name in owners
        for strip in example.strips:
            assert len(strip.thumbs) == 5
            ranks = [int(r) for r in re.findall(r"\d+", strip.outcome.split(" in ")[0])]
            places = [i + 1 for i, t in enumerate(strip.thumbs) if t.mark == "right"]
            if places:  # the first seed's picture is shown
                assert places[0] == ranks[0]
            else:
                assert ranks[0] > 5


@pytest.mark.parametrize("format", ["html", "pdf-ready"])
def test_markup_in_captions_and_names_stays_text(
    features_run: Run, tmp_path: Path, format: str
) -> None:
    path = write_report([features_run.path], tmp_path / "r.html", format, batches=1)  # type: ignore[arg-type]
    page = read(path)
    assert EVIL in page.text  # shown as it is
    assert "<img src=x onerror" in page.text
    assert not page.all("img")


def test_features_without_pictures_and_without_a_test_split(
    features_run: Run, tmp_path: Path
) -> None:
    page = read(write_report([features_run.path], tmp_path / "r.html", batches=1))
    found = anchors(page)
    assert "crossranks" not in found
    assert "disagreements" not in found
    assert {"comparison", "training", "cocos", "triplets", "examples", "provenance"} <= set(found)
    assert "These are validation numbers" in page.text
    assert "features but no pictures" in page.text
    assert not page.all("symbol")


def test_one_run(study: Path, tmp_path: Path) -> None:
    page = read(write_report([study / "runs" / "nt-xent-s1"], tmp_path / "r.html", batches=1))
    assert "disagreements" not in anchors(page)
    assert re.search(r"nt-xent\(tau=0.1\) reaches [\d.]+ rsum", page.text)
    assert "with one seed" in page.text


def test_how_a_run_was_watched_and_cut_is_no_setting(study: Path, tmp_path: Path) -> None:
    runs = [tmp_path / f"run{seed}" for seed in (0, 1)]
    for seed, run in enumerate(runs):
        shutil.copytree(study / "runs" / f"nt-xent-s{seed}", run)
    text = (runs[1] / "recipe.yaml").read_text()
    assert "log: null" in text
    assert "micro_batch: null" in text
    text = text.replace("micro_batch: null", "micro_batch: 32").replace("log: null", "log: wandb")
    (runs[1] / "recipe.yaml").write_text(text)
    told = json.loads((runs[1] / "run.json").read_text())
    del told["sha256"], told["files"]  # as an edited run is told to
    (runs[1] / "run.json").write_text(json.dumps(told))
    assert [len(system.runs) for system in collect(runs).systems] == [2]


def test_runs_of_one_recipe_are_seeds_of_one_setting(study: Path, tmp_path: Path) -> None:
    runs = sorted((study / "runs").iterdir())
    page = read(write_report(runs, tmp_path / "r.html", batches=0, pictures=False))
    assert "2 settings · 4 runs" in page.text
    assert "2 seeds" in page.text
    folder = read(write_report([study / "runs"], tmp_path / "f.html", batches=0, pictures=False))
    assert "2 settings · 4 runs" in folder.text


def test_an_unfinished_run(unfinished: Run, study: Path, tmp_path: Path) -> None:
    page = read(write_report([unfinished.path], tmp_path / "r.html", batches=1))
    assert "0 of 1 runs finished" in page.text
    assert "seed 0: not finished at step" in page.text
    assert "These are validation numbers" in page.text
    both = [unfinished.path, study / "runs" / "nt-xent-s0"]
    page = read(write_report(both, tmp_path / "b.html", batches=0, pictures=False))
    assert "0 of 1 seed" in page.text


def test_a_run_before_its_first_evaluation(study: Path, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    shutil.copy(study / "runs" / "triplet-s0" / "recipe.yaml", folder)
    page = read(write_report([folder], tmp_path / "r.html"))
    assert "No run has been evaluated yet." in page.text
    assert anchors(page) == ["triplets", "provenance", "words"]


def test_data_that_is_gone_leaves_the_rest(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object, **__: object) -> Dataset:
        raise InputError("/photos: there is no such folder.")

    monkeypatch.setattr(Run, "dataset", gone)
    page = read(write_report([study], tmp_path / "r.html", batches=1))
    assert "The data could not be opened" in page.text
    assert "not counted (/photos" in page.text
    assert "comparison" in anchors(page)


def test_warnings_are_shown(study: Path, tmp_path: Path) -> None:
    folder = tmp_path / "warned"
    shutil.copytree(study / "runs" / "triplet-s0", folder)
    info = Run(folder).info
    info["warnings"] = [{"step": 7, "text": "all similarities are <equal>"}]
    (folder / "run.json").write_text(json.dumps(info))
    page = read(write_report([folder], tmp_path / "r.html", batches=0, pictures=False))
    assert "step 7: all similarities are <equal>" in page.text


def test_markdown(study: Path, features_run: Run, tmp_path: Path) -> None:
    path = write_report([study], tmp_path / "here" / "report.md", "md", batches=1)
    text = path.read_text(encoding="utf-8")
    links = re.findall(r"\]\((report-files/[^)]+)\)", text)
    assert any(link.endswith(".svg") for link in links)
    assert any(link.endswith(".webp") for link in links)
    assert all((path.parent / link).is_file() for link in links)
    svg = (path.parent / "report-files" / "rsum-0.svg").read_text(encoding="utf-8")
    assert svg.startswith("<svg")
    assert "xmlns" in svg
    assert "<desc" in svg
    table = [line for line in text.splitlines() if line.startswith("| ")][:4]
    assert len({line.replace("\\|", "").count("|") for line in table}) == 1
    evil = write_report([features_run.path], tmp_path / "evil.md", "md", batches=0).read_text()
    assert "<script" not in evil
    assert "<img" not in evil
    assert "&lt;script&gt;" in evil


def test_print_is_light_and_unfolded(study: Path, tmp_path: Path) -> None:
    path = write_report([study], tmp_path / "p.html", "pdf-ready", batches=0, pictures=False)
    html = path.read_text()
    assert not Page(html).all("details")
    assert "prefers-color-scheme" not in html
    assert "break-before:page" in html


def test_command(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(
            ["report", str(study / "runs" / "triplet-s0"), "--batches", "0", "--pictures", "False"]
        )
    assert stop.value.code == 0
    assert "report.html" in capsys.readouterr().out
    read(tmp_path / "report.html")


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ([], "nothing to draw or report"),
        (["nowhere"], "no such folder"),
        (["."], "neither a study"),
    ],
)
def test_what_is_no_run_is_named(
    targets: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=words):
        write_report(targets)
    with pytest.raises(InputError, match="a report is html"):
        write_report(targets, format="docx")  # type: ignore[arg-type]
