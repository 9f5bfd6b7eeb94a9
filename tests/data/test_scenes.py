"""The embedded world: deterministic, captions true, meaning exact, features learnable."""

import itertools
import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.data.scenes.captions import CAPTIONS_PER_SCENE, make_captions
from simgrad.data.scenes.dataset import FIRST
from simgrad.data.scenes.meaning import Claim, parse
from simgrad.data.scenes.render import render
from simgrad.data.scenes.truth import describes, thing_code
from simgrad.data.scenes.words import EVERYTHING
from simgrad.data.scenes.world import (
    COLOURS,
    GROUNDS,
    KINDS,
    RELATIONS,
    SIZES,
    TEXTURES,
    Scene,
    Thing,
    make_scene,
    relations,
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "cache"))


def thing(words: str, x: float, y: float) -> Thing:
    size, texture, colour, kind = words.split()
    return Thing(
        KINDS.index(kind), COLOURS.index(colour), SIZES.index(size), TEXTURES.index(texture), x, y
    )


SCENE = Scene(
    GROUNDS.index("grass"),
    (
        thing("large striped red circle", 0.2, 0.2),
        thing("small plain blue star", 0.8, 0.2),
        thing("medium plain red star", 0.8, 0.8),
        thing("small dotted black house", 0.7, 0.75),
    ),
)

TRUE = (
    "a red ball",
    "A crimson disc, on the grass.",
    "there is a big stripy thing in the top left corner",
    "a ball with stripes on the left",
    "two stars",
    "a pair of stars and a ball",
    "exactly one house",
    "several objects in a meadow",
    "four things",
    "two red shapes and a blue star",
    "a ball left of a star",
    "to the left of a blue star is a ball",
    "a star below another star",
    "a red star behind a house",
    "a dotted hut in front of a star and below a tiny star",
    "a ball left of a star and a house",
    "a ball left of a star above a house",
    "a dark hut at the bottom right",
    "on the left a large ball",
    "a ball",
    "a star and a star",
)
FALSE = (
    "a green ball",
    "a red ball on the sand",
    "a dotted ball",
    "a small red ball",
    "a ball on the right",
    "three stars",
    "exactly one star",
    "five things",
    "two red stars",
    "a ball right of a star",
    "a house behind a red star",
    "a blue star behind a house",
    "a bright house",
    "only a ball",
    "a lone house",
    "a star, a star and a star",
    "a ball and a ball",
    "a heart",
    "a ball left of a star below a house",
)


@pytest.mark.parametrize("caption", TRUE)
def test_true_captions(caption: str) -> None:
    assert describes(caption, SCENE)


@pytest.mark.parametrize("caption", FALSE)
def test_false_captions(caption: str) -> None:
    assert not describes(caption, SCENE)


def test_only_is_true_of_one_thing_alone() -> None:
    alone = Scene(SCENE.ground, SCENE.things[:1])
    assert describes("only a ball", alone)
    assert describes("a lone red ball on a lawn", alone)


@pytest.mark.parametrize(
    ("caption", "message"),
    [
        ("a purple elephant", "'elephant' .word 3. is not a word"),
        ("a red", "ends in the middle"),
        ("a ball left of", "ends in the middle"),
        ("two balls left of a star", "follows no single thing"),
        ("a ball left of two stars", "a number of things"),
        ("a ball, a star, a moon and a heart", "more than 3"),
    ],
)
def test_captions_out_of_the_language_are_refused(caption: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        describes(caption, SCENE)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**40), index=st.integers(0, 2**33), share=st.sampled_from([0.0, 0.7]))
def test_every_caption_is_true_of_its_scene(seed: int, index: int, share: float) -> None:
    scene = make_scene(seed, index, share)
    assert 1 <= len(scene.things) <= 5
    captions = make_captions(scene)
    assert len(set(captions)) == CAPTIONS_PER_SCENE
    for caption in captions:
        assert describes(caption, scene), caption
        assert re.fullmatch(r"[a-z ,]+", caption)


def holds(claim: Claim, scene: Scene) -> bool:
    """The meaning of a claim by trying every choice of things."""
    codes = [thing_code(t) for t in scene.things]

    def fits(i: int, allowed: int) -> bool:
        return codes[i] & allowed == codes[i]

    for allowed, least, most in claim.counted:
        if not least <= sum(fits(i, allowed) for i in range(len(codes))) <= most:
            return False
    if not claim.grounds >> scene.ground & 1:
        return False
    for chosen in itertools.permutations(range(len(codes)), len(claim.named)):
        if not all(fits(i, allowed) for i, allowed in zip(chosen, claim.named, strict=True)):
            continue
        needed = [
            (other, RELATIONS[r])
            for other, bits in zip(chosen[1:], claim.links, strict=True)
            for r in range(len(RELATIONS))
            if bits >> r & 1
        ]
        if all(name in relations(scene, chosen[0], other) for other, name in needed):
            return True
    return False


def test_truth_agrees_with_trying_every_choice() -> None:
    split = open_dataset("scenes(train=0, val=0, test=60, seed=5)").split("test")
    assert split.truth is not None
    truth = split.truth(np.arange(60), np.arange(300))
    scenes = [make_scene(5, FIRST["test"] + i) for i in range(60)]
    expected = [[holds(parse(c), s) for c in split.captions] for s in scenes]
    assert np.array_equal(truth, np.array(expected))
    assert truth[split.image_of_caption, np.arange(300)].all()
    assert not truth.all(axis=0).any()
    # Rows come in the order asked for.
    assert np.array_equal(
        split.truth(np.array([7, 3]), np.array([9, 2, 9])), truth[[7, 3]][:, [9, 2, 9]]
    )


def test_truth_is_quick_and_false_negatives_exist() -> None:
    split = open_dataset("scenes(train=0, val=0)").split("test")
    assert split.truth is not None
    started = time.process_time()
    truth = split.truth(np.arange(500), np.arange(2500))
    assert time.process_time() - started < 5
    fitting = truth.sum(axis=0)
    # Most captions single out their scene, many do not.
    assert 0.4 < (fitting == 1).mean() < 0.8
    assert 0.02 < (fitting > 10).mean() < 0.3
    rows = np.arange(128)
    started = time.process_time()
    for _ in range(5):
        split.truth(rows, rows * 5)
    assert (time.process_time() - started) / 5 < 0.05


def test_a_world_depends_on_seed_and_index_alone() -> None:
    few, many = open_dataset("scenes(train=3)"), open_dataset("scenes(train=50)")
    assert list(few.split("train").captions) == list(many.split("train").captions)[:15]
    assert list(few.split("test").captions) == list(many.split("test").captions)
    assert make_scene(0, 1) != make_scene(1, 1)
    assert few.fingerprint() != many.fingerprint()
    assert few.fingerprint() == open_dataset("scenes(train=3)").fingerprint()
    pictures = few.split("train").pictures
    assert pictures is not None
    assert pictures.picture(1).tobytes() == pictures.picture(1).tobytes()
    assert pictures.picture(1).tobytes() != pictures.picture(2).tobytes()


def test_people_use_many_words_of_every_kind() -> None:
    captions = open_dataset("scenes(train=600)").split("train").captions
    words = {word for caption in captions for word in re.findall(r"\w+", caption)}
    assert len(words) >= 150
    assert {"left", "behind", "two", "striped", "crimson", "beach", "only"} <= words
    assert max(len(caption.split()) for caption in captions) < 40
    claims = [parse(caption) for caption in captions]
    assert 0.1 < np.mean([bool(c.counted) for c in claims]) < 0.5
    assert 0.2 < np.mean([any(c.links) for c in claims]) < 0.7
    assert 0.2 < np.mean([c.grounds != 0b1111111 for c in claims]) < 0.6
    named = [c for c in claims if c.named]
    assert np.mean([all(a == EVERYTHING for a in c.named) for c in named]) < 0.05


def test_near_duplicates_on_request() -> None:
    def alike(a: Scene, b: Scene) -> bool:
        facts = [[(t.kind, t.colour) for t in s.things] for s in (a, b)]
        same = sum(x == y for x, y in zip(*facts, strict=False))
        return len(a.things) == len(b.things) and same >= len(a.things) - 1 and a.ground == b.ground

    def share(duplicates: float) -> float:
        scenes = [make_scene(3, i, duplicates) for i in range(120)]
        big = [i for i in range(120) if len(scenes[i].things) >= 3]
        return float(np.mean([any(alike(scenes[i], scenes[j]) for j in range(i)) for i in big]))

    assert share(0.0) < 0.05
    assert 0.3 < share(0.6) < 0.85


@pytest.mark.parametrize(("kind", "shape"), [("global", (256,)), ("regions", (36, 128))])
def test_features_are_the_same_each_time(kind: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    few = open_dataset(f"scenes(train=30, val=0, test=0, features={kind})").split("train").features
    many = (
        open_dataset(f"scenes(train=700, val=0, test=0, features={kind})").split("train").features
    )
    assert few is not None
    assert many is not None
    assert few.shape == shape
    rows = few.rows(np.array([4, 2, 4]))
    assert rows.dtype == np.float32
    assert rows.shape == (3, *shape)
    assert np.array_equal(rows[0], rows[2])
    assert np.array_equal(rows, many.rows(np.array([4, 2, 4])))
    assert len(list((tmp_path / "cache" / "scenes").glob("*.npy"))) == 2
    again = (
        open_dataset(f"scenes(train=30, val=0, test=0, features={kind})").split("train").features
    )
    assert again is not None
    assert np.array_equal(again.rows(np.arange(30)), few.rows(np.arange(30)))


def test_features_without_a_place_to_keep_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = "scenes(train=5, val=0, test=0, features=global)"
    kept = open_dataset(spec).split("train").features
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "file" / "below"))
    made = open_dataset(spec).split("train").features
    assert kept is not None
    assert made is not None
    assert np.array_equal(made.rows(np.arange(5)), kept.rows(np.arange(5)))


@pytest.mark.parametrize("kind", ["global", "regions"])
def test_features_tell_what_is_there_to_who_learns_it(kind: str) -> None:
    split = open_dataset(f"scenes(train=2000, val=0, test=0, features={kind}, noise=0.5)").split(
        "train"
    )
    assert split.features is not None
    x = split.features.rows(np.arange(2000))
    x = x.mean(1) if x.ndim == 3 else x
    x = np.concatenate([x, np.ones((2000, 1))], axis=1)
    scenes = [make_scene(0, i) for i in range(2000)]
    ground = np.eye(len(GROUNDS))[[s.ground for s in scenes]]
    star = np.array([any(t.kind == KINDS.index("star") for t in s.things) for s in scenes])
    known, unknown = slice(0, 1500), slice(1500, 2000)

    def probe(target: np.ndarray) -> np.ndarray:
        gram = x[known].T @ x[known] + 30 * np.eye(x.shape[1])
        return x[unknown] @ np.linalg.solve(gram, x[known].T @ target[known])

    assert (probe(ground).argmax(1) == ground[unknown].argmax(1)).mean() > 0.75
    scores, true = probe(star.astype(float)), star[unknown]
    better = scores[true][:, None] > scores[~true][None, :]
    assert better.mean() > 0.7  # the area under the curve; 0.5 is chance


def test_boxes_show_every_thing() -> None:
    split = open_dataset("scenes(train=40, val=0, test=0, features=regions)").split("train")
    for row in range(40):
        boxes = split.pictures.boxes(row)  # type: ignore[union-attr]  # scenes have boxes
        assert boxes.shape == (36, 4)
        assert (boxes >= 0).all()
        assert (boxes <= 1).all()
        assert (boxes[:, :2] <= boxes[:, 2:]).all()
        for t in make_scene(0, row).things:
            inside = (boxes[:, 0] < t.x) & (t.x < boxes[:, 2])
            inside &= (boxes[:, 1] < t.y) & (t.y < boxes[:, 3])
            assert inside.any()


@pytest.mark.parametrize("size", [16, 64, 200])
def test_pictures(size: int) -> None:
    picture = render(SCENE, size)
    assert picture.size == (size, size)
    assert picture.mode == "RGB"


def test_a_picture_shows_the_thing_where_it_is() -> None:
    white = thing("large plain white square", 0.25, 0.7)
    picture = render(Scene(GROUNDS.index("night"), (white,)), 100, noise=0)
    assert min(picture.getpixel((25, 70))) > 200  # type: ignore[arg-type, type-var]  # RGB
    assert max(picture.getpixel((75, 20))) < 160  # type: ignore[arg-type, type-var]


def test_what_is_in_front_is_drawn_over_what_is_behind() -> None:
    red, blue = (
        thing("large plain red square", 0.5, 0.5),
        thing("small plain blue square", 0.5, 0.5),
    )
    shown = render(Scene(0, (red, blue)), 100, noise=0).getpixel((50, 50))
    hidden = render(Scene(0, (blue, red)), 100, noise=0).getpixel((50, 50))
    assert isinstance(shown, tuple)
    assert isinstance(hidden, tuple)
    assert shown[2] > shown[0]
    assert hidden[0] > hidden[2]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("scenes(train=-1)", "train is a number"),
        ("scenes(train=many)", "takes a whole number"),
        ("scenes(size=3)", "size is 8"),
        ("scenes(duplicates=2)", "share from 0 to 1"),
        ("scenes(noise=-1)", "noise is a factor"),
        ("scenes(features=sounds)", "pixels, global, regions"),
        ("scenes(trian=3)", "Did you mean 'train'"),
    ],
)
def test_wrong_specs(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_dataset(spec)


def test_large_worlds_open_at_once() -> None:
    started = time.process_time()
    split = open_dataset("scenes(train=1000000)").split("train")
    assert split.captions[4_999_999]
    assert split.captions[-1] == split.captions[4_999_999]
    assert len(split.captions[10:13]) == 3
    with pytest.raises(IndexError):
        split.captions[5_000_000]
    assert split.image_names[999_999] == "scene-0-999999"
    assert time.process_time() - started < 3


def test_worlds_of_old_and_new_shapes() -> None:
    from simgrad.data.scenes.world import HELD, make_scene

    plain = [make_scene(3, i) for i in range(40)]
    old = [make_scene(3, i, shapes="old") for i in range(40)]
    new = [make_scene(3, i, shapes="new") for i in range(40)]
    assert any(thing.kind in HELD for scene in plain for thing in scene.things)
    assert not any(thing.kind in HELD for scene in old for thing in scene.things)
    assert all(any(thing.kind in HELD for thing in scene.things) for scene in new)
    assert open_dataset("scenes(train=3, val=2, test=2)").fingerprint() == (
        open_dataset("scenes(train=3, val=2, test=2, shapes=all)").fingerprint()
    )


def test_features_of_old_and_new_shapes_are_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are kept in the cache, whose names once did not tell the worlds apart."""
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path))
    found = []
    for shapes in ("old", "new"):
        data = open_dataset(f"scenes(train=20, val=2, test=2, features=global, shapes={shapes})")
        features = data.split("train").features
        assert features is not None
        found.append(features.rows(np.arange(20)))
    assert np.abs(found[0] - found[1]).max() > 0.1
