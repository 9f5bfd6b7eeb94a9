"""New splits: disjoint tests, near-duplicates kept together, everything still paired right."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.data.base import Dataset, Split
from simgrad.data.likeness import connected, units_of
from simgrad.data.log import Log
from simgrad.data.resplit import assigned, read_resplit, with_draw
from simgrad.models.networks.backbones import backbone
from simgrad.runs.feature_files import TooSlow, write_features
from simgrad.runs.features import make_job
from simgrad.runs.recipe import Recipe

TRAIN, VAL, TEST, LEFT_OUT = range(4)
SCENES = "scenes(train=60, val=12, test=8, features=global)"


def names(dataset: Dataset, split: str) -> set[str]:
    return set(dataset.split(split).image_names)


def told(dataset: Dataset) -> dict[str, list[str]]:
    """The captions of every image."""
    return {
        split.image_names[row]: [split.captions[i] for i in split.captions_of(row)]
        for split in dataset.splits.values()
        for row in range(split.num_images)
    }


def test_tests_are_disjoint_and_retired_images_are_trained_on() -> None:
    before = open_dataset(SCENES)
    draws = [
        open_dataset(SCENES, resplit=f"new(draw={n}, test=10, val=9, pool=train)")
        for n in range(1, 9)
    ]
    tested = [names(one, "test") for one in draws]
    assert [len(t) for t in tested] == [10] * 8
    assert set.union(*tested[:6]) == names(before, "train")  # six disjoint parts: all of it
    assert not tested[6] & tested[7]  # two parts of a second order
    assert tested[6] not in tested[:6]
    retired = names(before, "val") | names(before, "test")
    for one in draws:
        train, val, test = (names(one, name) for name in ("train", "val", "test"))
        assert len(val) == 9
        assert not val & test
        assert train == (names(before, "train") | retired) - val - test
        assert told(one) == told(before)  # each image keeps all of its captions
    assert len({frozenset(names(one, "val")) for one in draws}) == 8
    assert len({one.fingerprint() for one in draws}) == 8
    again = open_dataset(SCENES, resplit="new(draw=3, test=10, val=9, pool=train)")
    assert again.fingerprint() == draws[2].fingerprint()
    assert again.origin == draws[2].origin


def test_by_default_the_sizes_stay_and_all_images_are_drawn() -> None:
    before, after = open_dataset(SCENES), open_dataset(SCENES, resplit="new")
    assert {s.name: s.num_images for s in after.splits.values()} == {
        s.name: s.num_images for s in before.splits.values()
    }
    assert set(told(after)) == set(told(before))
    assert names(after, "test") - names(before, "test")
    other = open_dataset(SCENES, resplit="new(seed=1)")
    assert names(other, "test") != names(after, "test")


def test_features_and_pictures_go_with_their_images() -> None:
    before, after = open_dataset(SCENES), open_dataset(SCENES, resplit="new(draw=4)")
    where = {n: (s, i) for s in before.splits.values() for i, n in enumerate(s.image_names)}
    for split in after.splits.values():
        assert split.features is not None
        rows = split.features.rows(np.arange(split.num_images)[::-1])
        for place, name in enumerate(reversed(split.image_names)):
            old, row = where[name]
            assert old.features is not None
            assert (rows[place] == old.features.rows(np.array([row]))[0]).all()
        for row, name in enumerate(split.image_names[:3]):
            old, own = where[name]
            assert old.pictures is not None
            assert split.pictures is not None
            assert split.pictures.picture(row) == old.pictures.picture(own)


@pytest.mark.parametrize("draw", range(1, 13))
def test_near_duplicates_never_straddle(draw: int) -> None:
    random = np.random.default_rng(7)
    units = random.integers(0, 60, 90)  # many units of one, two and three
    pool = random.random(90) < 0.7
    use = assigned(units, pool, test=10, val=8, draw=draw, seed=0, where="here")
    assert (np.bincount(use, minlength=4)[[VAL, TEST]] == [8, 10]).all()
    assert pool[np.isin(use, (VAL, TEST))].all()
    for unit in np.unique(units):
        kinds = set(use[units == unit].tolist())
        assert len(kinds - {LEFT_OUT}) <= 1
        assert LEFT_OUT not in kinds or kinds & {VAL, TEST}
    # A cut leaves out no more than what is beside it and what is not in the pool.
    inside = [set(use[(units == u) & pool].tolist()) for u in np.unique(units)]
    assert sum(LEFT_OUT in kinds for kinds in inside) <= 3


def test_copies_of_a_photo_are_one_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    folder = tmp_path / "data"
    (folder / "images").mkdir(parents=True)
    for number in range(12):
        pixels = random.integers(0, 255, (12, 12), dtype=np.uint8)
        picture = Image.fromarray(pixels).resize((96, 96), Image.Resampling.NEAREST)
        picture.save(folder / "images" / f"{number}.png")
    with Image.open(folder / "images" / "3.png") as picture:
        picture.convert("RGB").resize((120, 120)).save(folder / "images" / "9.jpg")
    (folder / "images" / "9.png").unlink()
    split = Split(
        "mine", "all", ["x"] * 12, np.arange(12), [str(i) for i in range(12)], _In(folder)
    )
    units = units_of(split)
    assert units[3] == units[9]
    assert len(np.unique(units)) == 11
    kept = list((tmp_path / "cache" / "likeness").glob("*.npy"))
    assert len(kept) == 1
    monkeypatch.setattr("simgrad.data.likeness.thumbprint", _never)
    assert (units_of(split) == units).all()  # not looked at again
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(AssertionError):
        units_of(split)


def _forty_pictures(folder: Path) -> None:
    random = np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    records = []
    for number in range(40):
        pixels = random.integers(0, 255, (12, 12), dtype=np.uint8)
        picture = Image.fromarray(pixels).resize((96, 96), Image.Resampling.NEAREST)
        picture.save(folder / "images" / f"{number}.png")
        split = "train" if number < 30 else "val" if number < 35 else "test"
        words = {"raw": f"picture {number}", "tokens": ["picture"], "sentid": number}
        records.append({"filename": f"{number}.png", "split": split, "sentences": [words]})
    for copy, of in ((9, 3), (36, 5)):
        shutil.copy(folder / "images" / f"{of}.png", folder / "images" / f"{copy}.png")
    (folder / "dataset_mine.json").write_text(json.dumps({"images": records}))


def test_features_stop_once_they_show_that_they_take_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, log = tmp_path / "data", Log.read(None)
    _forty_pictures(folder)
    job = make_job(backbone("efficientnet-lite0", "random"), device="cpu", batch=4)
    data = open_dataset(folder)
    monkeypatch.setattr("simgrad.runs.feature_files._TRIED", 0.0)
    with pytest.raises(TooSlow) as late:
        write_features(data, log, str(folder), job, tmp_path / "late", within=1e-6)
    assert late.value.seconds > 1e-6
    assert not (tmp_path / "late" / "val.npy").exists()
    # What was computed is gone on with.
    found = write_features(data, log, str(folder), job, tmp_path / "late", within=1000.0)
    assert sum(one.computed for one in found.values()) <= 40
    write_features(data, log, str(folder), job, tmp_path / "whole")
    for name in ("train", "val", "test"):
        one, other = (np.load(tmp_path / of / f"{name}.npy") for of in ("late", "whole"))
        assert (one == other).all()


def test_features_remember_which_pictures_look_alike(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    _forty_pictures(folder)
    log, job = Log.read(None), make_job(backbone("efficientnet-lite0", "random"), device="cpu")
    write_features(open_dataset(folder), log, str(folder), job, tmp_path / "features")
    draws = [f"new(draw={n}, test=6, val=6)" for n in range(1, 7)]
    options = {"features": tmp_path / "features"}
    before = [open_dataset(folder, resplit=draw, **options) for draw in draws]  # type: ignore[arg-type]
    assert before[0].alike == (
        (("train", "3.png"), ("train", "9.png")), (("train", "5.png"), ("test", "36.png")),
    )  # fmt: skip
    shutil.rmtree(folder / "images")
    for draw, one in zip(draws, before, strict=True):
        after = open_dataset(folder, resplit=draw, **options)  # type: ignore[arg-type]
        for name in ("train", "val", "test"):
            assert list(after.split(name).image_names) == list(one.split(name).image_names)
        assert not any("not looked for" in note for note in after.notes)


def _never(_: object) -> None:
    raise AssertionError


class _In:
    """Pictures of a folder, by number."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "images"

    def __len__(self) -> int:
        return 12

    def path(self, row: int) -> Path:
        return next(self.root.glob(f"{row}.*"))

    def picture(self, row: int) -> Image.Image:
        with Image.open(self.path(row)) as picture:
            return picture.convert("RGB")

    def content(self, verify: bool = False) -> str:
        return "always the same"


def test_units_by_a_slow_loop() -> None:
    random = np.random.default_rng(3)
    signs = np.where(random.random((40, 264)) < 0.5, 1, -1).astype(np.int8)
    signs[7] = signs[2]
    signs[7, :5] *= -1  # a likeness of 0.96 to it, ...
    signs[30] = signs[7]
    signs[30, 5:18] *= -1  # ... and through it to a third, 0.90 from it and 0.86 from the first
    signs[11] = 0  # damaged
    units = connected(signs)
    for i in range(40):
        for j in range(40):
            alike = (signs[i] == signs[j]).mean() * 2 - 1 >= 0.9 and 11 not in (i, j)
            assert (units[i] == units[j]) or not alike
    assert units[2] == units[7] == units[30]
    assert len(np.unique(units)) == 38


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("old(draw=2)", "written new"),
        ("new(draw=0)", "draw"),
        ("new(size=3)", "no parameter 'size'"),
        ("new(pool=train+restval)", "pool is of train, val, test"),
        ("new(pool=train+train)", "pool is of"),
    ],
)
def test_a_mistake_is_named(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_resplit(text)
    with pytest.raises(InputError, match=says):
        Recipe(resplit=text)


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(InputError, match="55 test and 12 val images are asked of a pool of 60"):
        open_dataset(SCENES, resplit="new(test=55, pool=train)")
    with pytest.raises(InputError, match="with `resplit` it is `all`"):
        Recipe(resplit="new", protocol="flickr8k-1k")


def test_a_draw_is_written_into_the_spec() -> None:
    assert with_draw(None, 3) == "new(draw=3)"
    assert with_draw("new(test=5, draw=1)", 2) == "new(test=5, draw=2)"
    assert str(read_resplit("new(val=4, draw=2)")) == "new(draw=2, val=4)"
