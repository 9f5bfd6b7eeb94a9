"""The objectives in other people's loops, and their losses among ours."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid, normalize

import simgrad
from simgrad.core.errors import InputError
from simgrad.integrations import (
    ClipLoss,
    MetricLearningLoss,
    SentenceTransformerLoss,
    from_metric_learning,
)

SPECS = ["triplet-sh", "nt-xent", "nt-xent(learned=true)", "smooth-ap", "siglip", "goal"]


def _pair(count: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images, texts = torch.randn(2, count, 8, generator=generator)
    return images.requires_grad_(), texts.requires_grad_()


# --- open_clip


def test_open_clips_contrastive_loss() -> None:
    images, texts = _pair()
    scale = torch.tensor(14.0, requires_grad=True)
    loss = ClipLoss("nt-xent(learned=true)")(images, texts, scale)
    assert isinstance(loss, Tensor)
    got = torch.autograd.grad(loss, [images, texts, scale])
    logits = scale * normalize(images) @ normalize(texts).T
    every = torch.arange(6)
    plain = (cross_entropy(logits, every) + cross_entropy(logits.T, every)) / 2
    torch.testing.assert_close(loss, plain)
    for one, other in zip(got, torch.autograd.grad(plain, [images, texts, scale]), strict=True):
        torch.testing.assert_close(one, other)


def test_open_clips_sigmoid_loss() -> None:
    images, texts = _pair()
    scale, bias = torch.tensor(9.0, requires_grad=True), torch.tensor([-8.0], requires_grad=True)
    loss = ClipLoss("siglip")(images, texts, scale, bias, output_dict=True)
    assert isinstance(loss, dict)
    total = loss["contrastive_loss"]
    got = torch.autograd.grad(total, [images, scale, bias])
    logits = scale * normalize(images) @ normalize(texts).T + bias
    plain = -logsigmoid((2 * torch.eye(6) - 1) * logits).sum() / 6
    torch.testing.assert_close(total, plain)
    for one, other in zip(got, torch.autograd.grad(plain, [images, scale, bias]), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("spec", SPECS)
def test_every_parameter_of_a_clip_model_gets_a_gradient(spec: str) -> None:
    images, texts = _pair()
    scale, bias = torch.tensor(9.0, requires_grad=True), torch.tensor(-8.0, requires_grad=True)
    loss = ClipLoss(spec)
    value = loss(images, texts, scale, bias)
    assert isinstance(value, Tensor)
    value.backward()
    assert scale.grad is not None
    assert bias.grad is not None
    assert not any(p.requires_grad for p in loss.parameters())


# --- pytorch-metric-learning


def test_open_clips_processes_are_those_that_there_are() -> None:
    images, texts = _pair()
    with pytest.raises(InputError, match="process 1 of 2"):
        ClipLoss("nt-xent", rank=1, world_size=2)(images, texts)
    with pytest.raises(InputError, match="horovod"):
        ClipLoss("nt-xent", use_horovod=True)


def test_metric_learnings_signature() -> None:
    images, _ = _pair(4)
    captions = torch.randn(7, 8)
    labels, ref_labels = torch.tensor([5, 9, 2, 7]), torch.tensor([9, 5, 5, 2, 7, 7, 9])
    index = torch.tensor([1, 0, 0, 2, 3, 3, 1])
    loss = MetricLearningLoss("goal")(images, labels, ref_emb=captions, ref_labels=ref_labels)
    torch.testing.assert_close(loss, simgrad.objective("goal")(images, captions, index))


def test_one_label_tensor_for_both_sides_is_no_different() -> None:
    images, texts = _pair()
    labels = torch.arange(6)
    loss = MetricLearningLoss("nt-xent")
    same = loss(images, labels, ref_emb=texts, ref_labels=labels)
    assert float(same.detach()) > 0
    assert same == loss(images, labels, ref_emb=texts, ref_labels=labels.clone())


def test_what_has_no_partner_is_a_negative_and_no_query() -> None:
    """As in pytorch-metric-learning: means are over the queries that have a positive."""
    images, texts = _pair()
    labels, others = torch.arange(6), torch.tensor([0, 1, 2, 3, 4, 9])
    found = MetricLearningLoss("nt-xent(tau=1)")(images, labels, ref_emb=texts, ref_labels=others)
    normalize, cross_entropy = torch.nn.functional.normalize, torch.nn.functional.cross_entropy
    S, first = normalize(images) @ normalize(texts).T, torch.arange(5)
    expected = (cross_entropy(S[:5], first) + cross_entropy(S.T[:5], first)) / 2
    torch.testing.assert_close(found, expected)


def test_metric_learnings_signature_says_what_is_missing() -> None:
    images, texts = _pair()
    labels, loss = torch.arange(6), MetricLearningLoss("triplet")
    with pytest.raises(InputError, match="ref_emb"):
        loss(images, labels, ref_labels=labels)
    with pytest.raises(InputError, match="indices_tuple"):
        loss(images, labels, (labels,) * 3, texts, labels)
    with pytest.raises(InputError, match=r"ref_labels has shape \(5,\)"):
        loss(images, labels, ref_emb=texts, ref_labels=labels[:5])


def test_their_losses_are_objectives() -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    images, texts = _pair()
    labels = torch.arange(6)
    for theirs in (
        losses.NTXentLoss(temperature=0.2),
        losses.TripletMarginLoss(margin=0.3),
        losses.MultiSimilarityLoss(),
        losses.CircleLoss(),
        losses.ContrastiveLoss(),
        losses.SupConLoss(temperature=0.2),
    ):
        made = from_metric_learning(theirs)
        plain = theirs(images, labels, ref_emb=texts, ref_labels=labels.clone())
        plain = (plain + theirs(texts, labels, ref_emb=images, ref_labels=labels.clone())) / 2
        ours = made(images, texts)
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-6)
        got = torch.autograd.grad(ours, [images, texts])
        for one, other in zip(got, torch.autograd.grad(plain, [images, texts]), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
        weights = made.weigh((normalize(images) @ normalize(texts).T).detach())
        torch.testing.assert_close(weights.value, plain.detach(), rtol=1e-5, atol=1e-6)
        assert type(theirs).__name__ in str(made)


def test_their_nt_xent_is_ours() -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    S = 2 * torch.rand(5, 5, generator=torch.Generator().manual_seed(1)) - 1
    theirs = from_metric_learning(losses.NTXentLoss(temperature=0.1)).weigh(S)
    ours = simgrad.objective("nt-xent(tau=0.1)").weigh(S)
    for one, other in zip(theirs[:3], ours[:3], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_an_objective_says_why() -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    from pytorch_metric_learning.distances import LpDistance, SNRDistance

    with pytest.raises(InputError, match="not a Linear"):
        from_metric_learning(torch.nn.Linear(2, 2))
    with pytest.raises(InputError, match="SNRDistance"):
        from_metric_learning(losses.TripletMarginLoss(distance=SNRDistance()))
    with pytest.raises(InputError, match="p=1"):
        from_metric_learning(losses.TripletMarginLoss(distance=LpDistance(p=1)))
    with pytest.raises(InputError, match="class vectors"):
        from_metric_learning(losses.NormalizedSoftmaxLoss(3, 4))
    shared = torch.tensor([[True, True, False], [False, True, True], [False, False, True]])
    with pytest.raises(InputError, match="query"):
        from_metric_learning(losses.NTXentLoss()).weigh(torch.rand(3, 3), shared)


def test_a_loss_that_reads_embeddings_is_refused() -> None:
    """It would be a constant: what it is given carries the similarities only."""
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    for name in ("AngularLoss", "ThresholdConsistentMarginLoss"):
        with pytest.raises(InputError, match=rf"{name} reads the embeddings"):
            from_metric_learning(getattr(losses, name)())
    with pytest.raises(InputError, match="does not compare images with captions"):
        from_metric_learning(losses.FastAPLoss())


def test_a_loss_that_samples_is_an_objective() -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    before = torch.get_rng_state()
    from_metric_learning(losses.TripletMarginLoss(triplets_per_anchor=1))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning.losses", None)
    with pytest.raises(InputError, match="pip install pytorch-metric-learning"):
        from_metric_learning(torch.nn.Linear(2, 2))


# --- sentence-transformers


def _small_model():  # type: ignore[no-untyped-def]
    """A bag of random word vectors: trains in a moment, needs no download."""
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[UNK]", "a", "dog", "cat", "red", "blue", "car", "runs", "sleeps", "tree", "house"]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    torch.manual_seed(0)
    return library.SentenceTransformer(
        modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu"
    )


LEFT = ["a red car", "a blue car", "a dog runs", "a cat sleeps", "a tree", "a house"]
RIGHT = ["red car", "blue car", "dog runs", "cat sleeps", "tree", "house"]


@pytest.mark.parametrize("spec", ["nt-xent(learned=true)", "goal"])
def test_a_real_trainer_trains(spec: str, tmp_path: Path) -> None:
    model = _small_model()
    datasets = pytest.importorskip("datasets")
    from sentence_transformers import (
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )

    loss = SentenceTransformerLoss(model, spec)
    data = datasets.Dataset.from_dict({"image": LEFT, "caption": RIGHT, "label": list(range(6))})
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path), num_train_epochs=15, per_device_train_batch_size=6,
        learning_rate=0.05, use_cpu=True, report_to=[], save_strategy="no", logging_steps=1,
    )  # fmt: skip
    before = [p.detach().clone() for p in loss.parameters()]
    trainer = SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=loss)
    trainer.train()
    history = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert history[-1] < history[0]
    for old, new in zip(before, loss.parameters(), strict=True):
        assert not torch.equal(old, new.detach().cpu())  # a learned temperature too
    similarity = model.similarity(model.encode(LEFT), model.encode(RIGHT))
    assert (similarity.argmax(1) == torch.arange(6)).all()


def test_labels_are_groups_of_positives() -> None:
    model = _small_model()
    loss = SentenceTransformerLoss(model, "nt-xent")
    columns = [model.tokenize(LEFT), model.tokenize(RIGHT)]
    labels = torch.tensor([0, 0, 1, 2, 3, 4])
    left, right = (model(c)["sentence_embedding"] for c in columns)
    mask = labels[:, None] == labels[None]
    torch.testing.assert_close(
        loss(columns, labels), simgrad.objective("nt-xent")(left, right, mask)
    )
    assert not torch.equal(loss(columns), loss(columns, labels))
    with pytest.raises(InputError, match="1 column"):
        loss(columns[:1])
    with pytest.raises(InputError, match=r"label.*float32"):
        loss(columns, torch.tensor([0.5, 0.1, 1.0, 0.2, 0.3, 0.4]))
    with pytest.raises(InputError, match=r"label.*\(6, 2\)"):
        loss(columns, labels[:, None].expand(6, 2))
    assert loss.get_config_dict() == {"objective": "nt-xent"}


def test_further_columns_are_hard_negatives() -> None:
    model = _small_model()
    loss = SentenceTransformerLoss(model, "nt-xent")
    columns = [model.tokenize(LEFT), model.tokenize(RIGHT), model.tokenize(RIGHT[::-1])]
    left, right, hard = (model(c)["sentence_embedding"] for c in columns)
    nobodys = torch.full((6,), -1)
    captions, own = torch.cat([right, hard]), torch.cat([torch.arange(6), nobodys])
    wanted = simgrad.objective("nt-xent")(left, captions, own)
    torch.testing.assert_close(loss(columns), wanted)
    # With labels that are all different, the same; two rows of one label are two positives.
    torch.testing.assert_close(loss(columns, torch.arange(6)), wanted)
    labels = torch.tensor([0, 0, 1, 2, 3, 4])
    similarities = normalize(left) @ normalize(captions).T / 0.1
    mask = torch.nn.functional.pad(labels[:, None] == labels[None], (0, 6))
    torch.testing.assert_close(loss(columns, labels), _nt_xent(similarities, mask))


def _nt_xent(logits: Tensor, mask: Tensor) -> Tensor:
    """The mean over a query's positives of -log softmax, by hand; nobody's captions do not ask."""
    total = logits.new_zeros(())
    for scores, own in ((logits, mask), (logits.T, mask.T)):
        asked = zip(-scores.log_softmax(1), own, strict=True)
        values = [row[there].mean() for row, there in asked if there.any()]
        total = total + torch.stack(values).mean() / 2
    return total


def test_a_loss_that_remembers_starts_without_our_batch() -> None:
    from pytorch_metric_learning.losses import DynamicSoftMarginLoss

    random = torch.Generator().manual_seed(0)
    x, y = torch.nn.functional.normalize(torch.randn(2, 8, 5, generator=random), dim=2)
    labels = torch.arange(8)
    fresh = DynamicSoftMarginLoss()(x, labels, ref_emb=y, ref_labels=labels.clone())
    ours = from_metric_learning(DynamicSoftMarginLoss())
    ours.copes_with_gaps()
    found = ours._value(x @ y.T, labels, labels.clone())  # type: ignore[operator]
    torch.testing.assert_close(found, fresh)


def test_labels_that_are_scores_or_answers_are_refused() -> None:
    loss, x = MetricLearningLoss("nt-xent"), torch.randn(4, 3)
    whole = torch.tensor([0.0, 1.0, 2.0, 3.0])
    assert float(loss(x, whole, ref_emb=x, ref_labels=whole)) > 0
    with pytest.raises(InputError, match="ref_labels has fractions"):
        loss(x, whole, ref_emb=x, ref_labels=whole / 4)

    class Model(torch.nn.Module):
        def forward(self, column):  # type: ignore[no-untyped-def]
            return {"sentence_embedding": column["x"]}

    columns = [{"x": x}, {"x": x}]
    theirs = SentenceTransformerLoss(Model(), "nt-xent")
    for answers in (torch.tensor([0, 1, 1, 0]), torch.tensor([False, True, True, True])):
        with pytest.raises(InputError, match="yes or no"):
            theirs(columns, answers)
    assert float(theirs(columns, torch.tensor([2, 3, 3, 2]))) > 0
