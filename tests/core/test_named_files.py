"""A file that a user named is replaced only by a newer one of its kind."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from simgrad.analysis.drawing import save_figure
from simgrad.cli.tables import write_rows
from simgrad.core.errors import InputError
from simgrad.core.named_files import refuse_foreign, write_named_json, write_named_tables
from simgrad.core.tables import TableFile
from simgrad.data.log import Log
from simgrad.retriever.opening import open as open_model
from simgrad.retriever.retriever import Retriever
from simgrad.retriever.vector_files import write_vectors

ROWS = [{"objective": "nt-xent", "rsum": 1.5}]
TABLE = TableFile(("", "rsum"), (("a", "1.5"),), "of all")


def drawn(path: Path) -> None:
    from matplotlib.figure import Figure

    save_figure(Figure(), path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        *((f"rows{suffix}", lambda path: write_rows(path, ROWS)) for suffix in (".json", ".csv")),
        ("rows.parquet", lambda path: write_rows(path, ROWS)),
        ("one.json", lambda path: write_named_json(path, ROWS[0])),
        *(
            (f"table{suffix}", lambda path: write_named_tables(path, [TABLE]))
            for suffix in (".md", ".tex", ".html")
        ),
        *((f"picture{suffix}", drawn) for suffix in (".png", ".svg", ".pdf")),
        ("skip.json", lambda path: Log().write(path, [])),
    ],
)
def test_what_is_not_ours_stays(name: str, write: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / name
    for theirs in (b"my notes of ten years, of simgrad and rsum too\n", b"\x89PNG\r\n\x1a\n" * 9):
        path.write_bytes(theirs)
        with pytest.raises(InputError, match=f"{name}: there is another kind of file already"):
            write(path)
        assert path.read_bytes() == theirs
    path.write_bytes(b"")  # of nobody
    write(path)
    first = path.stat().st_ino, path.read_bytes()
    write(path)  # our own is replaced
    assert path.stat().st_ino != first[0]
    assert path.stat().st_size == len(first[1])


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name a file in it"):
        refuse_foreign(tmp_path, "simgrad")


def test_our_own_json_is_known_wherever_its_names_are_and_however_written(tmp_path: Path) -> None:
    many = list(range(40_000))
    for value in ({"first": many, "between": 1, "last": many}, {'a "b"': 1, "c\\d": 2, "é": 3}):
        path = tmp_path / "own.json"
        path.unlink(missing_ok=True)
        write_named_json(path, value)
        write_named_json(path, value)


def test_a_mark_at_the_end_of_a_large_file_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 200_000 + b"Written by simgrad")
    assert refuse_foreign(path, "Written by simgrad") == path
    with pytest.raises(InputError, match="another kind"):
        refuse_foreign(path, "Written by simgrad", start="y")


@pytest.fixture
def model(tmp_path: Path) -> Retriever:
    (tmp_path / "own.py").write_text(
        "import numpy\n\n"
        "def texts(items):\n    return numpy.ones((len(items), 4))\n\nimages = texts\n"
    )
    (tmp_path / "lines.txt").write_text("a dog\n")
    return open_model(f"python(file={tmp_path / 'own.py'})", device="cpu")


@pytest.mark.parametrize("place", ["np.save", "write_json"])
def test_vectors_whose_writer_was_killed_are_written_again(
    model: Retriever, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    words = model, tmp_path / "lines.txt", tmp_path / "v.npy"
    with monkeypatch.context() as at:
        at.setattr(f"simgrad.retriever.vector_files.{place}", killed)
        with pytest.raises(KeyboardInterrupt):
            write_vectors(*words)
    assert write_vectors(*words).ids == ["0"]
    assert (tmp_path / "v.npy").is_file()


def test_vectors_replace_vectors_alone(model: Retriever, tmp_path: Path) -> None:
    for name in ("v.npy", "v.parquet"):
        path = tmp_path / name
        np.save(tmp_path / "theirs.npy", np.ones(3))
        path.write_bytes((tmp_path / "theirs.npy").read_bytes())
        with pytest.raises(InputError, match="another kind"):
            write_vectors(model, tmp_path / "lines.txt", path)
        path.unlink()
        for _ in range(2):
            write_vectors(model, tmp_path / "lines.txt", path)
    (tmp_path / "w.json").write_text("{}")  # what would lie beside w.npy
    with pytest.raises(InputError, match=r"w.json: there is another"):
        write_vectors(model, tmp_path / "lines.txt", tmp_path / "w.npy")
