"""VSE++'s checkpoints, with features of images or with the image network that makes them."""

import dataclasses

from simgrad.models.base import Inputs
from simgrad.models.networks.backbones import NETWORKS
from simgrad.models.published.file import Mapped, PublishedFile, PublishedPart
from simgrad.models.vsepp import VsePlusPlus

_CROP = 224  # pixels a side that VSE++ crops


def vsepp(published: PublishedFile) -> Mapped:
    image = published.image
    config = VsePlusPlus(
        **published.word_sizes(),
        measure=str(published.only("measure", "cosine", "order")),
        absolute=bool(published.option("use_abs", False)),
        image_norm=not published.option("no_imgnorm", False),
        feature_norm=False,  # its code takes given features as they are
    )
    words = published.text.size("embed.weight")
    width = image.size("fc.weight", 1)
    state = {**published.linear(), **published.words()}
    if not image.has("cnn."):
        return Mapped(config, Inputs("features", (width,), words), state)
    network = str(published.option("cnn_type", "image network"))
    config = dataclasses.replace(config, feature_norm=True)  # it does normalise what it makes
    if network not in NETWORKS:
        image.pass_over(r"cnn\..*")
        left_out = f"its {network}: give the model that network's pooled features"
        return Mapped(config, Inputs("features", (width,), words), state, left_out)
    config = dataclasses.replace(
        config, backbone=network, finetune=bool(published.option("finetune", False))
    )
    state |= {_today(name, image): w for name, w in image.under("cnn", "cnn").items()}
    return Mapped(config, Inputs("pixels", (3, _CROP, _CROP), words), state)


def _today(name: str, image: PublishedPart) -> str:
    """Before 2017, VGG's two hidden layers were numbered one higher."""
    if "cnn.classifier.1.weight" in image:
        name = name.replace("classifier.1.", "classifier.0.").replace("fier.4.", "fier.3.")
    return name.replace("cnn.", "tower.body.network.", 1)
