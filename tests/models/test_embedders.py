"""Encoders of other libraries through simgrad.open: the same vectors as the library makes."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import simgrad
from simgrad.cli.program import main
from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.models.embedders import sentence_transformer
from simgrad.runs.recipe import Recipe
from simgrad.training import train

DATA = "scenes(train=40, val=20, test=20, features=pixels)"
SMALL = "clip(source=none, dimension=16, width=16, layers=1, heads=2, size=32, patch=16)"
TEXTS = ["a red heart", "two blue stars"]


def colours(items: list[Any]) -> Any:
    """Pictures by their mean colour, sentences by the colours that they name."""
    names = ("red", "green", "blue")
    if isinstance(items[0], str):
        return np.array([[1.0 + 9 * (name in text) for name in names] for text in items])
    return np.array([np.asarray(picture).reshape(-1, 3).mean(0) for picture in items])


def command(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert not ended.value.code


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small SentenceTransformer, untrained; folders of earlier versions are refused."""
    library = pytest.importorskip("sentence_transformers", minversion="6.0")
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("st")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "red", "blue", "heart", "two", "stars"]
    (folder / "vocab.txt").write_text("\n".join(words))
    base = folder / "bert"
    config = BertConfig(vocab_size=10, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=16)  # fmt: skip
    torch.manual_seed(0)
    BertModel(config).save_pretrained(base)
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(base)
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    word = Transformer(str(base))
    made = library.SentenceTransformer(modules=[word, Pooling(16)], device="cpu")
    made.save(str(folder / "saved"))
    return folder / "saved"


def test_a_sentence_transformer_by_folder_spec_and_object(text_model: Path) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(text_model), device="cpu")
    wanted = unit(theirs.encode(TEXTS))
    for given in (text_model, f"sentence-transformers(source={text_model})", theirs):
        opened = simgrad.open(given, device="cpu")
        vectors = opened.encode(TEXTS).vectors
        assert vectors is not None
        assert np.allclose(vectors.numpy(), wanted, atol=1e-6)
    with pytest.raises(InputError, match="reads no pictures"):
        simgrad.open(text_model, data=DATA, device="cpu").evaluate("test")


@pytest.mark.parametrize("kind", ["sentence-transformers", "transformers", "onnx"])
def test_a_source_that_is_not_there_is_said(kind: str, tmp_path: Path) -> None:
    for given, said in (("", "no model is named"), (f"source={tmp_path / 'x'}", "no such folder")):
        with pytest.raises(InputError, match=said):
            simgrad.open(f"{kind}({given})", device="cpu").encode(TEXTS)


def test_a_source_in_the_home_folder(text_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(text_model.parent))
    opened = simgrad.open(f"sentence-transformers(source=~/{text_model.name})", device="cpu")
    assert opened.encode(TEXTS).vectors is not None


def test_a_dual_encoder_of_transformers(tmp_path: Path) -> None:
    run = tmp_path / "run"
    recipe = Recipe(data=DATA, epochs=1, batch=20, model=SMALL)
    train(recipe, run, quiet=True)
    ours = simgrad.open(run, device="cpu")
    ours.export(tmp_path / "clip", "transformers")
    theirs = simgrad.open(f"transformers(source={tmp_path / 'clip'})", data=DATA, device="cpu")
    same = simgrad.open(tmp_path / "clip", data=DATA, device="cpu")
    assert type(same) is type(theirs)
    wanted, found = ours.encode(TEXTS).vectors, theirs.encode(TEXTS).vectors
    assert wanted is not None
    assert found is not None
    assert torch.allclose(wanted, found, atol=1e-4)
    assert theirs.evaluate("test").rsum == pytest.approx(ours.evaluate("test").rsum, abs=15)


@pytest.fixture(scope="module")
def onnx_pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run and its export."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    folder = tmp_path_factory.mktemp("pair")
    train(Recipe(data=DATA, epochs=1, batch=20, model=SMALL), folder / "run", quiet=True)
    simgrad.open(folder / "run", device="cpu").export(folder / "onnx", "onnx")
    return folder


def test_an_onnx_pair(onnx_pair: Path) -> None:
    ours = simgrad.open(onnx_pair / "run", device="cpu")
    theirs = simgrad.open(onnx_pair / "onnx", data=DATA, device="cpu")
    assert theirs.evaluate("test").rsum == pytest.approx(ours.evaluate("test").rsum, abs=1e-6)
    alone = [torch.as_tensor(one.encode(TEXTS[:1]).vectors) for one in (theirs, ours)]
    torch.testing.assert_close(*alone, atol=1e-5, rtol=1e-4)  # it was traced with two


@pytest.mark.parametrize("value", [None, "x", -1, 1.5, [], [10**9], {}, "absent"])
@pytest.mark.parametrize("field", ["images", "shape", "cut", "longest", "captions", "tokenizer"])
def test_a_reading_that_lies_is_refused_or_read(
    field: str, value: Any, onnx_pair: Path, tmp_path: Path
) -> None:
    told = json.loads((onnx_pair / "onnx" / "reading.json").read_text())
    if value == "absent":
        del told[field]
    else:
        told[field] = value
    folder = tmp_path / "lie"
    shutil.copytree(onnx_pair / "onnx", folder)
    (folder / "reading.json").write_text(json.dumps(told))
    opened, refusals = simgrad.open(folder, device="cpu"), []
    for items in (TEXTS, [Image.new("RGB", (40, 30))]):
        try:
            assert opened.encode(items).vectors is not None
        except InputError as error:
            refusals.append(str(error))
    assert all(str(folder) in told for told in refusals)
    assert refusals or (field, value) in {("captions", "absent"), ("longest", None)}


@pytest.mark.parametrize("text", ["[]", "3", "{", '"x"'])
def test_a_reading_that_is_no_object(text: str, onnx_pair: Path, tmp_path: Path) -> None:
    folder = tmp_path / "lie"
    shutil.copytree(onnx_pair / "onnx", folder)
    (folder / "reading.json").write_text(text)
    with pytest.raises(InputError, match=r"reading\.json"):
        simgrad.open(folder, device="cpu").encode(TEXTS)


def test_a_graph_that_asks_for_something_else_is_named(onnx_pair: Path, tmp_path: Path) -> None:
    folder = tmp_path / "lie"
    shutil.copytree(onnx_pair / "onnx", folder)
    shutil.copy(folder / "image.onnx", folder / "captions.onnx")
    with pytest.raises(InputError, match=r"captions\.onnx: cannot be run"):
        simgrad.open(folder, device="cpu").encode(TEXTS)


def test_a_python_function_is_evaluated_mined_and_searched(tmp_path: Path) -> None:
    opened = simgrad.open(colours, data=DATA, device="cpu")
    split = opened.dataset.split("test")
    assert split.pictures is not None
    images = unit(colours([split.pictures.picture(row) for row in range(20)]))
    wanted = simgrad.evaluate(images, unit(colours(list(split.captions))), split.image_of_caption)
    assert opened.evaluate("test").rsum == pytest.approx(wanted.rsum)
    assert opened.mine(tmp_path / "lists", depth=3).t2i.shape == (200, 3)
    scores = images @ unit(colours(["a red heart"]))[0]
    found = opened.search("a red heart", 3, split="test")
    assert found.images[0].score == pytest.approx(float(scores.max()), abs=1e-5)


def test_a_python_file_in_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = f"from {__name__} import colours\ntexts = images = colours\n"
    (tmp_path / "mine.py").write_text(source)
    spec = f"python(file={tmp_path / 'mine.py'})"
    command(["evaluate", "--model", spec, "--data", DATA, "--split", "test", "--device", "cpu"])
    assert "rsum" in capsys.readouterr().out
    command(["evaluate", spec, "--data", DATA, "--split", "test", "--device", "cpu"])
    command(
        [
            "search",
            "--model",
            spec,
            "--data",
            DATA,
            "a red heart",
            "--split",
            "test",
            "--device",
            "cpu",
        ]
    )
    assert "best of 20 pictures" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda items: [[1.0]], r"shape \(1, 1\) for 2 items"),
        (lambda items: [[float("nan")]] * len(items), "NaN or infinity in the vector of item 0"),
        (lambda items: ["x"] * len(items), "gave no array of numbers"),
    ],
)
def test_a_function_that_gives_something_else(function: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        simgrad.open(function, device="cpu").encode(TEXTS)


def test_code_of_a_model_is_not_run(text_model: Path, tmp_path: Path) -> None:
    """modules.json names a class in a file of the folder."""
    folder, mark = tmp_path / "theirs", tmp_path / "ran"
    shutil.copytree(text_model, folder)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "evil.Evil"
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "evil.py").write_text(f"open({str(mark)!r}, 'w')\nclass Evil: pass\n")
    with pytest.raises(InputError, match="theirs"):
        simgrad.open(folder, device="cpu").encode(TEXTS)
    assert not mark.exists()


@pytest.mark.parametrize("version", ["5.0.0", "5.7.0", "5.8.0.dev0"])
def test_versions_that_run_code_of_a_folder_load_nothing(
    version: str, text_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 6.0 a class of a local folder was imported, whatever trust_remote_code said."""
    import sentence_transformers

    theirs = sentence_transformers.SentenceTransformer(str(text_model), device="cpu")
    monkeypatch.setattr(sentence_transformers, "__version__", version)
    sentence_transformer._load.cache_clear()
    with pytest.raises(
        InputError, match=rf"{version} would run code .* 'sentence-transformers>=6'"
    ):
        simgrad.open(f"sentence-transformers(source={text_model})", device="cpu").encode(TEXTS)
    assert simgrad.open(theirs, device="cpu").encode(TEXTS).vectors is not None


@pytest.mark.parametrize("suffix", [".parquet", ".npy"])
def test_embed_writes_vectors_and_what_made_them(
    tmp_path: Path, suffix: str, text_model: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    (tmp_path / "lines.txt").write_text("\n".join(TEXTS))
    out = tmp_path / f"vectors{suffix}"
    command(["embed", str(text_model), str(tmp_path / "lines.txt"), "--output", str(out),
          "--device", "cpu"])  # fmt: skip
    wanted = unit(SentenceTransformer(str(text_model), device="cpu").encode(TEXTS))
    if suffix == ".npy":
        found, told = np.load(out), json.loads(out.with_suffix(".json").read_text())
    else:
        from pyarrow import parquet

        table = parquet.read_table(out)
        found = np.array(table["embedding"].to_pylist(), np.float32)
        told = json.loads(table.schema.metadata[b"simgrad"])
        assert table["text"].to_pylist() == TEXTS
    assert np.allclose(found, wanted, atol=1e-6)
    assert (told["rows"], told["dimension"], told["kind"]) == (2, 16, "sentences")
    assert len(told["items_hash"]) == 64
    assert simgrad.open(out, out).evaluate().rsum == 600


def test_a_data_set_becomes_vectors_that_heads_are_trained_on(tmp_path: Path) -> None:
    """Both sides, their pairing and splits; and the error that leads there."""
    (tmp_path / "mine.py").write_text(f"from {__name__} import colours\ntexts = images = colours\n")
    spec, out = f"python(file={tmp_path / 'mine.py'})", tmp_path / "vectors.npz"
    with pytest.raises(InputError, match=r'`simgrad embed "python\(...\)" DATA .*vectors.npz`'):
        simgrad.choose(DATA, model=spec, output=tmp_path / "choice")
    out.write_text("of somebody else")
    words = ["embed", spec, DATA, "--output", str(out), "--device", "cpu"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert out.read_text() == "of somebody else"
    out.unlink()
    for _ in range(2):  # its own file is replaced
        command(words)
    opened, made = simgrad.open(spec, data=DATA, device="cpu"), open_dataset(out)
    assert list(made.splits) == list(opened.dataset.splits)
    for name, split in made.splits.items():
        own = opened.dataset.split(name)
        assert (split.captions, split.image_names) == (list(own.captions), list(own.image_names))
        assert np.array_equal(split.image_of_caption, own.image_of_caption)
        sides = (split.features, split.num_images), (split.caption_vectors, split.num_captions)
        for (rows, count), wanted in zip(sides, opened.encode_split(own), strict=True):
            assert rows is not None
            assert wanted.vectors is not None
            assert np.array_equal(rows.rows(np.arange(count)), wanted.vectors.numpy())
    recipe = Recipe(data=str(out), model="light(text=vectors)", epochs=1, batch=20)
    train(recipe, tmp_path / "run", quiet=True)
    archive = np.load(out)
    assert set(archive.files) == {
        "images", "texts", "image_of_caption", "image_ids", "text", "split", "simgrad",
    }  # fmt: skip
    told = json.loads(str(archive["simgrad"]))
    assert (told["images"], told["texts"], told["dimension"]) == (80, 400, 3)


def test_embed_pictures_and_what_is_refused(tmp_path: Path) -> None:
    from simgrad.retriever.vector_files import write_vectors

    opened = simgrad.open(colours, data=DATA, device="cpu")
    pictures = opened.dataset.split("test").pictures
    assert pictures is not None
    (tmp_path / "photos").mkdir()
    for row in range(3):
        pictures.picture(row).save(tmp_path / "photos" / f"{row}.png")
    made = write_vectors(opened, tmp_path / "photos", tmp_path / "x.parquet")
    assert list(made.ids) == ["0.png", "1.png", "2.png"]
    wanted = unit(colours([pictures.picture(row) for row in range(3)]))
    assert np.allclose(made.vectors, wanted, atol=1e-6)
    (tmp_path / "lines.txt").write_text("a dog\n\na cat\n")
    with pytest.raises(InputError, match=r"lines.txt, line 2: empty"):
        write_vectors(opened, tmp_path / "lines.txt", tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"\.parquet or \.npy"):
        write_vectors(opened, tmp_path / "photos", tmp_path / "x.csv")
    with pytest.raises(InputError, match="give a folder of pictures, or a text file"):
        write_vectors(opened, tmp_path / "nothing", tmp_path / "x.npy")
