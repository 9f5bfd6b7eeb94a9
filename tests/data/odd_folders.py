"""Folders as people have them: each is read right, or refused with the nearest layout."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from . import layout_writers as write

# What most of them hold, if it is read right.
USUAL = {
    "a.jpg": ["A dog, a ball and grass .", "Ein Hund läuft"],
    "b.jpg": ['He said "hi", then left .'],
    "c.jpg": ["Two men; one hat | and more"],
}
ROWS = [(name, caption) for name, captions in USUAL.items() for caption in captions]


@dataclass(frozen=True)
class Odd:
    name: str
    make: Callable[[Path], object]  # gives what to open, where that is not the folder
    captions: dict[str, list[str]] | None  # None: it is refused
    layout: str  # as which it is read, or which is named as the nearest
    words: tuple[str, ...] = ()  # what a refusal, or a note, says


CASES: list[Odd] = []


def reads(
    layout: str, captions: dict[str, list[str]] | None = None, *words: str
) -> Callable[[Callable[[Path], object]], None]:
    def add(make: Callable[[Path], object]) -> None:
        CASES.append(
            Odd(make.__name__, make, USUAL if captions is None else captions, layout, words)
        )

    return add


def refuses(nearest: str, *words: str) -> Callable[[Callable[[Path], object]], None]:
    def add(make: Callable[[Path], object]) -> None:
        CASES.append(Odd(make.__name__, make, None, nearest, words))

    return add


def pictures(folder: Path, names: list[str] | None = None) -> None:
    write.write_pictures(folder, list(USUAL) if names is None else names)


def lines(separator: str, rows: list[tuple[str, str]] = ROWS, end: str = "\n") -> str:
    return "".join(f"{name}{separator}{caption}{end}" for name, caption in rows)


def text(folder: Path, name: str, content: str | bytes) -> None:
    data = content if isinstance(content, bytes) else content.encode()
    (folder / name).write_bytes(data)


# -- lists without a header


@reads("list")
def comma_and_blank(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.txt", lines(", "))


@reads("list")
def comma_alone(folder: Path) -> None:
    pictures(folder / "images")
    text(folder, "captions.txt", lines(","))


@reads("list")
def tab(folder: Path) -> None:
    pictures(folder / "images")
    text(folder, "captions.txt", lines("\t"))


@reads("list")
def bar(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.txt", lines(" | "))


@reads("list")
def semicolon(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.csv", lines(";"))


@reads("list")
def blanks_alone(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.txt", lines("   "))


@reads("list")
def colon(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.txt", lines(": "))


@reads("list")
def dash(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.txt", lines(" - "))


@reads("list")
def arrow(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.txt", lines(" -> "))


@reads("list")
def a_separator_of_each_kind(folder: Path) -> None:
    pictures(folder)
    mixed = [lines(s, [row]) for s, row in zip(",;\t|", ROWS, strict=True)]
    text(folder, "captions.txt", "".join(mixed))


@reads("list")
def flickr8k_token(folder: Path) -> None:
    pictures(folder / "Flicker8k_Dataset")
    numbered = [(f"{n}#{k}", c) for n, cs in USUAL.items() for k, c in enumerate(cs)]
    text(folder, "Flickr8k.token.txt", lines("\t", numbered))
    text(folder, "Flickr8k.lemma.token.txt", lines("\t", [(n, "lemma") for n, _ in numbered]))
    text(folder, "ExpertAnnotations.txt", "a.jpg\tb.jpg#0\t1\t1\t2\n")
    text(folder, "CrowdFlowerAnnotations.txt", "a.jpg\tb.jpg#0\t0.5\t1\t1\n")
    for split, name in (("train", "a.jpg"), ("dev", "b.jpg"), ("test", "c.jpg")):
        text(folder, f"Flickr_8k.{split}Images.txt", f"{name}\n")


@reads("list", {"a.jpg": USUAL["a.jpg"]}, "no list of a split")
def flickr8k_token_with_pictures_of_no_split(folder: Path) -> None:
    pictures(folder / "Flicker8k_Dataset")
    rows = [*ROWS[:2], ("b.jpg.1#0", "a name that ends in .1"), ("c.jpg#0", "x")]
    text(folder, "Flickr8k.token.txt", lines("\t", rows))
    text(folder, "Flickr_8k.trainImages.txt", "a.jpg\n")


@reads("list", {"my a.jpg": ["A dog ."], "my b.jpg": ["A cat ."]}, "no list of a split")
def lists_of_names_with_blanks(folder: Path) -> None:
    pictures(folder, ["my a.jpg", "my b.jpg", "my c.jpg"])
    rows = [("my a.jpg", "A dog ."), ("my b.jpg", "A cat ."), ("my c.jpg", "left out")]
    text(folder, "captions.txt", lines("\t", rows))
    text(folder, "train.txt", "my a.jpg\r\nmy b.jpg\r\n")


@reads("list")
def flickr8k_text_beside_its_pictures(folder: Path) -> Path:
    pictures(folder / "Flicker8k_Dataset")
    (folder / "Flickr8k_text").mkdir()
    text(folder / "Flickr8k_text", "Flickr8k.token.txt", lines("\t"))
    return folder / "Flickr8k_text"


@reads("list")
def flickr30k_token(folder: Path) -> None:
    pictures(folder / "flickr30k-images")
    numbered = [(f"{n}#{k}", c) for n, cs in USUAL.items() for k, c in enumerate(cs)]
    text(folder, "results_20130124.token", lines("\t", numbered))


@reads("list")
def the_file_itself(folder: Path) -> Path:
    pictures(folder)
    text(folder, "some words.txt", lines("\t"))
    return folder / "some words.txt"


@reads("list")
def another_name_for_the_list(folder: Path) -> None:
    pictures(folder)
    text(folder, "Bildunterschriften.txt", lines(", "))
    text(folder, "README.txt", "These are my photos.\n")


@reads("list")
def byte_order_mark(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.txt", b"\xef\xbb\xbf" + lines(", ").encode())


@reads("list")
def lines_of_windows(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.txt", lines(", ", end="\r\n"))


@reads("list")
def no_end_of_the_last_line(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.txt", lines(", ").rstrip("\n"))


@reads("list")
def blank_lines_between(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.txt", "\n\n" + lines(", ", end="\n\n"))


@reads("list", {"my dog, 2.jpg": ["A dog .", "Again, a dog ."]})
def blanks_and_commas_in_names(folder: Path) -> None:
    pictures(folder, ["my dog, 2.jpg"])
    text(folder, "captions.txt", "my dog, 2.jpg, A dog .\nmy dog, 2.jpg, Again, a dog .\n")


@reads("list", {"a.jpg": ['"A dog', "A cat"]})
def a_quote_that_is_never_closed(folder: Path) -> None:
    pictures(folder, ["a.jpg"])
    text(folder, "captions.txt", 'a.jpg,"A dog\na.jpg,A cat\n')


@reads("list")
def quoted_where_needed(folder: Path) -> None:
    pictures(folder)
    quoted = [(n, '"' + c.replace('"', '""') + '"') for n, c in ROWS]
    text(folder, "captions.csv", lines(",", quoted))


@reads("list")
def endings_in_capitals(folder: Path) -> None:
    for name in USUAL:
        (folder / name).with_suffix(".JPG").write_bytes(write.picture_bytes(name))
    text(folder, "captions.txt", lines(", "))


@reads("list", {n.replace(".jpg", ".JPG"): c for n, c in USUAL.items()})
def endings_in_capitals_in_the_list(folder: Path) -> None:
    pictures(folder / "Images")
    text(folder, "captions.txt", lines(", ").replace(".jpg", ".JPG"))


@reads("list")
def pictures_in_folders_below(folder: Path) -> None:
    for i, name in enumerate(USUAL):
        pictures(folder / "images" / str(2020 + i), [name])
    text(folder, "captions.txt", lines(", "))


@reads("list", {f"2020/{n}": c for n, c in USUAL.items()})
def folders_in_the_names(folder: Path) -> None:
    pictures(folder / "2020")
    text(folder, "captions.txt", lines(", ", [(f"./2020/{n}", c) for n, c in ROWS]))


@reads("list", {f"2020\\{n}": c for n, c in USUAL.items()})
def folders_of_windows_in_the_names(folder: Path) -> None:
    pictures(folder / "2020")
    text(folder, "captions.txt", lines(", ", [(f"2020\\{n}", c) for n, c in ROWS]))


@reads("list", {"2020/a.jpg": ["the old one"], "2021/a.jpg": ["the new one"]})
def one_name_in_two_folders(folder: Path) -> None:
    pictures(folder / "2020", ["a.jpg"])
    pictures(folder / "2021", ["a.jpg"])
    text(folder, "captions.txt", "2020/a.jpg, the old one\n2021/a.jpg, the new one\n")


@reads("list")
def lists_by_split(folder: Path) -> None:
    pictures(folder / "images")
    for split, name in (("train", "a.jpg"), ("val", "b.jpg"), ("test", "c.jpg")):
        text(folder, f"{split}.txt", lines("\t", [(name, c) for c in USUAL[name]]))


@reads("list")
def utf_16(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.txt", lines(", ").encode("utf-16"))


@refuses("list", "captions.txt", "line 2", "UTF-8", "--fix")
def latin_1(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.txt", lines(", ").encode("latin-1"))


@refuses("", "several files", "one.txt", "two.txt")
def two_lists(folder: Path) -> None:
    pictures(folder)
    text(folder, "one.txt", lines(", "))
    text(folder, "two.txt", lines(", "))


@refuses("list", "3 pictures .jpg", "captions.txt", "A dog,")
def captions_before_names(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.txt", "".join(f"{caption}\t{name}\n" for name, caption in ROWS))


@refuses("list", "names.txt")
def names_alone(folder: Path) -> None:
    pictures(folder)
    text(folder, "names.txt", "a.jpg\nb.jpg\nc.jpg\n")


# -- tables with a header


@reads("captions")
def kaggle_flickr8k(folder: Path) -> None:
    pictures(folder / "Images")
    text(folder, "captions.txt", "image,caption\n" + lines(","))


@reads("captions")
def kaggle_flickr30k(folder: Path) -> None:
    pictures(folder / "flickr30k_images")
    rows = "".join(f"{n}| {k}| {c}\n" for n, cs in USUAL.items() for k, c in enumerate(cs))
    text(folder, "results.csv", "image_name| comment_number| comment\n" + rows)


@reads("captions")
def header_and_semicolons(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.csv", "File;Caption\n" + lines(";"))


@reads("captions")
def header_in_capitals_and_quotes(folder: Path) -> None:
    pictures(folder)
    quoted = [(f'"{n}"', '"' + c.replace('"', '""') + '"') for n, c in ROWS]
    text(folder, "my photos.csv", '"IMAGE","Caption"\r\n' + lines(",", quoted, "\r\n"))


@reads("captions")
def tabs_in_a_csv(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.csv", "\ufefffilename\ttext\n" + lines("\t"))


@reads("captions")
def commas_in_a_tsv(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.tsv", "filename,text\n" + lines(","))


@reads("captions", {"a": USUAL["a.jpg"], "b": USUAL["b.jpg"], "c": USUAL["c.jpg"]})
def names_without_an_ending(folder: Path) -> None:
    pictures(folder / "images")
    rows = [(n.removesuffix(".jpg"), c) for n, c in ROWS]
    text(folder, "captions.csv", "image,caption\n" + lines(",", rows))


@reads("captions", {"a.jpg": ["A dog\nin two lines"], "b.jpg": ["A cat"]})
def a_line_break_in_a_caption(folder: Path) -> None:
    pictures(folder, ["a.jpg", "b.jpg"])
    text(folder, "captions.csv", 'image,caption\na.jpg,"A dog\nin two lines"\nb.jpg,A cat\n')


@reads("captions")
def a_table_for_each_split(folder: Path) -> None:
    pictures(folder / "images")
    for split, name in (("train", "a.jpg"), ("valid", "b.jpg"), ("test", "c.jpg")):
        rows = lines(",", [(name, c) for c in USUAL[name]])
        text(folder, f"captions_{split}.csv", "image,caption\n" + rows)


@reads("captions", None, "hash")
def one_table_called_after_a_split(folder: Path) -> None:
    pictures(folder / "images")
    text(folder, "train.csv", "image,caption\n" + lines(","))


@reads("captions")
def json_lines_of_another_name(folder: Path) -> None:
    pictures(folder)
    rows = [json.dumps({"file_name": n, "text": c}) for n, c in ROWS]
    text(folder, "metadata-2.jsonl", "\n".join(rows))


def columns_in_another_language_written(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.csv", "Bild,Beschreibung\n" + lines(","))


@refuses("captions", "captions.csv", "Bild", "captions(path=")
def columns_in_another_language(folder: Path) -> None:
    columns_in_another_language_written(folder)


@reads("captions")
def columns_in_another_language_told(folder: Path) -> str:
    columns_in_another_language_written(folder)
    return f"captions(path={folder}, image=Bild, caption=Beschreibung)"


@refuses("captions", "captions.csv (empty)")
def an_empty_table(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.csv", "")


@refuses("captions", "no captions")
def a_header_alone(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions.csv", "image,caption\n")


# -- json, pairs, and what is nothing


def coco_as_written(folder: Path) -> None:
    (folder / "annotations").mkdir()
    numbers = {name: i + 7 for i, name in enumerate(USUAL)}
    for split, names in (("train2014", ["a.jpg", "b.jpg"]), ("val2014", ["c.jpg"])):
        pictures(folder / split, names)
        value = {
            "info": {"year": 2014},
            "images": [{"id": numbers[n], "file_name": n, "license": 1} for n in names],
            "annotations": [
                {"id": 100 * numbers[n] + k, "image_id": numbers[n], "caption": c}
                for n in names
                for k, c in enumerate(USUAL[n])
            ],
        }
        text(folder / "annotations", f"captions_{split}.json", json.dumps(value))
        text(folder / "annotations", f"instances_{split}.json", json.dumps({"images": []}))


@reads("coco")
def coco_as_it_comes(folder: Path) -> None:
    coco_as_written(folder)


@reads("coco")
def coco_s_annotations_alone(folder: Path) -> Path:
    coco_as_written(folder)
    return folder / "annotations"


@reads("coco", {"c.jpg": USUAL["c.jpg"]})
def one_file_of_coco(folder: Path) -> Path:
    coco_as_written(folder)
    return folder / "annotations" / "captions_val2014.json"


@reads("karpathy", write.WORLD["train"] | write.WORLD["val"] | write.WORLD["test"])
def karpathy_of_another_name(folder: Path) -> None:
    (write.karpathy(folder) / "dataset_flickr8k.json").rename(folder / "flickr8k_karpathy.json")


@reads("pairs", {"2020/a.JPG": ["A dog"], "b.png": ["A cat", "Again"]})
def pairs_with_capitals(folder: Path) -> None:
    (folder / "2020").mkdir()
    (folder / "2020" / "a.JPG").write_bytes(write.picture_bytes("a.JPG"))
    text(folder / "2020", "a.txt", "A dog\n")
    out = io.BytesIO()
    Image.new("RGB", (12, 8), write.colour("b.png")).save(out, "PNG")
    text(folder, "b.png", out.getvalue())
    text(folder, "b.txt", "A cat\r\nAgain\r\n")


@refuses("pairs", "3 pictures .jpg", "IMAGE.txt")
def pictures_alone(folder: Path) -> None:
    pictures(folder)


@refuses("pairs", "images/ with 3 pictures", "notes.docx")
def pictures_and_a_document(folder: Path) -> None:
    pictures(folder / "images")
    text(folder, "notes.docx", b"PK\x03\x04")


@refuses("precomputed", "train_caps.txt", "SPLIT_ims.npy")
def captions_without_features(folder: Path) -> None:
    text(folder, "train_caps.txt", "a dog\na cat\n")


@refuses("x-vlm", "captions_train.json")
def json_of_an_unknown_shape(folder: Path) -> None:
    pictures(folder)
    text(folder, "captions_train.json", json.dumps(USUAL))


@refuses("", "nothing", "--layouts")
def nothing_at_all(folder: Path) -> None:
    pass


@refuses("", "is in", "photos")
def a_folder_too_high(folder: Path) -> None:
    pictures(folder / "photos")
    text(folder / "photos", "captions.txt", lines(", "))


@refuses("", "PHOTOS.ZIP")
def an_archive(folder: Path) -> None:
    text(folder, "PHOTOS.ZIP", b"PK\x03\x04")
