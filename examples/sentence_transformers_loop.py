"""An objective as a loss of sentence-transformers: pip install sentence-transformers datasets

    python examples/sentence_transformers_loop.py

The first column may hold pictures if the model takes them; here both hold captions of one
scene, so that nothing must be downloaded. `label` says which scene a row is of: two captions of
one scene never push each other away. What to see: the loss falls.
"""

from tempfile import TemporaryDirectory

import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.models import StaticEmbedding
from tiny_data import PAIRS, train, vocabulary
from tokenizers import Tokenizer, models, pre_tokenizers

from simgrad.integrations import SentenceTransformerLoss


def small_model() -> SentenceTransformer:
    """A bag of random word vectors. Put SentenceTransformer("clip-ViT-B-32") in its place."""
    ids = {word: i for i, word in enumerate(vocabulary.words)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    torch.manual_seed(0)
    bag = StaticEmbedding(tokenizer, embedding_dim=32)
    return SentenceTransformer(modules=[bag], device="cpu")


def main() -> tuple[float, float]:
    pairs = [train.captions_of(i)[:2] for i in range(PAIRS)]
    rows = {
        "first": [train.captions[int(a)] for a, _ in pairs],
        "second": [train.captions[int(b)] for _, b in pairs],
        "label": list(range(PAIRS)),
    }
    model = small_model()
    loss = SentenceTransformerLoss(model, "nt-xent(learned=true)")
    with TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=folder,
            num_train_epochs=8,
            per_device_train_batch_size=64,
            learning_rate=0.02,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="epoch",
            disable_tqdm=True,
        )
        trainer = SentenceTransformerTrainer(
            model=model, args=arguments, train_dataset=Dataset.from_dict(rows), loss=loss
        )
        trainer.train()
    losses = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    return losses[0], losses[-1]


if __name__ == "__main__":
    main()
