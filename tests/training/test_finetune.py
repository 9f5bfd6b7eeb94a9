"""Fine-tuning a pretrained model: before the first step, each way, and stopped in between."""

import dataclasses
import math
import sys
import types
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.data.classes import METRIC, read_classes
from simgrad.models import load
from simgrad.models.inputs import Scale
from simgrad.report.build import build_report
from simgrad.report.card import model_card
from simgrad.retriever.forgetting import accuracy
from simgrad.retriever.opening import open_folder, open_pretrained
from simgrad.retriever.prepare import prepare
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.training.loop import Step
from simgrad.training.optimizing import moment
from simgrad.training.rounds import train
from simgrad.training.wise import best_point
from tests.evaluation.commands import ask
from tests.models.test_pretrained import ours, theirs
from tests.models.tiny import clip_folder, pictures, siglip_folder
from tests.processes import LOADED, together

LOADED.append(__name__)  # forked processes have it already
DATA = "scenes(train=40, val=16, test=16)"


@pytest.fixture(scope="module")
def clip(tmp_path_factory: Any) -> Path:
    return clip_folder(tmp_path_factory.mktemp("clip"))


def recipe(folder: Path, settings: str = "", **changes: Any) -> Recipe:
    base = Recipe(
        data=DATA,
        model=f"clip(source={folder}{settings})",
        objective="nt-xent(learned=true)",
        batch=20,
        epochs=2,
        optimizer="adamw",
        weight_decay=0.1,
        decay="cosine",
        warmup=0.2,
        lr=1e-3,
        device="cpu",
        workers=0,
        checkpoint_seconds=1e9,
    )
    return base.replace(**changes)


@pytest.mark.long
def test_before_the_first_step(clip: Path, tmp_path: Path, capsys: Any) -> None:
    run = train(recipe(clip, epochs=0), tmp_path / "zero", quiet=True)
    assert run.finished
    assert [entry["step"] for entry in run.history] == [0]
    assert run.history[0]["loss"] > 0
    zero = ask(
        capsys, "evaluate", "--model", f"clip(source={clip})", "--data", DATA, "--output",
        tmp_path / "zero.json",
    )  # fmt: skip
    assert "rsum" in zero
    again = ask(capsys, "evaluate", tmp_path / "zero")
    assert f"{run.test['rsum']:.1f}" in zero
    assert f"{run.test['rsum']:.1f}" in again


def _begin(rank: int, world: int, folder: str, chosen: Recipe) -> None:
    train(chosen, folder, quiet=True)


@pytest.mark.long
def test_the_first_loss_of_two_processes_is_that_of_one(clip: Path, tmp_path: Path) -> None:
    chosen = recipe(clip, epochs=0)
    one = train(chosen, tmp_path / "one", quiet=True)
    together(_begin, 2, str(tmp_path / "two"), chosen)
    first = Run(tmp_path / "two").history[0]["loss"]
    assert first == pytest.approx(one.history[0]["loss"], rel=1e-5)


def test_a_model_that_nobody_trained_is_refused(tmp_path: Path, capsys: Any) -> None:
    told = ask(capsys, "evaluate", "--model", "vse++", "--data", DATA, status=2)
    assert "train it first" in told
    with pytest.raises(InputError, match="epochs: 0 is for a pretrained model"):
        train(Recipe(data=DATA, epochs=0), tmp_path / "no", quiet=True)


def test_search_mine_and_count_without_training(clip: Path, tmp_path: Path, capsys: Any) -> None:
    model = ("--model", f"clip(source={clip})", "--data", DATA)
    assert "best of 16 pictures" in ask(capsys, "search", "a red heart", *model, "--split", "test")
    mined = ask(capsys, "mine", *model, "--depth", 5, "--output", tmp_path / "mined")
    assert "40" in mined
    counted = ask(capsys, "cocos", *model, "--objective", "nt-xent", "--batches", 1)
    assert "NT-Xent" in counted


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [
        "",
        ", train_image=none",
        ", train_text=none",
        ", train_image=last=1, train_text=lora=2, layer_decay=0.7",
        ", checkpointing=true",
    ],
)
def test_a_stopped_run_ends_as_one_that_was_not(
    clip: Path, tmp_path: Path, weights: Any, settings: str
) -> None:
    wanted = recipe(clip, settings, data="scenes(train=12, val=5, test=5)")  # three steps an epoch
    whole = train(wanted, tmp_path / "whole", quiet=True)
    stopped = train(wanted, tmp_path / "stopped", quiet=True, stop_after=0)
    assert not stopped.finished
    again = train(wanted, tmp_path / "stopped", quiet=True)
    assert again.finished
    one, other = weights(whole.path), weights(again.path)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert whole.test == again.test
    assert whole.history[0]["step"] == 0


@pytest.mark.parametrize("side", ["image", "text"])
def test_a_locked_tower_is_run_once_and_gives_the_same(clip: Path, side: str) -> None:
    """What it made before leads to the gradients that the tower itself would lead to."""
    locked = recipe(clip, f", train_{side}=none", batch=16)
    prepared = prepare(locked)
    index = next(iter(_plans(prepared)))
    batch = prepared.sources["train"].fetch(index)
    if side == "image":
        assert batch.images.dim() == 2
    else:
        assert batch.tokens.is_floating_point()
    step = Step(prepared.model, locked, torch.device("cpu"))
    step.gradient(batch, step.objectives[locked.objective])
    given = _gradients(prepared.model)
    open_model = prepare(recipe(clip, batch=16))
    other = Step(open_model.model, recipe(clip, batch=16), torch.device("cpu"))
    other.gradient(open_model.sources["train"].fetch(index), other.objectives[locked.objective])
    whole = _gradients(open_model.model)
    assert given
    assert all((given[name] - whole[name]).abs().max() < 1e-5 for name in given)


def _plans(prepared: Any) -> Any:
    from simgrad.data.sampling import Sampler

    return Sampler("pairs", 16, 5, 0).epoch(prepared.dataset.split("train"), 0)


def _gradients(model: Any) -> dict[str, Any]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def test_scales_start_at_the_checkpoints_own(tmp_path: Path) -> None:
    folder = siglip_folder(tmp_path / "siglip")
    begun = recipe(folder, objective="siglip", first_objective="nt-xent(tau=0.2)", first_epochs=1)
    prepared = prepare(begun)
    step = Step(prepared.model, begun, torch.device("cpu"))
    learned = step.objectives["siglip"]
    assert learned.log_scale.item() == pytest.approx(2.5)
    assert learned.bias.item() == pytest.approx(-7.0)
    assert any("nt-xent(tau=0.2) sees 5 times" in text for text in step.scales)
    chosen = begun.replace(objective="siglip(scale=3)")
    step = Step(prepared.model, chosen, torch.device("cpu"))
    assert step.objectives["siglip(scale=3)"].log_scale.exp().item() == pytest.approx(3)


def test_pieces_of_a_batch_give_its_gradient(clip: Path) -> None:
    """GradCache with low-rank changes."""
    found = []
    for micro in (None, 7):
        cut = recipe(clip, ", train_image=lora=2, train_text=last=1", micro_batch=micro)
        prepared = prepare(cut)
        step = Step(prepared.model, cut, torch.device("cpu"))
        step.gradient(
            prepared.sources["train"].fetch(_plans(prepared)[0]), step.objectives[cut.objective]
        )
        found.append(_gradients(prepared.model))
    assert found[0].keys() == found[1].keys()
    assert all((found[0][n] - found[1][n]).abs().max() < 1e-5 for n in found[0])


def test_the_rate_falls_as_a_cosine() -> None:
    run = Recipe(decay="cosine", warmup=0.1, epochs=10)
    factors = [moment(run, epoch, 0, 10).lr_factor for epoch in range(10)]
    assert factors[0] == pytest.approx(0.1)
    assert factors[1] == pytest.approx(1.0)
    assert factors == [factors[0], *sorted(factors[1:], reverse=True)]
    assert 0 < factors[-1] < 0.05


def test_freezing_by_epochs_is_refused(clip: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"freeze_epochs.*train_image=none"):
        train(recipe(clip, freeze_epochs=1), tmp_path / "frozen", quiet=True)


def test_advice_against_collapse_is_what_the_model_takes(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simgrad.training.observe.spread", lambda *_: 0.0)
    run = train(recipe(clip), tmp_path / "run", quiet=True)
    (told,) = (w["text"] for w in run.info["warnings"] if "collapsed" in w["text"])
    assert "train_image=none" in told
    assert "freeze_epochs" not in told


def test_a_run_is_taken_home(clip: Path, tmp_path: Path, capsys: Any) -> None:
    import transformers

    run = train(recipe(clip, ", train_image=lora=2, train_text=lora=2"), tmp_path / "run",
                quiet=True)  # fmt: skip
    printed = ask(capsys, "export", run.path, "--to", tmp_path / "out")
    assert "model.safetensors" in printed
    net = transformers.AutoModel.from_pretrained(tmp_path / "out")
    (learned,) = load(run.path / "best").extra["objective"]["log_scale"]
    assert net.logit_scale.item() == pytest.approx(learned, abs=1e-6)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "library_name: transformers" in card
    assert "95% interval" in card
    assert "before training" in card
    assert "nt-xent(learned=true)" in card
    zero = ask(capsys, "evaluate", "--model", f"clip(source={tmp_path / 'out'})", "--data", DATA)
    assert f"{run.test['rsum']:.1f}" in zero
    told = ask(capsys, "export", run.path, "--to", tmp_path / "out", status=2)
    assert "not empty" in told
    told = ask(capsys, "export", run.path, "--to", tmp_path / "b", "--format", "caffe", status=2)
    assert "cannot be written as caffe" in told
    ask(capsys, "export", run.path, "--to", tmp_path / "adapter", "--adapter")
    assert (tmp_path / "adapter" / "adapter_config.json").is_file()
    # An adapter has no place for the scale: the card's lines set it.
    exported = open_folder(run.path).export(tmp_path / "again", adapter=True)
    exported = dataclasses.replace(exported, scale=Scale(7.0))
    there: dict[str, Any] = {}
    card = model_card(exported, run, str(tmp_path / "again"))
    exec(card.split("```python\n")[1].split("```")[0], there)
    assert there["model"].logit_scale.item() == pytest.approx(math.log(7), abs=1e-6)
    assert "logit_scale" in (tmp_path / "adapter" / "README.md").read_text()


def test_an_untrained_network_can_go_to_transformers_and_back(tmp_path: Path, capsys: Any) -> None:
    """What one pretrains here is a pretrained model for everybody."""
    tiny = "clip(source=none, dimension=16, width=16, layers=1, heads=2, patch=16, size=32)"
    run = train(recipe(tmp_path, model=tiny, epochs=1), tmp_path / "run", quiet=True)
    ask(capsys, "export", run.path, "--to", tmp_path / "out")
    zero = ask(capsys, "evaluate", "--model", f"clip(source={tmp_path / 'out'})", "--data", DATA)
    assert f"{run.test['rsum']:.1f}" in zero
    for mine, other in zip(*_both(load(run.path / "best"), tmp_path / "out"), strict=True):
        assert (mine - other).abs().max() < 1e-5


def _both(loaded: Any, folder: Path) -> Any:
    return ours(loaded.model, loaded.tokenizer), theirs(folder)


def test_the_best_mixture_is_best_by_the_metric_s_own_direction() -> None:
    curve = [
        {"alpha": alpha, "rsum": rsum, "t2i_meanr": rank}
        for alpha, rsum, rank in ((0.0, 20.0, 3.0), (0.5, 30.0, 5.0), (1.0, 30.0, 9.0))
    ]
    assert best_point(curve, "rsum")["alpha"] == 1.0
    assert best_point(curve, "t2i_meanr")["alpha"] == 0.0


@pytest.mark.long
def test_weights_between_both_ends(clip: Path, tmp_path: Path) -> None:
    for settings in ("", ", train_image=lora=2, train_text=lora=2"):
        run = train(
            recipe(clip, settings, wise=4, lr=1e-2), tmp_path / f"run{len(settings)}", quiet=True
        )
        curve, kept = run.wise["curve"], load(run.path / "best")
        assert [point["alpha"] for point in curve] == [0, 0.25, 0.5, 0.75, 1]
        assert curve[0]["rsum"] == pytest.approx(run.history[0]["val"]["rsum"], abs=1e-3)
        best = max(entry["val"]["rsum"] for entry in run.history)
        assert curve[-1]["rsum"] == pytest.approx(best, abs=1e-3)
        assert max(point["rsum"] for point in curve) == kept.extra["rsum"]
        assert kept.extra["alpha"] == run.wise["alpha"]
    report = build_report([tmp_path / "run0"], batches=0, pictures=False)
    assert any(section.anchor == "finetuned" for section in report.sections)
    with pytest.raises(InputError, match="pretrained"):
        train(Recipe(data=DATA, wise=5), tmp_path / "no", quiet=True)


def test_figures_go_to_loggers(clip: Path, tmp_path: Path, monkeypatch: Any) -> None:
    class Fake(types.ModuleType):
        told: ClassVar[list[Any]] = []

        def init(self, **options: Any) -> Any:
            self.told.append(options["config"]["seed"])
            return self

        def log(self, figures: dict[str, float], step: int) -> None:
            self.told.append((step, figures["val/rsum"]))

        def finish(self) -> None:
            self.told.append("end")

    monkeypatch.setitem(sys.modules, "wandb", Fake("wandb"))
    seen: list[int] = []
    run = train(recipe(clip, epochs=1, log="wandb"), tmp_path / "run", quiet=True,
                log=lambda step, figures: seen.append(step))  # fmt: skip
    entries = [(entry["step"], entry["val"]["rsum"]) for entry in run.history]
    assert Fake.told == [0, *entries, "end"]
    assert seen == [step for step, _ in entries]
    with pytest.raises(InputError, match="there is no 'paper'"):
        train(recipe(clip, log="paper"), tmp_path / "no", quiet=True)


OTHER = "scenes(train=2, val=2, test=12, seed=5)"


@pytest.mark.long
def test_other_data_are_scored_before_and_after(
    clip: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def opening(data: str) -> Any:
        opened.append(data)
        return open_dataset(data)

    monkeypatch.setattr("simgrad.retriever.forgetting.open_dataset", opening)
    run = train(recipe(clip, also=OTHER), tmp_path / "run", quiet=True)
    assert opened == [OTHER]  # it may be large
    told = run.also
    assert (told["split"], told["images"]) == ("test", 12)
    for model, when in ((f"clip(source={clip})", "before"), (None, "after")):
        asked = ("--model", model) if model else (run.path,)
        printed = ask(capsys, "evaluate", *asked, "--data", OTHER)
        assert f"{told[when]['rsum']:.1f}" in printed
    zero = train(recipe(clip, also=OTHER, epochs=0), tmp_path / "zero", quiet=True)
    assert zero.also["before"] == zero.also["after"] == told["before"]
    report = build_report([run.path], batches=0, pictures=False)
    section = next(s for s in report.sections if s.anchor == "finetuned")
    table = next(b for b in section.blocks if "Other data" in getattr(b, "title", ""))
    shown = [cell.text for cell in table.rows[0].cells]
    assert f"{told['after']['rsum']:.1f}" in shown
    ask(capsys, "export", run.path, "--to", tmp_path / "out")
    assert "On other data" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.long
def test_what_training_forgets_of_classes(clip: Path, tmp_path: Path, capsys: Any) -> None:
    """Zero-shot accuracy of the pretrained weights and of the trained ones."""
    for row, picture in enumerate(pictures(12)):
        place = tmp_path / "things" / ("dog", "cat", "red")[row % 3]
        place.mkdir(parents=True, exist_ok=True)
        picture.save(place / f"{row}.png")
    also = f"classes(path={tmp_path / 'things'})"
    run = train(recipe(clip, also=also), tmp_path / "run", quiet=True)
    told = run.also
    assert (told["dataset"], told["images"], told["classes"]) == ("things", 12, 3)
    classes = read_classes(also)
    assert classes is not None
    for opened, when in ((open_pretrained(f"clip(source={clip})", device="cpu"), "before"),
                         (open_folder(run.path, device="cpu"), "after")):  # fmt: skip
        assert accuracy(opened, classes) == told[when]
    report = build_report([run.path], batches=0, pictures=False)
    section = next(s for s in report.sections if s.anchor == "finetuned")
    table = next(b for b in section.blocks if "Other data" in getattr(b, "title", ""))
    shown = [cell.text for cell in table.rows[0].cells]
    assert f"{told['after'][METRIC]:.1f}" in shown
    assert METRIC in shown
    ask(capsys, "export", run.path, "--to", tmp_path / "out")
    assert f"things, {METRIC}: " in (tmp_path / "out" / "README.md").read_text()
    with pytest.raises(InputError, match=r"also: .*no such folder"):
        train(recipe(clip, also="classes(path=nowhere)"), tmp_path / "no", quiet=True)


def test_other_data_that_cannot_be_scored_are_refused_at_once(clip: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="knows nothing before"):
        train(
            Recipe(data="scenes(train=40, features=global)", also=OTHER), tmp_path / "a", quiet=True
        )
    other = "scenes(train=2, val=2, test=0)"
    with pytest.raises(InputError, match="no test split"):
        train(recipe(clip, also=other), tmp_path / "b", quiet=True)
    with pytest.raises(InputError, match="nowhere"):
        train(recipe(clip, also="nowhere"), tmp_path / "c", quiet=True)


@pytest.mark.parametrize(
    ("model", "features", "why"),
    [("vse++", "global", "reads features"), ("scan", "regions", "one vector")],
)
def test_classes_that_a_model_cannot_see_are_refused_before_training(
    model: str, features: str, why: str, tmp_path: Path
) -> None:
    for name, picture in zip(("dog", "cat"), pictures(2), strict=True):
        (tmp_path / "things" / name).mkdir(parents=True)
        picture.save(tmp_path / "things" / name / "0.png")
    base = Recipe(
        data=f"scenes(train=40, val=8, test=8, features={features})",
        model=f"{model}(dimension=8, word_dimension=8)", epochs=1, device="cpu",
    )  # fmt: skip
    first = train(base, tmp_path / "first", quiet=True)
    also = f"classes(path={tmp_path / 'things'})"
    with pytest.raises(InputError, match=why):
        train(base.replace(start_from=str(first.path / "best"), also=also), tmp_path / "run")
    assert not Run(tmp_path / "run").history


def test_captions_that_a_network_does_not_know_are_told(tmp_path: Path, capsys: Any) -> None:
    model = f"clip(source={siglip_folder(tmp_path / 'siglip')})"
    data = tmp_path / "photos"
    data.mkdir()
    rows = ["image,caption,split"]
    for k, picture in enumerate(pictures(6)):
        picture.save(data / f"{k}.png")
        rows.append(f"{k}.png,Ein Hund läuft mit einem Ball über die Wiese,{_SPLITS[k % 3]}")
    (data / "captions.csv").write_text("\n".join(rows), encoding="utf-8")
    asked = recipe(tmp_path, data=str(data), model=model, objective="siglip", epochs=0, batch=2)
    run = train(asked, tmp_path / "run", quiet=True)
    assert any("German" in one["text"] for one in run.info["warnings"])
    assert not train(asked.replace(data=DATA), tmp_path / "plain", quiet=True).info["warnings"]
    for named, warned in ((data, True), (DATA, False)):
        assert open_pretrained(model, data=str(named), device="cpu").dataset
        assert ("German" in capsys.readouterr().err) == warned


_SPLITS = ("train", "val", "test")
