"""What pages show of a command is what it prints: the files are made here, the command is run."""

import re
import shlex
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import simgrad
from simgrad.cli.program import main
from simgrad.retriever.vector_files import write_vectors
from tests.data import layout_writers
from tests.models.test_embedders import text_model

__all__ = ["text_model"]

DOCS = Path(__file__).parents[1] / "docs"
COLOURS = '''"""Pictures by their mean colour, sentences by the colours that they name."""

import numpy as np

NAMES = ("red", "green", "blue")


def texts(sentences):
    return np.array([[1.0 + 9 * (name in one) for name in NAMES] for one in sentences])


def images(pictures):
    return np.array([np.asarray(one).reshape(-1, 3).mean(0) for one in pictures])
'''


def shown(page: str, capsys: pytest.CaptureFixture[str], **places: Any) -> None:
    """Run the page's console block, in which a name in capitals stands for one of `places`."""
    text = (DOCS / page).read_text(encoding="utf-8")
    block = re.search(r"^```console\n\$ simgrad (?!evaluate)(.+?)\n(.+?)^```", text, re.M | re.S)
    assert block is not None, f"docs/{page} shows no command with its output"
    words = block[1]
    for name, value in places.items():
        words = words.replace(name, str(value))
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(words))
    assert not ended.value.code
    said = [line.rstrip() for line in capsys.readouterr().out.strip().splitlines()]
    assert said == [line.rstrip() for line in block[2].strip().splitlines()]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "cache"))


def test_vectors_by_a_sentence_transformer(
    text_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real library, with a small model."""
    Path("captions.txt").write_text("a red heart\ntwo blue stars\n")
    shown("models.md", capsys, FOLDER=text_model)
    assert Path("vectors.parquet").is_file()


def test_vectors_in_a_vector_database(text_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lines of the page, with the real LanceDB."""
    pytest.importorskip("lancedb", reason="lancedb is not installed")
    Path("captions.txt").write_text("two blue stars\na red heart\n")
    write_vectors(
        simgrad.open(text_model, device="cpu"), Path("captions.txt"), Path("vectors.parquet")
    )
    page = (DOCS / "models.md").read_text(encoding="utf-8")
    lines = re.search(r"((?:    .+\n)+)", page[page.index("Into a vector database") :])
    assert lines is not None
    exec(textwrap.dedent(lines[1]).replace("FOLDER", str(text_model)), {})
    assert capsys.readouterr().out == "a red heart\n"


def test_search_by_an_index(capsys: pytest.CaptureFixture[str]) -> None:
    """The real FAISS, and functions of a Python file."""
    pytest.importorskip("faiss", reason="the extra `faiss` is not installed")
    Path("colours.py").write_text(COLOURS)
    Path("photos").mkdir()
    drawn = np.random.default_rng(0)
    for number in range(200):
        colour = drawn.integers(0, 256, 3)
        Image.new("RGB", (32, 24), tuple(map(int, colour))).save(f"photos/{number:03}.png")
    Image.new("RGB", (32, 24), (250, 10, 10)).save("photos/rose.png")
    shown("serve.md", capsys)


def test_shards(capsys: pytest.CaptureFixture[str]) -> None:
    layout_writers.webdataset(Path("shards"))
    shown("data.md", capsys)


def test_shards_as_the_webdataset_library_reads_them() -> None:
    """The same pictures and captions, by the library itself."""
    library = pytest.importorskip("webdataset", reason="webdataset is not installed")
    from simgrad.data import open_dataset

    layout_writers.webdataset(Path("shards"))
    train = open_dataset("shards").split("train")
    assert train.pictures is not None
    ours = {
        name: np.asarray(train.pictures.picture(row)) for row, name in enumerate(train.image_names)
    }
    shards = [str(file) for file in sorted(Path("shards").glob("train-*.tar"))]
    theirs = {
        sample["__key__"]: np.asarray(sample[next(k for k in sample if k in ("jpg", "png"))])
        for sample in library.WebDataset(shards, shardshuffle=False, empty_check=False).decode(
            "pil"
        )
    }
    assert theirs.keys() == ours.keys()
    assert all((theirs[name] == ours[name]).all() for name in ours)
