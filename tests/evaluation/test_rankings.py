"""Rankings of others: files, measures, standings; against slow loops, scipy and the peers."""

import functools
import gzip
import json
import math
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import integrate, optimize, stats

import simgrad
from simgrad.core.errors import InputError
from simgrad.evaluation.rankings import Measure, write_qrels, write_run
from tests.evaluation.commands import run as evaluate

Table = dict[str, dict[str, float]]
MEASURES = ("nDCG@10", "nDCG", "AP", "AP@100", "RR", "RR@10", "R@5", "P@5", "Success@1",
            "AP(rel=2)", "P(rel=2)@10")  # fmt: skip


def world(
    seed: int, queries: int = 30, documents: int = 60, ties: bool = False
) -> tuple[Table, Table]:
    """Graded judgments, some of 0 or below, and scores with documents that nobody judged."""
    drawn = np.random.default_rng(seed)
    qrels: Table = {}
    run: Table = {}
    for q in range(queries):
        chosen = drawn.choice(documents, 8, replace=False)
        grades = drawn.integers(-1, 4, 8)
        grades[0] = 2  # something is relevant
        qrels[f"q{q}"] = {f"d{d}": int(g) for d, g in zip(chosen, grades, strict=True)}
        ranked = drawn.choice(documents, 40, replace=False)
        scores = drawn.normal(size=40)
        if ties:
            scores = np.round(scores, 1)
            scores[:4] = 1.0 + np.arange(4) * 1e-9  # equal in single precision
        run[f"q{q}"] = {f"d{d}": float(s) for d, s in zip(ranked, scores, strict=True)}
    return qrels, run


def slow_ndcg(ranking: Mapping[str, float], judged: Mapping[str, float], depth: int) -> float:
    """As books print it; of equal scores the later id first."""
    order = sorted(ranking, key=lambda d: (np.float32(ranking[d]), d), reverse=True)
    best = sorted((g for g in judged.values() if g > 0), reverse=True)
    got = sum(max(judged.get(d, 0), 0) / math.log2(p + 2) for p, d in enumerate(order[:depth]))
    return got / sum(g / math.log2(p + 2) for p, g in enumerate(best[:depth]))


# -- measures


def test_ndcg_by_a_slow_loop() -> None:
    qrels, run = world(0, ties=True)
    found = simgrad.evaluate_rankings({"a": {"t": run}}, {"t": qrels}).tasks["t"].scores["a"]
    expected = np.mean([slow_ndcg(run[q], qrels[q], 10) for q in qrels])
    assert found["nDCG@10"] == pytest.approx(100 * expected)


@pytest.mark.parametrize("ties", [False, True])
def test_ir_measures_agrees(ties: bool) -> None:
    """The same files, every measure; RR@10 by its own provider."""
    peer = pytest.importorskip("ir_measures", reason="ir_measures is not installed")
    qrels, run = world(1, ties=ties)
    qrels["q3"] = dict.fromkeys(qrels["q3"], 0)  # nothing is relevant to it
    chosen = [m for m in MEASURES if not (ties and m == "RR@10")]  # that one keeps other ties
    found = simgrad.evaluate_rankings({"a": {"t": run}}, {"t": qrels}, chosen)
    expected = peer.calc_aggregate([peer.parse_measure(m) for m in chosen], qrels, run)
    for measure, value in expected.items():
        name = str(Measure.parse(str(measure)))
        assert found.tasks["t"].scores["a"][name] == pytest.approx(100 * value), name


@pytest.mark.parametrize("ties", [False, True])
def test_pytrec_eval_agrees_query_by_query(ties: bool) -> None:
    peer = pytest.importorskip("pytrec_eval", reason="pytrec_eval is not installed")
    qrels, run = world(2, ties=ties)
    evaluator = peer.RelevanceEvaluator(
        {q: {d: int(g) for d, g in one.items()} for q, one in qrels.items()},
        {"ndcg_cut.3,10", "map_cut.5", "recall.20", "P.7", "success.1", "recip_rank"},
    )
    names = {"nDCG@3": "ndcg_cut_3", "nDCG@10": "ndcg_cut_10", "AP@5": "map_cut_5",
             "R@20": "recall_20", "P@7": "P_7", "Success@1": "success_1",
             "RR": "recip_rank"}  # fmt: skip
    expected = evaluator.evaluate(run)
    for query in qrels:
        one = simgrad.evaluate_rankings(
            {"a": {"t": {query: run[query]}}}, {"t": {query: qrels[query]}}, list(names)
        )
        for name, other in names.items():
            found = one.tasks["t"].scores["a"][name]
            assert found == pytest.approx(100 * expected[query][other]), (query, name)


def test_ranx_agrees() -> None:
    numba = pytest.importorskip("numba", reason="numba is not installed")
    before, numba.config.DISABLE_JIT = numba.config.DISABLE_JIT, True
    try:
        ranx = pytest.importorskip("ranx", reason="ranx is not installed")
        qrels, run = world(3)
        qrels = {q: {d: max(g, 0) for d, g in one.items()} for q, one in qrels.items()}
        names = {"nDCG@10": "ndcg@10", "AP": "map", "RR@10": "mrr@10", "R@5": "recall@5",
                 "P@5": "precision@5", "Success@1": "hit_rate@1"}  # fmt: skip
        whole = {q: {d: int(g) for d, g in one.items()} for q, one in qrels.items()}
        expected = ranx.evaluate(ranx.Qrels(whole), ranx.Run(run), list(names.values()))
        found = simgrad.evaluate_rankings({"a": {"t": run}}, {"t": qrels}, list(names))
        for name, other in names.items():
            assert found.tasks["t"].scores["a"][name] == pytest.approx(100 * expected[other]), name
    finally:
        numba.config.DISABLE_JIT = before


@pytest.mark.long
def test_mteb_agrees_on_what_it_wrote(tmp_path: Path) -> None:
    """Two languages by `mteb.evaluate`, and judgments as the page says."""
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")
    from datasets import Dataset
    from mteb.abstasks import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.mocks.mock_tasks.retrieval import general_args
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder

    drawn, words = np.random.default_rng(4), np.random.default_rng(5).normal(size=(60, 12))

    def part(queries: int) -> dict[str, Any]:
        documents = drawn.integers(0, 60, (50, 8))
        judged = {f"q{q}": {f"d{q}": 2, f"d{q + 1}": 1, f"d{q + 2}": 0} for q in range(queries)}
        asked = np.concatenate([documents[:queries, :2], documents[1 : queries + 1, :1]], axis=1)
        told = [{"id": f"q{q}", "text": " ".join(map(str, row))} for q, row in enumerate(asked)]
        judged["q3"] = {"d1": 0}  # nothing is relevant to it
        corpus = [{"id": f"d{d}", "title": "", "text": " ".join(map(str, row))}
                  for d, row in enumerate(documents)]  # fmt: skip
        return {"queries": Dataset.from_list(told), "corpus": Dataset.from_list(corpus),
                "relevant_docs": judged, "top_ranked": None}  # fmt: skip

    class Made(AbsTaskRetrieval):  # type: ignore[misc]
        langs: ClassVar = {"eng": ["eng-Latn"], "fra": ["fra-Latn"]}
        metadata = TaskMetadata(
            type="Retrieval", name="Made", main_score="ndcg_at_10",
            **{**general_args, "eval_langs": langs},
        )  # fmt: skip
        parts: ClassVar = {"eng": {"test": part(40)}, "fra": {"test": part(10)}}

        def load_data(self, *_: Any, **__: Any) -> None:
            self.dataset, self.data_loaded = {k: dict(v) for k, v in self.parts.items()}, True

    class Words(AbsEncoder):  # type: ignore[misc]
        mteb_model_meta = ModelMeta.create_empty({"name": "me/words", "revision": "1"})

        def encode(self, inputs: Any, **_: Any) -> Any:
            texts = [text.split() for batch in inputs for text in batch["text"]]
            return np.array([words[[int(w) for w in text]].sum(0) for text in texts], np.float32)

    task = Made()
    options = {"cache": None, "prediction_folder": tmp_path / "words", "show_progress_bar": False}
    scored = mteb.evaluate(Words(), task, co2_tracker=False, **options).task_results[0].scores
    task.load_data()
    judged = {k: {"test": v["test"]["relevant_docs"]} for k, v in task.dataset.items()}
    (tmp_path / "Made.json").write_text(json.dumps(judged))
    names = ["ndcg_at_10", "map_at_100", "recall_at_10", "precision_at_10", "hit_rate_at_1"]
    found = simgrad.evaluate_rankings({"m": tmp_path / "words"}, tmp_path / "Made.json", names)
    for name in names:
        theirs = 100 * np.mean([fold[name] for fold in scored["test"]])
        measured = found.tasks["Made"].scores["m"][str(Measure.parse(name))]
        assert measured == pytest.approx(theirs, abs=6e-4), name  # it rounds to five digits
        assert 5 < measured < 95, name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ndgc@10", "Did you mean nDCG?"),
        ("R", "needs a cut-off: R@10"),
        ("nDCG(rel=2)@10", "leave out"),
        ("P@0", "There are: nDCG"),
    ],
)
def test_measures_that_there_are_not(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told.replace("(", r"\(").replace("?", r"\?")):
        Measure.parse(text)


@pytest.mark.parametrize("text", MEASURES)
def test_a_measure_prints_what_parses_back(text: str) -> None:
    assert str(Measure.parse(text)) == text


# -- files


def save(folder: Path, form: str, run: Table) -> Path:
    """A ranking in one of the formats, for the task t."""
    folder.mkdir()
    path = folder / f"t.{form}"
    if form in ("trec", "gz"):
        plain = folder / "t.trec"
        write_run(plain, run)
        if form == "gz":
            path.write_bytes(gzip.compress(plain.read_bytes()))
            plain.unlink()
    elif form == "json":
        path.write_text(json.dumps(run))
    elif form == "parquet":
        import pyarrow as arrow
        import pyarrow.parquet as parquet

        rows = [(q, d, s) for q, one in run.items() for d, s in one.items()]
        columns = dict(zip(("q_id", "doc_id", "score"), zip(*rows, strict=True), strict=True))
        parquet.write_table(arrow.table({k: list(v) for k, v in columns.items()}), path)
    else:
        value: Any = run
        if form == "mteb2":
            meta = {"model_name": "me/it", "revision": None}
            value = {"mteb_model_meta": meta, "default": {"test": run}}
        path = folder / ("t_predictions.json" if form == "mteb2" else "t_default_predictions.json")
        path.write_text(json.dumps(value))
    return folder


@pytest.mark.parametrize("form", ["trec", "gz", "json", "parquet", "mteb2", "mteb1"])
def test_every_format_says_the_same(form: str, tmp_path: Path) -> None:
    qrels, run = world(5)
    expected = simgrad.evaluate_rankings({"a": {"t": run}}, {"t": qrels}, MEASURES)
    write_qrels(tmp_path / "t.qrels", qrels)
    folder = save(tmp_path / "a", form, run)
    for place in (folder, next(folder.iterdir())):
        found = simgrad.evaluate_rankings({"a": place}, tmp_path / "t.qrels", MEASURES)
        assert found.tasks["t"].scores == expected.tasks["t"].scores


def test_what_ranx_saves_is_read(tmp_path: Path) -> None:
    numba = pytest.importorskip("numba", reason="numba is not installed")
    before, numba.config.DISABLE_JIT = numba.config.DISABLE_JIT, True
    try:
        ranx = pytest.importorskip("ranx", reason="ranx is not installed")
        qrels, run = world(6, queries=5)
        positive = {q: {d: int(max(g, 0)) for d, g in one.items()} for q, one in qrels.items()}
        expected = simgrad.evaluate_rankings({"a": {"t": run}}, {"t": qrels})
        for form in ("trec", "parquet"):  # its .json needs the compiler
            ranx.Run(run).save(str(tmp_path / f"run.{form}"))
            ranx.Qrels(positive).save(str(tmp_path / f"qrels.{form}"))
            found = simgrad.evaluate_rankings(
                {"a": tmp_path / f"run.{form}"}, [f"t={tmp_path / f'qrels.{form}'}"]
            )
            assert found.tasks["t"].scores["a"] == pytest.approx(expected.tasks["t"].scores["a"])
    finally:
        numba.config.DISABLE_JIT = before


def beir(folder: Path, qrels: Table, documents: int = 60) -> Path:
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"d{i}", "title": "", "text": f"document {i}"} for i in range(documents)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(one) + "\n" for one in corpus))
    queries = [{"_id": q, "text": q} for q in qrels]
    (folder / "queries.jsonl").write_text("".join(json.dumps(one) + "\n" for one in queries))
    lines = [f"{q}\t{d}\t{g}" for q, one in qrels.items() for d, g in one.items()]
    text = "\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n"
    (folder / "qrels" / "test.tsv").write_text(text)
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td1\t1\n")
    return folder


def test_beir_folders(tmp_path: Path) -> None:
    qrels, run = world(7)
    beir(tmp_path / "beir" / "made", qrels)
    expected = simgrad.evaluate_rankings({"a": {"made": run}}, {"made": qrels})
    save(tmp_path / "a", "json", run)
    for place in (tmp_path / "beir", tmp_path / "beir" / "made"):
        found = simgrad.evaluate_rankings({"a": tmp_path / "a" / "t.json"}, place)
        assert found.tasks["made"].scores == expected.tasks["made"].scores
    dev = simgrad.evaluate_rankings({"a": tmp_path / "a" / "t.json"}, place, split="dev")
    assert dev.tasks["made"].queries == 1
    run["q3"]["d99"] = 0.5
    write_run(tmp_path / "b.trec", {"q3": run["q3"]} | run)
    line = (
        (tmp_path / "b.trec")
        .read_text()
        .splitlines()
        .index(next(x for x in (tmp_path / "b.trec").read_text().splitlines() if " d99 " in x))
    )
    with pytest.raises(InputError, match=rf"b.trec, line {line + 1}: there is no document d99 in"):
        simgrad.evaluate_rankings({"b": tmp_path / "b.trec"}, tmp_path / "beir" / "made")


RUN = "q1 Q0 d1 1 0.9 x\nq1 Q0 d2 2 0.5 x\nq2 Q0 d2 1 0.9 x\n"
QRELS = "q1 0 d1 1\nq2 0 d2 2\n"


@pytest.mark.parametrize(
    ("run", "qrels", "told"),
    [
        (RUN + "q2 Q0 d2 2 0.1 x\n", QRELS, "run.trec, line 4: .* is there twice, first in line 3"),
        (RUN.replace("0.5", "nan"), QRELS, "run.trec, line 2: the score 'nan' is not a number"),
        (RUN.replace("0.5", "high"), QRELS, "run.trec, line 2: the score 'high' is not a number"),
        (RUN + "q2 d3 0.1\n", QRELS, "run.trec, line 4: 'q2 d3 0.1' has 3 columns"),
        (RUN.replace("q2", "q3"), QRELS, "run.trec: no ranking of query q2.*1 of 2 are missing"),
        ("", QRELS, "run.trec: it names no query"),
        (RUN, QRELS + "q1 0 d1 1\n", "t.qrels, line 3: document d1 of query q1 is there twice"),
        (RUN, QRELS.replace("2\n", "1.5\n"), "t.qrels, line 2: the grade '1.5' is not a whole"),
        (RUN, "q1 0 d1 0\n", "t.qrels: no document is relevant"),
        (RUN, "q1 0 d1\xff 0\n", "t.qrels, line 1: not UTF-8 text"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(run: str, qrels: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "run.trec").write_text(run)
    (tmp_path / "t.qrels").write_bytes(qrels.encode("latin-1"))
    with pytest.raises(InputError, match=told):
        simgrad.evaluate_rankings({"a": tmp_path / "run.trec"}, tmp_path / "t.qrels")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"q1": {"d1": 1, "d1": 2}}', "'d1' stands twice"),
        ('{"q1": {"d1": NaN}}', "query q1, document d1: the score nan is not a number"),
        ('{"q1": {"d1": "x"}}', "query q1, document d1: the score 'x' is not a number"),
        ('{"q1": [1]}', "query q1: not {document: number}"),
        ('{"q1"', "line 1: not JSON"),
        ('[1]', "not {query: {document: number}}"),
        ('{"en": {"test": {"q1": {"d1": 1}}}, "de": {"test": {"q1": {"d1": 1}}}}',
         "it has the parts en/test, de/test"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_json(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InputError, match=told.replace("{", r"\{")):
        simgrad.evaluate_rankings({"a": tmp_path / "run.json"}, {"t": {"q1": {"d1": 1}}})


def test_missing_queries_as_nothing_found(tmp_path: Path) -> None:
    qrels, run = {"q1": {"a": 1}, "q2": {"b": 1}}, {"q1": {"a": 1.0}}
    found = simgrad.evaluate_rankings({"s": {"t": run}}, {"t": qrels}, missing="zero")
    assert found.tasks["t"].scores["s"]["nDCG@10"] == 50


def test_queries_that_nobody_judged_and_their_own_ids() -> None:
    qrels = {"q1": {"a": 1}, "q2": {"a": 0}, "q3": {}}
    run = {"q1": {"q1": 2.0, "a": 1.0}, "q2": {"a": 1.0}, "q9": {"a": 1.0}}
    given: Any = {"s": {"t": run}}, {"t": qrels}, ["P@1"]
    found = simgrad.evaluate_rankings(*given).tasks["t"]
    assert found.scores["s"]["P@1"] == 0
    assert "1 query has no relevant document: 0 in every mean" in found.notes[0]
    assert "`ignore_identical_ids`" in found.notes[1]
    without = simgrad.evaluate_rankings(*given, ignore_identical_ids=True).tasks["t"]
    assert without.scores["s"]["P@1"] == 50  # of two queries, one of which has nothing to find


def test_ties_are_counted() -> None:
    qrels, run = {"q1": {"a": 1}, "q2": {"a": 1}}, {"q1": {"a": 1.0, "b": 1.0}, "q2": {"a": 1.0}}
    found = simgrad.evaluate_rankings({"s": {"t": run}}, {"t": qrels}, ["P@1"]).tasks["t"]
    assert found.scores["s"]["P@1"] == 50  # b comes before a, as in trec_eval
    assert "in up to 1 queries (s)" in found.notes[0]


# -- standings


def largest_t_tail(t: float, pairs: int, freedom: float) -> float:
    """P(any of `pairs` independent |t| that share one estimated deviation is larger)."""

    def inner(s: float) -> float:
        below = (2 * stats.norm.cdf(abs(t) * s) - 1) ** pairs
        return float(below * stats.chi.pdf(s * math.sqrt(freedom), freedom) * math.sqrt(freedom))

    return 1 - integrate.quad(inner, 0, 6, limit=400, points=[0.5, 1, 1.5])[0]


@functools.cache
def largest_t_quantile(pairs: int, freedom: float) -> float:
    return float(optimize.brentq(lambda t: largest_t_tail(t, pairs, freedom) - 0.05, 0.1, 200))


def expected_standing(scores: dict[str, np.ndarray], margin: float) -> tuple[str, dict[str, Any]]:
    """Leader; of each rival gap, ends, p, word: from the values of the units, with scipy alone."""
    leader = max(scores, key=lambda name: scores[name].mean())
    pairs, found = math.comb(len(scores), 2), {}
    for name, values in scores.items():
        if name == leader:
            continue
        gaps = scores[leader] - values
        n, gap = len(gaps), gaps.mean()
        error = gaps.std(ddof=1) / math.sqrt(n)
        p = max(largest_t_tail(gap / error, pairs, n - 1), 2.0 ** (1 - n))
        quantile = largest_t_quantile(pairs, n - 1)
        within = (margin - abs(gap)) / error
        equal = largest_t_tail(within, pairs, n - 1) / 2 if within > 0 else 1.0
        word = "equivalent" if equal < 0.05 else "behind" if p < 0.05 else "open"
        found[name] = (gap, gap - quantile * error, gap + quantile * error, p, word)
    return leader, found


def mteb_folders(
    place: Path, systems: int = 10
) -> tuple[dict[str, Table], dict[str, dict[str, Table]]]:
    """Prediction folders of systems on three tasks, and judgments; written and returned."""
    drawn = np.random.default_rng(8)
    qrels = {t: {q: {d: max(g, 0) for d, g in one.items()} for q, one in world(20 + i)[0].items()}
             for i, t in enumerate(("Fact", "Arg", "Touche"))}  # fmt: skip
    runs: dict[str, dict[str, Table]] = {}
    base = {t: {q: drawn.normal(size=60) for q in qrels[t]} for t in qrels}
    for s in range(systems):
        skill, name = (2.2 if s < 2 else 2.0 - 0.25 * s), f"model-{s}"
        noise = 0.02 if s < 2 else 0.7
        runs[name] = {
            t: {
                q: {
                    f"d{d}": float(
                        base[t][q][d] + noise * drawn.normal() + skill * judged.get(f"d{d}", 0)
                    )
                    for d in range(60)
                }
                for q, judged in qrels[t].items()
            }
            for t in qrels
        }
        (place / name).mkdir(parents=True)
        for task, run in runs[name].items():
            meta = {"model_name": f"lab/{name}", "revision": "main"}
            value = {"mteb_model_meta": meta, "default": {"test": run}}
            (place / name / f"{task}_predictions.json").write_text(json.dumps(value))
    (place / "qrels").mkdir()
    for task, table in qrels.items():
        write_qrels(place / "qrels" / f"{task}.qrels", table)
    return qrels, runs


def test_ten_systems_on_three_tasks(tmp_path: Path) -> None:
    """Every number of every standing, computed again from the dicts with scipy."""
    qrels, runs = mteb_folders(tmp_path)
    found = simgrad.evaluate_rankings(
        {name: tmp_path / name for name in runs}, tmp_path / "qrels", margin=2
    )
    values = {
        task: {
            name: np.array([100 * slow_ndcg(run[task][q], qrels[task][q], 10) for q in qrels[task]])
            for name, run in runs.items()
        }
        for task in qrels
    }
    means = {name: np.array([values[task][name].mean() for task in qrels]) for name in runs}
    assert found.over_tasks is not None
    pairs = [(found.tasks[task], values[task]) for task in qrels] + [(found.over_tasks, means)]
    words = set()
    for task, scores in pairs:
        leader, rivals = expected_standing(scores, 2)
        assert task.standing.leader == leader
        assert len(task.standing.rivals) == 9
        for rival in task.standing.rivals:
            gap, low, high, p, word = rivals[rival.label]
            assert rival.behind == pytest.approx(gap)
            assert (rival.low, rival.high) == pytest.approx((low, high), rel=2e-3, abs=2e-3)
            assert rival.p == pytest.approx(p, abs=1e-4)
            assert rival.word == word
            words.add(word)
        for name, one in scores.items():
            low, high = stats.t.interval(0.95, len(one) - 1, one.mean(), stats.sem(one))
            assert task.intervals[name] == pytest.approx((max(low, 0), min(high, 100)))
    assert words == {"behind", "equivalent", "open"}
    assert all(rival.word != "behind" for rival in found.over_tasks.standing.rivals)
    assert "six are needed" in str(found)


def test_groups_stand_or_fall_together() -> None:
    """Groups of two equal queries: as sure as half as many queries, not as all."""
    qrels, run = world(9)
    _, other = world(10)
    double = {f"{q}{k}": v for q, v in qrels.items() for k in "ab"}
    runs = [{f"{q}{k}": one[q] for q in qrels for k in "ab"} for one in (run, other)]
    groups = {f"{q}{k}": q for q in qrels for k in "ab"}
    single = simgrad.evaluate_rankings({"a": {"t": run}, "b": {"t": other}}, {"t": qrels})
    found = simgrad.evaluate_rankings(
        {"a": {"t": runs[0]}, "b": {"t": runs[1]}}, {"t": double}, groups=groups
    )
    one, two = single.tasks["t"].standing.rivals[0], found.tasks["t"].standing.rivals[0]
    assert (two.behind, two.low, two.high, two.p) == pytest.approx(
        (one.behind, one.low, one.high, one.p)
    )
    assert "30 groups of queries" in str(found)
    del groups["q0b"]
    with pytest.raises(InputError, match="query q0b of t is in no group"):
        simgrad.evaluate_rankings({"a": {"t": runs[0]}}, {"t": double}, groups=groups)


def test_subsets_are_folds(tmp_path: Path) -> None:
    """MTEB's score of a task is the mean over subsets, however many queries each has."""
    parts = {"en": world(11, queries=10), "de": world(12, queries=30)}
    (tmp_path / "t.json").write_text(json.dumps({k: {"test": q} for k, (q, _) in parts.items()}))
    (tmp_path / "a").mkdir()
    written = {"mteb_model_meta": {}, **{k: {"test": run} for k, (_, run) in parts.items()}}
    (tmp_path / "a" / "t_predictions.json").write_text(json.dumps(written))
    found = simgrad.evaluate_rankings({"a": tmp_path / "a"}, tmp_path / "t.json").tasks["t"]
    each = [
        simgrad.evaluate_rankings({"a": {"t": run}}, {"t": q}).tasks["t"].scores["a"]["nDCG@10"]
        for q, run in parts.values()
    ]
    assert found.scores["a"]["nDCG@10"] == pytest.approx(np.mean(each))
    assert found.queries == 40


def test_seeds_of_a_system(tmp_path: Path) -> None:
    """Files in a list are seeds: their mean, and what they differ by, count."""
    qrels, _ = world(13)
    for i in range(4):
        write_run(tmp_path / f"{i}.trec", world(14 + i)[1])
    write_qrels(tmp_path / "t.qrels", qrels)
    systems = {"a": [tmp_path / "0.trec", tmp_path / "1.trec"],
               "b": [tmp_path / "2.trec", tmp_path / "3.trec"]}  # fmt: skip
    found = simgrad.evaluate_rankings(systems, tmp_path / "t.qrels").tasks["t"]
    assert found.standing.draws == (2, 2)
    assert len(found.standing.scores["a"].runs) == 2
    assert found.scores["a"]["nDCG@10"] == pytest.approx(np.mean(found.standing.scores["a"].runs))


# -- the command


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mteb_folders(tmp_path / "m", systems=3)
    names = [str(tmp_path / "m" / f"model-{i}") for i in range(3)]
    given = [*names, "--qrels", str(tmp_path / "m" / "qrels")]
    extra = ["--measures", "nDCG@10", "R@10", "--margin", "2"]
    more = ["--output", str(tmp_path / "x.json"), "--trec", str(tmp_path / "trec")]
    told = evaluate(capsys, *given, *extra, *more)
    assert "lab/model-0" in told
    assert "Over tasks" in told
    value = json.loads((tmp_path / "x.json").read_text())
    assert list(value["tasks"]) == ["Arg", "Fact", "Touche"]
    assert value["over_tasks"]["tasks"] == 3
    again = simgrad.evaluate_rankings(
        {f"lab/model-{i}": tmp_path / "trec" / f"lab_model-{i}" for i in range(3)},
        tmp_path / "trec" / "qrels",
        ["nDCG@10", "R@10"],
        margin=2,
    )
    for task, one in again.tasks.items():
        for system, scores in one.scores.items():
            assert scores == pytest.approx(value["tasks"][task]["scores"][system])
    for suffix in (".csv", ".md", ".tex", ".html"):
        evaluate(capsys, *given, "--output", str(tmp_path / f"x{suffix}"))
        assert "model-2" in (tmp_path / f"x{suffix}").read_text()


def test_our_own_rankings_go_out_and_come_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Success@K and the mean average precision of TREC files are our R@K and mAP."""
    drawn = np.random.default_rng(15)
    S, owner = drawn.normal(size=(12, 24)), np.arange(24) % 12
    np.savez(tmp_path / "s.npz", similarities=S, image_of_caption=owner)
    evaluate(capsys, str(tmp_path / "s.npz"), "--trec", str(tmp_path / "out"))
    expected = simgrad.evaluate_similarities(S, owner)
    found = simgrad.evaluate_rankings(
        {"A": tmp_path / "out" / "A"},
        tmp_path / "out" / "qrels",
        ["Success@1", "Success@5", "AP"],
        groups=tmp_path / "out" / "groups",
    )
    for way in ("i2t", "t2i"):
        scores = found.tasks[way].scores["A"]
        assert scores["Success@1"] == pytest.approx(expected[f"{way}_r1"])
        assert scores["Success@5"] == pytest.approx(expected[f"{way}_r5"])
        assert scores["AP"] == pytest.approx(100 * expected[f"{way}_map"])


# -- the page


def made_for_the_page() -> None:
    """What the page takes as given: three systems on two tasks, in MTEB's and in TREC's format."""
    draw = random.Random(0)
    judged = {
        task: {
            f"q{q}": {f"d{draw.randrange(40)}": draw.choice((1, 2)) for _ in range(3)}
            for q in range(count)
        }
        for task, count in (("facts", 40), ("arguments", 30))
    }
    for task, table in judged.items():
        write_qrels(Path("qrels") / f"{task}.qrels", table)
    for name, skill in (("bm25", 1.0), ("dense", 2.2), ("reranked", 2.25)):
        for task, table in judged.items():
            run = {
                query: {f"d{d}": draw.gauss(0, 1) + skill * one.get(f"d{d}", 0) for d in range(40)}
                for query, one in table.items()
            }
            place = Path("predictions") / name
            place.mkdir(parents=True, exist_ok=True)
            if name == "bm25":
                write_run(place / f"{task}.trec", run, name)
            else:
                text = json.dumps({"default": {"test": run}})
                (place / f"{task}_predictions.json").write_text(text)


def test_the_page_shows_what_the_command_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    block = re.search(
        r"^```console\n\$ simgrad evaluate (predictions.+?)\n(.+?)^```", page, re.M | re.S
    )
    assert block is not None
    made_for_the_page()
    told = evaluate(capsys, *block[1].replace("\\\n", " ").split())
    lines = [line.rstrip() for line in told.strip().splitlines()]
    assert lines == [line.rstrip() for line in block[2].strip().splitlines()]
