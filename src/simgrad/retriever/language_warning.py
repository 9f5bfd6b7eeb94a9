"""A pretrained text network, and captions in a language that it seems not to know."""

from simgrad.data.base import Dataset
from simgrad.data.languages import seems_foreign
from simgrad.data.vocabulary import Tokenizer
from simgrad.models import RetrievalModel


def foreign_captions(model: RetrievalModel, tokenizer: Tokenizer, dataset: Dataset) -> str | None:
    """What to tell a person; None where nothing speaks against the captions."""
    if model.config.tokenizer_needs.network is None:  # its words are those of the captions
        return None
    captions = dataset.split(next(iter(dataset.splits))).captions
    language = seems_foreign(captions, tokenizer)
    if language is None:
        return None
    return (
        f"captions of {dataset.name} seem to be {language}, and the text network's tokenizer cuts "
        "them into far more pieces than English: it seems to know only English, and will find "
        f"little. Take a network that was trained on {language} too."
    )
