"""Freezing and thawing a pretrained image network while training goes on."""

from torch import nn

from simgrad.models.layers import Tower


def set_backbone(model: nn.Module, trained: bool) -> None:
    """Thaw or freeze every backbone that the model's settings allow to be trained."""
    config = getattr(model, "config", None)
    if not getattr(config, "finetune", False):
        return
    for module in model.modules():
        if isinstance(module, Tower) and module.finetune != trained:
            module.finetune = trained
            for parameter in module.parameters():
                parameter.requires_grad_(trained)
