"""The first hour with one's own photos, in every layout they come in: each command, then Python.

No command may need an option that nothing printed before has named.
"""

import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

import simgrad
from simgrad.data import open_dataset
from tests import processes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

Photos = dict[str, list[str]]  # captions by name
SPLITS = {"train": 80, "val": 40, "test": 20}


@pytest.fixture(scope="module")
def drawn() -> tuple[Photos, dict[str, Image.Image]]:
    split = open_dataset(f"scenes(train={sum(SPLITS.values())}, val=1, test=1)").split("train")
    assert split.pictures is not None
    photos, pictures = {}, {}
    for i in range(split.num_images):
        name = f"{1000 + i}_a photo.jpg"
        photos[name] = [split.captions[c] for c in split.captions_of(i)[:3]]
        pictures[name] = split.pictures.picture(i)
    return photos, pictures


class Hour:
    """A person at a terminal: what was printed is known, and only that."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.known = folder, ""

    def run(self, command: str) -> str:
        words = shlex.split(command)
        assert words[0] == "simgrad"
        unknown = [w for w in words if w.startswith("--") and w not in self.known]
        assert not unknown or unknown == ["--help"], f"{command}: nobody has named {unknown}"
        done = processes.simgrad(*words[1:], cwd=self.folder, env={**os.environ, "COLUMNS": "80"})
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        self.known += done.stdout + done.stderr
        return done.stdout

    def next(self, printed: str, command: str) -> str:
        """The command of this name that the output proposes."""
        found = re.search(rf"^(?:next:?)?\s+(simgrad {command} .*)$", printed, re.MULTILINE)
        assert found, printed
        return found[1]


# -- the layouts


def lines(separator: str, photos: Photos, numbered: str = "") -> str:
    rows = ((n, k, c) for n, captions in photos.items() for k, c in enumerate(captions))
    return "".join(f"{n}{numbered.format(k)}{separator}{c}\n" for n, k, c in rows)


def by_split(photos: Photos) -> dict[str, list[str]]:
    names = iter(photos)
    return {split: [next(names) for _ in range(size)] for split, size in SPLITS.items()}


def bare_list(folder: Path, photos: Photos) -> str:
    (folder / "captions.txt").write_text(lines(", ", photos), encoding="utf-8")
    return "."


def numbered_list(folder: Path, photos: Photos) -> str:
    (folder / "captions.txt").write_text(lines("\t", photos, "#{}"), encoding="utf-8")
    return "."


def flickr8k(folder: Path, photos: Photos) -> str:
    text = lines("\t", photos, "#{}")
    (folder / "Flickr8k.token.txt").write_text(text, encoding="utf-8")
    for split, names in by_split(photos).items():
        name = "dev" if split == "val" else split
        (folder / f"Flickr_8k.{name}Images.txt").write_text("\n".join(names), encoding="utf-8")
    return "Flicker8k_Dataset"


def flickr30k(folder: Path, photos: Photos) -> str:
    text = lines("\t", photos, "#{}")
    (folder / "results_20130124.token").write_text(text, encoding="utf-8")
    return "flickr30k-images"


def kaggle8k(folder: Path, photos: Photos) -> str:
    text = "image,caption\n" + lines(",", photos)
    (folder / "captions.txt").write_text(text, encoding="utf-8")
    return "Images"


def kaggle30k(folder: Path, photos: Photos) -> str:
    text = "image_name| comment_number| comment\n" + lines("| ", photos, "| {}")
    (folder / "results.csv").write_text(text, encoding="utf-8")
    return "flickr30k_images"


def coco(folder: Path, photos: Photos) -> str:
    (folder / "annotations").mkdir()
    for split, names in by_split(photos).items():
        images = [{"id": i, "file_name": name} for i, name in enumerate(names)]
        said = [
            {"id": 10 * i + k, "image_id": i, "caption": c}
            for i, name in enumerate(names)
            for k, c in enumerate(photos[name])
        ]
        file = folder / "annotations" / f"captions_{split}2014.json"
        file.write_text(json.dumps({"images": images, "annotations": said}), encoding="utf-8")
    return "{split}2014"


def huggingface(folder: Path, photos: Photos) -> str:
    return ""  # written where the pictures are known


LAYOUTS: dict[str, tuple[str, Callable[[Path, Photos], str]]] = {
    "a list without a header": ("list", bare_list),
    "a list with numbers": ("list", numbered_list),
    "Flickr8k.token.txt": ("list", flickr8k),
    "results_20130124.token": ("list", flickr30k),
    "Kaggle's captions.txt": ("captions", kaggle8k),
    "Kaggle's results.csv": ("captions", kaggle30k),
    "COCO's captions_*.json": ("coco", coco),
    "a Hugging Face data set": ("huggingface", huggingface),
}

DEFAULTS = "a list without a header"  # here the default model is trained


def write(folder: Path, name: str, photos: Photos, pictures: dict[str, Image.Image]) -> None:
    folder.mkdir()
    place = LAYOUTS[name][1](folder, photos)
    if not place:
        datasets = pytest.importorskip("datasets", reason="the extra huggingface is missing")
        rows = {"image": [pictures[n] for n in photos], "captions": list(photos.values())}
        features = datasets.Features(
            {"image": datasets.Image(), "captions": datasets.Sequence(datasets.Value("string"))}
        )
        whole = datasets.Dataset.from_dict(rows, features=features)
        start, parts = 0, {}
        for split, size in SPLITS.items():
            parts[split] = whole.select(range(start, start + size))
            start += size
        datasets.DatasetDict(parts).save_to_disk(folder)
        return
    for split, names in by_split(photos).items():
        for one in names:
            target = folder / place.format(split=split) / one
            target.parent.mkdir(parents=True, exist_ok=True)
            pictures[one].save(target)


# -- the hour


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_first_hour(
    name: str, drawn: tuple[Photos, dict[str, Image.Image]], tmp_path: Path
) -> None:
    write(tmp_path / "my photos", name, *drawn)
    hour = Hour(tmp_path)
    assert "datasets" in hour.run("simgrad --help")

    found = hour.run("simgrad datasets 'my photos'")
    assert f"layout {LAYOUTS[name][0]}" in found
    assert "problems    none" in found
    ready = hour.run(hour.next(found, "features"))

    hour.run("simgrad train --help")
    train = hour.next(ready, "train") + " --epochs 3"
    if name != DEFAULTS:
        train += (
            " --model 'vse++(dimension=64, word_dimension=32)'"  # most of the time is the model's
        )
    runs = []
    for more in ("", " --objective nt-xent"):
        trained = hour.run(train + more)
        runs.append(hour.next(trained, "report").split(maxsplit=2)[2])

    compared = hour.run(hour.next(trained, "evaluate").replace("ANOTHER", runs[0]))
    assert "rsum" in compared
    table = (tmp_path / "table.tex").read_text(encoding="utf-8")
    assert r"\toprule" in table
    assert "B - A" in table

    assert "report.html" in hour.run(hour.next(trained, "report"))
    hits = hour.run(hour.next(trained, "search").replace("some words", "a red heart"))
    sure = re.search(r"^ +1 +\d+% +-?\d\.\d+ ", hits, re.MULTILINE)
    assert sure or "no probabilities: " in hits
    if f" {SPLITS['val']} " in found:  # the data names splits: there is enough to learn from
        assert sure, hits
    in_python(tmp_path, [shlex.split(run)[0] for run in runs])


def in_python(folder: Path, paths: list[str]) -> None:
    """The same without a command."""
    features = next((folder / "features").iterdir())
    dataset = simgrad.data.open_dataset(folder / "my photos", features=features)
    assert "train" in repr(dataset)
    recipe = simgrad.Recipe(model="vse++(dimension=32)", objective="triplet", epochs=1)
    run = simgrad.train(recipe, folder / "mine", dataset=dataset, quiet=True)
    assert run.test["rsum"] > 0
    assert "<svg" in run.plot()._repr_html_()
    assert "a red heart" in run.show("a red heart")._repr_html_()
    ranks = [simgrad.Run.open(folder / path).ranks() for path in (*paths, "mine")]
    metrics = [simgrad.evaluation.metrics_of(one) for one in ranks]
    assert "R@1" in str(metrics[0])
    assert "rsum" in str(simgrad.compare(metrics[0], metrics[2]))
