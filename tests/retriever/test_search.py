"""Search: exact, in line with evaluation, incremental over folders, clear about what it cannot."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from simgrad.cli.program import main
from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.retriever.embeddings import place_of
from simgrad.retriever.folder import folder_embeddings
from simgrad.retriever.opening import open_folder
from simgrad.retriever.search import Searcher, ask
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run, write_info
from simgrad.search.approximate import available
from simgrad.training import train
from tests.processes import at_once
from tests.retriever.conftest import DATA


@pytest.mark.skipif(not available(), reason="needs the extra: pip install 'simgrad[faiss]'")
def test_an_index_named_by_the_user(runs: dict[str, Path], searcher: Searcher) -> None:
    assert searcher.images is not None
    assert searcher.images.note == ""  # exact below a million
    named = Searcher(open_folder(runs["nt"]), index="IVF4,Flat")
    found, wanted = named.sentence("a red heart", 5), searcher.sentence("a red heart", 5)
    assert [note for note in found.notes if "FAISS IVF4,Flat with nprobe=" in note]
    assert [note for note in found.notes if "of the 10 best of exact search (200 queries" in note]
    assert found.images[0].score <= wanted.images[0].score
    place = place_of(named.retriever)
    kept = list(place.glob("*/images-*.faiss"))
    assert len(kept) == 1
    row = named.row(3, 5)
    assert any("FAISS" in note for note in row.notes)
    with pytest.raises(InputError, match="`index=nonsense`: not a factory string of FAISS"):
        Searcher(open_folder(runs["nt"]), index="nonsense").sentence("a red heart")
    with pytest.raises(InputError, match="`index=IVF70,Flat`: 70 cells for 60 vectors"):
        Searcher(open_folder(runs["nt"]), index="IVF70,Flat").sentence("a red heart")


def test_ranks_agree_with_evaluation(searcher: Searcher, runs: dict[str, Path]) -> None:
    from simgrad.runs.run import Run

    assert searcher.split is not None
    ranks = Run.open(runs["nt"]).ranks()
    for row in range(0, searcher.split.num_captions, 17):
        found = searcher.sentence(searcher.split.captions[row], searcher.split.num_images).images
        own = int(searcher.split.image_of_caption[row])
        assert [hit.row for hit in found].index(own) + 1 == ranks.t2i[row]


def test_a_picture_of_the_data_is_recognised(searcher: Searcher) -> None:
    assert searcher.split is not None
    assert searcher.split.pictures is not None
    picture = searcher.split.pictures.picture(9)
    found = searcher.picture(picture.resize((150, 150)), "mine.png", 60)
    assert "scene" in found.notes[0]
    own = {int(c) for c in searcher.split.captions_of(9)}
    assert {hit.row for hit in found.captions if hit.right} >= own & {h.row for h in found.captions}
    assert 9 not in [hit.row for hit in found.images]
    assert found.captions == searcher.row(9, 60).captions


def test_another_picture_is_refused_with_the_reason(searcher: Searcher) -> None:
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8)
    with pytest.raises(InputError, match="the data's own pictures, not with another one"):
        searcher.picture(Image.fromarray(noise), "noise.png")


@pytest.mark.parametrize(
    ("text", "said"), [("", "empty"), ("  ", "empty"), ("word " * 400, "characters")]
)
def test_sentences_that_do_not_fit(searcher: Searcher, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        searcher.sentence(text)


def test_odd_sentences_are_answered(searcher: Searcher) -> None:
    for text in ("🦆", "\u202eabc", "\0", "word " * 150, "\ud800"):
        assert searcher.sentence(text, 3).searched_images == 60
    zeppelin = searcher.sentence("a zeppelin", 1)
    assert len(zeppelin.images) == 1
    assert searcher.sentence("zeppelin").images == []  # nobody knows what was ranked
    assert zeppelin.notes == ("not in the model's vocabulary: zeppelin",)


def test_embeddings_are_kept_and_damage_is_mended(runs: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "copy"
    shutil.copytree(runs["nt"], run, ignore=shutil.ignore_patterns("search"))
    first = Searcher(open_folder(run)).sentence("a red heart", 5)
    kept = next(run.glob("search/*/test-*/images.vectors.npy"))
    before = kept.stat().st_mtime_ns
    assert Searcher(open_folder(run)).sentence("a red heart", 5).images == first.images
    assert kept.stat().st_mtime_ns == before
    kept.write_bytes(kept.read_bytes()[:100])
    assert Searcher(open_folder(run)).sentence("a red heart", 5).images == first.images
    assert kept.stat().st_size > 1000


def test_all_photos_are_searched_and_what_was_embedded_is_used_again(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    run = tmp_path / "copy"
    shutil.copytree(runs["nt"], run, ignore=shutil.ignore_patterns("search"))
    of_test = Searcher(open_folder(run), "test").sentence("a red heart", 60)
    reported: list[tuple[int, int]] = []
    model = open_folder(run)
    searcher = model.searcher(report=lambda done, total: reported.append((done, total)))
    found = ask(searcher, "a red heart", 400)
    assert found.searched_images == 400
    assert reported[-1] == (340, 400)  # train and val: test was there
    assert not list(run.glob("search/*/*/captions.json"))  # nobody asked for captions
    scores = {hit.name: hit.score for hit in found.images}
    assert {hit.name: hit.score for hit in of_test.images}.items() <= scores.items()
    name = searcher.split.image_names[350]  # type: ignore[union-attr]
    by_picture = ask(searcher, name, 5)
    assert by_picture.searched_captions == searcher.split.num_captions  # type: ignore[union-attr]
    expected = model.similarities("test").scores.select(
        torch.tensor([10]), torch.arange(len(model.split("test").captions))
    )
    own = {hit.captions[0]: hit.score for hit in ask(searcher, name, 400).captions}
    row = next(iter(expected.blocks()))[2][0]
    for caption, score in zip(model.split("test").captions, row.tolist(), strict=True):
        if caption in own:
            assert own[caption] == pytest.approx(score, abs=1e-5)


def test_no_flipped_bit_changes_an_answer(runs: dict[str, Path], tmp_path: Path) -> None:
    """Whatever is damaged in what search keeps, the answer is that of before."""
    run = tmp_path / "copy"
    shutil.copytree(runs["nt"], run, ignore=shutil.ignore_patterns("search"))
    picture = Searcher(open_folder(run)).split.pictures.picture(3)  # type: ignore[union-attr]

    def ask() -> tuple[object, object]:
        searcher = Searcher(open_folder(run))
        by_picture = searcher.picture(picture, "mine.png", 5)
        return searcher.sentence("a red heart", 5).images, (by_picture.captions, by_picture.images)

    before = ask()
    random = np.random.default_rng(0)
    files = [p for p in run.rglob("search/**/*") if p.suffix in (".json", ".npy")]
    assert len(files) >= 6
    for file in files:
        whole = bytearray(file.read_bytes())
        whole[random.integers(len(whole))] ^= 1 << int(random.integers(8))
        file.write_bytes(whole)
        assert ask() == before, file.name


def test_an_index_of_other_data_is_not_used(runs: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "copy"
    shutil.copytree(runs["nt"], run, ignore=shutil.ignore_patterns("search"))
    searcher = Searcher(open_folder(run))
    searcher.sentence("a red heart", 1)
    folder = next(run.glob("search/*/test-*/"))
    fewer = "scenes(train=300, val=40, test=20, features=global)"
    with pytest.warns(UserWarning, match="not what it was trained on"):
        other = Searcher(open_folder(run, data=fewer))
    assert other.sentence("a red heart", 30).searched_images == 20
    # An index that carries the right name but was made from something else is made anew.
    stolen = next(p for p in run.glob("search/*/test-*/") if p != folder)
    shutil.rmtree(folder)
    shutil.copytree(stolen, folder)
    assert Searcher(open_folder(run)).sentence("a red heart", 70).searched_images == 60


def test_a_bare_checkpoint_searches_the_data_it_is_given(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "imported"
    shutil.copytree(runs["nt"] / "best", bare)
    with pytest.raises(SystemExit) as stopped:
        main(["search", str(bare), "a red heart"])
    assert stopped.value.code == 2
    assert "--data" in capsys.readouterr().err
    for folder, more in ((bare, ["--data", DATA]), (runs["nt"], [])):
        with pytest.raises(SystemExit):
            main(["search", str(folder), "a red heart", "--top", "3", "--json", *more])
    asked = capsys.readouterr().out
    first, second = asked.split("\n}\n", 1)
    found = [json.loads(text)["images"] for text in (first + "\n}", second)]
    assert found[0] == found[1]


def test_two_processes_at_once(runs: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "copy"
    shutil.copytree(runs["nt"], run, ignore=shutil.ignore_patterns("search"))
    command = ("search", str(run), "a star", "--json")
    answers = [json.loads(told.stdout) for told in at_once(command, command)]
    assert answers[0]["images"] == answers[1]["images"]
    assert not list(run.rglob("*.tmp"))


# -- folders, with a run on features whose network is known


@pytest.fixture(scope="module")
def photo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    data = "scenes(train=24, val=6, test=8)"
    options = ["--output", str(folder / "features"), "--device", "cpu", "--workers", "1"]
    with pytest.raises(SystemExit) as stopped:
        main(["features", data, *options])
    assert stopped.value.code == 0
    recipe = Recipe(
        data=data,
        features=str(folder / "features"),
        model="vse++(dimension=16, word_dimension=8)",
        objective="nt-xent",
        epochs=1,
        device="cpu",
    )
    return train(recipe, folder / "run", quiet=True).path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    split = open_dataset("scenes(train=24, val=6, test=8)").split("test")
    assert split.pictures is not None
    (tmp_path / "pics" / "deep").mkdir(parents=True)
    for row in range(4):
        name = f"pics/{row}.png" if row else "pics/deep/0.png"
        split.pictures.picture(row).save(tmp_path / name)
    (tmp_path / "pics" / "broken.jpg").write_bytes(b"not a picture")
    (tmp_path / "pics" / "notes.txt").write_text("no picture")
    split.pictures.picture(5).save(tmp_path / "outside.png")
    (tmp_path / "pics" / "link.png").symlink_to(tmp_path / "outside.png")
    return tmp_path / "pics"


def test_a_folder_is_embedded_once_and_then_in_part(photo_run: Path, pictures: Path) -> None:
    retriever = open_folder(photo_run)
    first = folder_embeddings(retriever, pictures)
    assert list(first.names) == ["1.png", "2.png", "3.png", "deep/0.png"]
    assert list(first.skipped) == ["broken.jpg"]
    assert first.added == 5
    assert folder_embeddings(retriever, pictures).added == 0
    (pictures / "2.png").unlink()
    (pictures / "1.png").rename(pictures / "renamed.png")
    (pictures / "3.png").touch()
    shutil.copy(pictures.parent / "outside.png", pictures / "new.png")
    again = folder_embeddings(retriever, pictures)
    assert list(again.names) == ["3.png", "deep/0.png", "new.png", "renamed.png"]
    assert again.added == 1
    old, new = first.encoded, again.encoded
    assert old is not None
    assert old.vectors is not None
    assert new is not None
    assert new.vectors is not None
    assert torch.equal(new.vectors[[0, 1, 3]], old.vectors[[2, 3, 0]])
    fresh = retriever.encode_pictures([_open(pictures / name) for name in again.names])
    assert fresh.vectors is not None
    assert torch.allclose(new.vectors, fresh.vectors, atol=1e-5)
    kept = next(p for p in place_of(retriever).glob("folder-*") if p.is_dir())
    assert len(list(kept.glob("*.npy"))) == 1  # the arrays of earlier states are gone


def _open(path: Path) -> object:
    from simgrad.data.cutting import open_picture

    return open_picture(path, path.name, least=512)


def test_search_a_folder(
    photo_run: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    searcher = Searcher(open_folder(photo_run), "test", pictures)
    found = searcher.sentence("a red heart", 10)
    assert {hit.name for hit in found.images} == {"1.png", "2.png", "3.png", "deep/0.png"}
    assert {hit.path for hit in found.images} == {str(pictures / hit.name) for hit in found.images}
    like = searcher.picture(_open(pictures / "2.png"), "2.png", 3)  # type: ignore[arg-type]
    assert like.images[0].name == "2.png"
    assert like.images[0].score == pytest.approx(1, abs=1e-4)
    with pytest.raises(SystemExit) as stopped:
        main(["search", str(photo_run), str(pictures / "2.png"), "--folder", str(pictures)])
    assert stopped.value.code == 0
    assert os.path.relpath(pictures / "2.png") in capsys.readouterr().out.replace(
        str(pictures / "2.png"), os.path.relpath(pictures / "2.png")
    )


def test_changed_weights_of_the_network_are_noticed(photo_run: Path, tmp_path: Path) -> None:
    run, features = tmp_path / "run", tmp_path / "features"
    shutil.copytree(photo_run, run)
    shutil.copytree(photo_run.parent / "features", features)
    header = json.loads((features / "features.json").read_text())
    header.pop("sha256")  # edited on purpose
    (features / "features.json").write_text(json.dumps({**header, "weights_sha256": "0" * 64}))
    recipe = (run / "recipe.yaml").read_text()
    old = str(photo_run.parent / "features")
    (run / "recipe.yaml").write_text(recipe.replace(old, str(features)))
    write_info(run, Run(run).info)
    with pytest.raises(InputError, match="other weights"):
        open_folder(run).reader()


def test_command_prints_and_errs_in_plain_words(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str], easy: tuple[str, int]
) -> None:
    for words, code, said in (
        ([str(runs["nt"]), easy[0], "--top", "2", "--split", "test"], 0, "✓"),
        ([str(runs["nt"]), easy[0]], 0, "best of 400 pictures"),
        ([str(runs["nt"]), easy[0], "--sure", "1", "--split", "test"], 0, "Nothing fits"),
        (
            [str(runs["nt"]), easy[0]],
            0,
            "(no probabilities: how sure a hit is was learned among 40",
        ),
        ([str(runs["nt"]), "ein Hund im Gras"], 0, "(no hits: the model knows none of these words"),
        ([str(runs["nt"]), "x", "--sure", "7"], 2, "--sure"),
        ([str(runs["nt"]), "scene-0-2000000003"], 0, "like it"),
        ([str(runs["nt"]), "missing.jpg"], 2, "no such picture"),
        ([str(runs["nt"]), "x", "--split", "none"], 2, "no split 'none'"),
        ([str(runs["nt"]), "x", "--top", "0"], 2, "--top"),
        ([str(runs["nt"]), "x", "--folder", "/none"], 2, "no such folder"),
        ([str(runs["nt"].parent), "x"], 2, "neither a run"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["search", *words])
        assert stopped.value.code == code
        printed = capsys.readouterr()
        assert said in printed.out + printed.err
        assert "\x1b" not in printed.out  # no pictures in a pipe


def test_what_can_be_no_query_is_refused(searcher: Searcher) -> None:
    with pytest.raises(InputError, match=r"search for what.* not 3"):
        ask(searcher, 3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"`top` is 1 to .* not '3'"):
        ask(searcher, "a dog", "3")  # type: ignore[arg-type]
