"""What somebody types on a first day in Python, and what is said where it does not fit."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import simgrad
from simgrad.choosing.procedure import asked
from simgrad.cli.program import main
from simgrad.core.errors import InputError
from simgrad.evaluation.standing import Standing, stand
from simgrad.models.networks import backbone_weights

SCENES = "scenes(train=60, val=20, test=20, features=global)"
E = torch.eye(3)


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (lambda: simgrad.choose(SCENES, objectives="nt-xent"), "`objectives` is a list of two"),
        (lambda: simgrad.choose(SCENES, minutes="4"), "`minutes` is a number above 0, not '4'"),
        (lambda: simgrad.choose(SCENES, epochs="4"), "`epochs` is 1 or more, not '4'"),
        (lambda: simgrad.evaluate(E, E, recalls=1), r"as in recalls=\(1, 5\), not 1"),
        (lambda: simgrad.evaluate("a.npz", "b.npz"), "images: 'a.npz' is a name.*`simgrad.open`"),
        (lambda: simgrad.train("nt-xent"), 'Did you mean `objective="nt-xent"`'),
        (lambda: simgrad.train("nowhere.yaml"), "nowhere.yaml: there is no such file.$"),
        (lambda: simgrad.compare("nowhere", "nowhere"), "nowhere: no such folder"),
    ],
)
def test_a_mistake_is_told_in_words_of_python(typed: Callable[[], Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        typed()


def test_data_that_are_taken_for_a_model_are_named(tmp_path: Path) -> None:
    for name in ("photos", "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / "photos" / "a.txt").write_text("a dog\n")
    (tmp_path / "photos" / "a.jpg").write_bytes(b"")
    with pytest.raises(InputError, match=r"It holds data: .*simgrad.train\(data='.*photos'\)"):
        simgrad.open(tmp_path / "photos")
    with pytest.raises(InputError, match=r"nor a study of runs\.$"):
        simgrad.open(tmp_path / "notes")


def test_a_plan_is_returned_before_anything_is_computed(tmp_path: Path) -> None:
    plan = simgrad.choose(SCENES, minutes=600, device="cpu", output=tmp_path / "a", dry_run=True)
    assert plan.startswith("plan (an estimate")
    assert repr(plan) == plan
    assert not (tmp_path / "a").exists()


def test_opened_data_are_chosen_from_as_their_place_is() -> None:
    opened = simgrad.data.open_dataset(SCENES)
    rest = (30.0, (), None, None, None, False, None, None, "cpu")
    assert asked(opened, *rest) == asked(SCENES, *rest)
    part = simgrad.data.open_dataset(SCENES, train_images=10)
    with pytest.raises(InputError, match="give the file or folder"):
        simgrad.choose(part)


def test_an_answer_names_its_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = simgrad.evaluate(E, E).ranks
    found: list[Standing | None] = [None]
    monkeypatch.setattr(simgrad.Answer, "standing", property(lambda _: found[0]))
    answer = simgrad.Answer(Path("choose"), "")
    assert answer.leader is None
    found[0] = stand({"one": [ranks], "two": [ranks]})
    assert answer.leader == found[0].leader
    found[0] = stand({"one": [ranks], "two": [ranks]}, short=True)
    assert answer.leader is None


def test_weights_that_cannot_be_fetched_have_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nowhere(*_: Any) -> None:
        raise InputError("no network")

    monkeypatch.setattr(backbone_weights, "_on_disk", lambda *_: None)
    monkeypatch.setattr(backbone_weights.parts, "pretrained_folder", nowhere)
    monkeypatch.chdir(tmp_path)
    way = 'vse++(backbone=efficientnet-lite0)"'
    pictures = "scenes(train=8, val=4, test=4, features=pixels)"
    with pytest.raises(InputError, match=re.escape(f'`model="{way}`, or by `model="light"`')):
        simgrad.train(objective="nt-xent", data=pictures, quiet=True)
    with pytest.raises(SystemExit):
        main(["train", "--objective", "nt-xent", "--data", pictures])
    assert f'by --model "{way}, or by --model "light"' in capsys.readouterr().err
