"""Words that reports, the lab page and the documents use, each with its meaning.

`docs/glossary.md` is made from them: `python docs/builder/glossary.py`.
"""

import re

from simgrad.pages.blocks import Inline, Term

MEANINGS = {
    "95% interval": (
        "made so that it holds the true value in 95 of 100 such experiments; it covers the choice "
        "of test images and, with several seeds, the luck of the seed"
    ),
    "p": (
        "how often chance alone would make a difference at least this large. The smaller, the "
        "surer. With more than two systems, corrected for the number of comparisons"
    ),
    "baseline": "the setting that all others are compared with",
    "failed": "runs that collapsed, diverged or stayed on the plateau",
    "seed": "which random numbers a run began with; several seeds show how much luck varies",
    "negatives": "items of the batch that do not belong to the query",
    "push": "the weight with which an objective drives a query and a negative apart",
    "triplet": "a query, its right answer (the positive) and a wrong one (a negative)",
    "epoch": "one pass over the training data",
    "loss": "what training makes smaller; losses of different objectives cannot be compared",
    "validation": "images kept out of training, on which the best moment of a run is chosen",
    "cross-retrieval rank": (
        "the worse of two ranks: of the text when searched from its image, and of the image when "
        "searched from its text. The image's other captions do not count; as there are fewer "
        "images than texts, a place among images counts as several"
    ),
    "i2t, t2i": "image to text: an image looks for its captions; text to image: the reverse",
    "R@K": "percentage of queries with a right answer among the first K results",
    "rsum": "sum of R@1, R@5 and R@10 in both directions; 600 at most",
    "mAP": "mean average precision: how high the right answers of a query stand in its list",
    "query": "the image or caption that looks for its partner; also called the anchor",
    "positive": "a caption that belongs to the image, or an image that belongs to the caption",
    "hardest negative": "the negative of a batch that is most similar to the query",
    "false negative": "a pair that counts as wrong although its caption is true of its image",
    "mined negative": (
        "a hard negative that was looked for in the whole training set; also called offline, while "
        "those of the batch are called online"
    ),
    "objective": "a rule that turns the similarities of a batch into weights; usually a loss",
    "spec": "a name with its settings, such as nt-xent(tau=0.05)",
    "GOAL": (
        "weights written down as triplet weight T times pair weights P+ and P-, instead of a loss "
        "(Xuan & Chen, WACV 2023)"
    ),
    "cell (T, P)": "one choice of GOAL's triplet weight and pair weight, such as (con, sig)",
    "AOQ": (
        "a second round of training with mined negatives: adaptive offline quintuplets (Chen, Deng "
        "& Luo, ECCV 2020)"
    ),
    "COCOS": (
        "counting contributing samples: how many negatives contribute to the gradient (Bleeker & "
        "de Rijke, ECIR 2022)"
    ),
    "plateau": "the beginning of a training in which all similarities stay nearly equal",
    "collapse": "all vectors become equal, so that nothing can be ranked",
    "GradCache": "a batch larger than memory is encoded in pieces, with its exact gradient",
    "not told apart": "the data and seeds of a study do not show a difference; *open* says the "
    "same of a rival of the leader",
    "trial": "one setting that a search tries; it is judged on validation and never tested",
    "layout": "how a data set is stored in files; simgrad recognises those in common use",
    "scenes": "drawn scenes with captions that come with simgrad, for trials without a download",
    "lab page": "the page in the browser that `simgrad serve` opens",
    "embedding": "the vector that a model makes of an image or a caption",
    "weight": (
        "how strongly an objective pulls a pair together (below 0) or pushes it apart (above 0): "
        "the derivative of the loss by the pair's similarity"
    ),
    "margin": "how much more similar than a negative the positive has to be",
    "temperature (tau)": (
        "divides the similarities in a softmax; the smaller, the fewer negatives count"
    ),
    "clip": "the largest length of a gradient; a longer one is shortened to it",
    "recipe": "a file with everything that determines one run: data, model, objective, schedule",
    "run": "one training with one seed, and its folder",
    "study": "many runs, of several settings and seeds, with one table",
    "checkpoint": "the stored weights of a model, with all that is needed to use it",
    "features": "vectors that a fixed image network made of the pictures, computed once",
    "tower": "one of the two networks of a model: for images, or for captions",
    "zero-shot": "a pretrained model as it is, without training on these data",
    "LoRA": "small low-rank changes of a pretrained network, which itself stays as it is",
    "WiSE-FT": "a mixture of pretrained and fine-tuned weights",
    "protocol": "which images and captions are ranked against which",
    "Holm's correction": (
        "makes p larger if several comparisons are made, since one may look clear by chance"
    ),
}


def explain(word: str) -> Term:
    """One of the words above."""
    return Term(word, MEANINGS[word])


def explained(text: str, **others: Inline) -> list[Inline]:
    """A text in which {word} is one of the words above, or one of `others`."""
    parts: list[Inline] = []
    for place, piece in enumerate(re.split(r"\{([^{}]+)\}", text)):
        if place % 2:
            parts.append(others[piece] if piece in others else explain(piece))
        elif piece:
            parts.append(piece)
    return parts
