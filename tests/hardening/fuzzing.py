"""What is thrown at every parser: one function for each, that takes text or bytes of any kind.

Each returns if the input was read or refused in plain words, and raises otherwise. `soak.py` runs
them for minutes, the tests for seconds.
"""

import contextlib
import json
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from simgrad.core.errors import InputError
from simgrad.data import Vocabulary, open_dataset
from simgrad.data.subwords import WordPieces
from simgrad.data.vocabulary import read_published, tokenizer_from_json
from simgrad.models import models
from simgrad.objectives import objective, objectives
from simgrad.runs.recipe import Recipe, from_dict, read_recipe
from simgrad.studies.plan import plan_from_dict, read_plan
from tests.hardening.fuzzing_checkpoints import DAMAGED, checkpoints
from tests.hardening.fuzzing_requests import REQUESTS, requests
from tests.hardening.fuzzing_runs import DAMAGED_RUNS, run_folders

FIELDS = sorted(Recipe().to_dict())
_names = [d.name for d in objectives] + [d.name for d in models] + ["scenes"]
_keys = ["margin", "tau", "alpha", "triplet", "pair", "dimension", "train", "learned", "x"]
_HUGE = st.just(int("7" * 400))  # no float holds it
_value = st.one_of(
    st.floats().map(str),
    (st.integers() | _HUGE).map(str),
    st.text(max_size=12),
    st.sampled_from(_names),
)
SPECS = st.one_of(
    st.text(max_size=60),
    st.builds(
        lambda name, pairs: f"{name}({', '.join(f'{k}={v}' for k, v in pairs)})",
        st.sampled_from(_names),
        st.lists(st.tuples(st.sampled_from(_keys), _value), max_size=4),
    ),
    st.text("(),= \t\0atn-xe.1", max_size=60),
)
_plain = st.recursive(
    st.none() | st.booleans() | st.integers() | _HUGE | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
VALUES = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=10), _plain, max_size=6)
STUDIES = st.dictionaries(
    st.sampled_from(["title", "recipe", "rows", "grid", "seeds", "baseline", "metrics"]),
    _plain | st.dictionaries(st.sampled_from(FIELDS), st.lists(_plain, max_size=2), max_size=2),
    max_size=5,
)
_yaml = st.text("abc:-[]{}&*!|>#%@'\"\n\t ,?0.1~<", max_size=80)
YAML = st.one_of(st.text(max_size=80), _yaml, VALUES.map(json.dumps))
_records = st.dictionaries(
    st.sampled_from(["image", "caption", "split", "images", "sentences", "raw", "word2idx"]),
    _plain,
    max_size=4,
)
CAPTIONS = st.one_of(
    st.binary(max_size=120),
    st.text(max_size=80).map(lambda text: text.encode("utf-8", "surrogatepass")),
    (_records | st.lists(_records, max_size=3)).map(lambda value: json.dumps(value).encode()),
)
TEXTS = st.text(max_size=80)


def _written(name: str, content: bytes, read: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(InputError):
        path = Path(folder) / name
        path.write_bytes(content)
        read(path)


def specs(text: str) -> None:
    for parse in (objective, models.parse):
        with contextlib.suppress(InputError):
            read = parse(text)
            assert str(parse(str(read))) == str(read)  # what is printed reads back
    if len(text) < 500 and text.startswith("scenes"):
        with contextlib.suppress(InputError):
            open_dataset(text)


def recipes(values: dict[str, Any]) -> None:
    with contextlib.suppress(InputError):
        read = from_dict(values, "fuzz")
        assert from_dict(read.to_dict(), "fuzz") == read


def studies(values: dict[str, Any]) -> None:
    with contextlib.suppress(InputError):
        plan_from_dict(values, "fuzz")


def yaml_files(text: str) -> None:
    content = text.encode("utf-8", "surrogatepass")
    _written("r.yaml", content, read_recipe)
    _written("s.yaml", content, read_plan)


def caption_files(content: bytes) -> None:
    for name in ("c.csv", "c.tsv", "c.jsonl", "c.json", "c.parquet", "c.txt"):
        _written(name, content, open_dataset)
    _written("train_caps.txt", content, lambda path: open_dataset(path.parent))
    for name in ("v.json", "v.pkl"):
        _written(name, content, read_published)


_words = Vocabulary.build(["a red dog", "two blue cats"], min_count=1)
_pieces = WordPieces.build(["a red dog", "two blue cats"])


def tokenizers(text: str) -> None:
    for tokenizer in (_words, _pieces):
        ids = tokenizer.encode(text)
        assert all(0 <= i < len(tokenizer) for i in ids)
    again = tokenizer_from_json(json.loads(json.dumps(_words.to_json())))
    assert again.encode(text) == _words.encode(text)
    with contextlib.suppress(InputError):
        assert Vocabulary.build([text], min_count=1).encode(text)


TARGETS: dict[str, tuple[Callable[[Any], None], Any]] = {
    "specs": (specs, SPECS),
    "recipes": (recipes, VALUES),
    "studies": (studies, STUDIES),
    "YAML files": (yaml_files, YAML),
    "caption files": (caption_files, CAPTIONS),
    "tokenizers": (tokenizers, TEXTS),
    "checkpoints": (checkpoints, DAMAGED),
    "run folders": (run_folders, DAMAGED_RUNS),
    "requests": (requests, REQUESTS),
}


def fuzz(
    target: Callable[[Any], object], strategy: Any, examples: int, seed: int | None = None
) -> int:
    """Throw so many inputs at a target; how many it was."""
    from hypothesis import seed as seeded

    count = 0

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=seed is None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(strategy)
    def attack(value: Any) -> None:
        nonlocal count
        count += 1
        target(value)

    (attack if seed is None else seeded(seed)(attack))()
    return count


def fuzz_for(name: str, seconds: float) -> int:
    """Throw things at a target until the time is over; other things each time it is called."""
    target, strategy = TARGETS[name]
    until, seed, count = time.monotonic() + seconds, time.time_ns() % (1 << 32), 0
    while time.monotonic() < until:
        try:
            count += fuzz(target, strategy, 500, seed)
        except Exception:  # as text: not every exception can be sent to another process
            raise AssertionError(traceback.format_exc()) from None
        seed += 1
    return count
