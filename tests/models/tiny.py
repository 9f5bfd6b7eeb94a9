"""Tiny random dual encoders, saved by transformers with processors and tokenizers of their own."""

import json
from pathlib import Path
from typing import Any

import torch
from PIL import Image

SIZE, PATCH = 32, 8
WORDS = [
    "a",
    "the",
    "dog",
    "cat",
    "runs",
    "sits",
    "on",
    "grass",
    "two",
    "red",
    "blue",
    "ball",
    "child",
    "plays",
    "with",
]
CAPTIONS = [
    "A dog runs on the grass",
    "two children play with a red ball",
    "A cat sits.",
    "the blue ball",
    "a dog",
]

_TOWER = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}


def pictures(n: int = 5, seed: int = 0) -> list[Image.Image]:
    """Smooth ones of different shapes."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for i in range(n):
        small = (torch.rand(4, 5, 3, generator=generator) * 255).byte().numpy()
        made.append(Image.fromarray(small).resize((40 + 11 * i, 71 - 5 * i), 3))
    return made


def scattered(net: Any) -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "logit" not in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return net.eval()


def picture_processor(family: str) -> Any:
    """How transformers cuts pictures without torchvision: the class of that name, before 5.x."""
    from importlib import import_module

    name = {"clip": "CLIP", "siglip": "Siglip", "siglip2": "Siglip2"}[family] + "ImageProcessor"
    place = f"transformers.models.{family}.image_processing"
    try:
        return getattr(import_module(f"{place}_pil_{family}"), f"{name}Pil")
    except ModuleNotFoundError:
        return getattr(import_module(f"{place}_{family}"), name)


def byte_pairs(folder: Path, vocab: dict[str, int], merges: list[tuple[str, str]]) -> Any:
    """CLIP's tokenizer; before 5.0 transformers made one of files alone."""
    import transformers as t

    if int(t.__version__.partition(".")[0]) >= 5:
        return t.CLIPTokenizer(vocab=vocab, merges=merges)
    folder.mkdir(exist_ok=True)
    files = folder / "vocab.json", folder / "merges.txt"
    files[0].write_text(json.dumps(vocab), "utf-8")
    files[1].write_text("\n".join(["#version: 0.2", *map(" ".join, merges)]) + "\n", "utf-8")
    return t.CLIPTokenizerFast(*map(str, files))


def clip_folder(folder: Path) -> Path:
    """CLIP with byte pairs, 77 tokens, a crop of its own and strange colours."""
    import transformers as t

    letters = [chr(c) for c in range(33, 127)]
    pieces = [*letters, *(f"{letter}</w>" for letter in letters), "th", "the</w>", "do", "dog</w>"]
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    merges = [("t", "h"), ("th", "e</w>"), ("d", "o"), ("do", "g</w>")]
    tokenizer = byte_pairs(folder, {piece: i for i, piece in enumerate(pieces)}, merges)
    ends = {"bos_token_id": len(pieces) - 2, "eos_token_id": len(pieces) - 1}
    config = t.CLIPConfig(
        text_config={**_TOWER, "vocab_size": len(pieces), "max_position_embeddings": 40, **ends},
        vision_config={**_TOWER, "image_size": SIZE, "patch_size": PATCH},
        projection_dim=12,
        logit_scale_init_value=3.1,
    )
    torch.manual_seed(0)
    scattered(t.CLIPModel(config)).save_pretrained(folder)
    processor = picture_processor("clip")(
        size={"shortest_edge": 37},
        crop_size={"height": SIZE, "width": SIZE},
        image_mean=[0.4, 0.5, 0.6],
        image_std=[0.3, 0.2, 0.25],
    )
    tokenizer.model_max_length = 40
    t.CLIPProcessor(processor, tokenizer).save_pretrained(folder)
    return folder


def siglip_folder(folder: Path) -> Path:
    """SigLIP: squeezed pictures, words filled up to 12 places."""
    import transformers as t

    tokenizer = words_tokenizer(t.PreTrainedTokenizerFast, model_input_names=["input_ids"])
    config = t.SiglipConfig(
        text_config={
            **_TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 12,
            "projection_size": 16,
        },
        vision_config={**_TOWER, "image_size": SIZE, "patch_size": PATCH},
    )  # fmt: skip
    torch.manual_seed(0)
    net = t.SiglipModel(config)
    with torch.no_grad():
        net.logit_scale.fill_(2.5)
        net.logit_bias.fill_(-7.0)
    scattered(net).save_pretrained(folder)
    processor = picture_processor("siglip")(size={"height": SIZE, "width": SIZE}, resample=2)
    t.SiglipProcessor(processor, tokenizer).save_pretrained(folder)
    return folder


def siglip2_folder(folder: Path) -> Path:
    """SigLIP 2 as NaFlex: pictures of any shape as at most 20 patches, filling on the left."""
    import transformers as t

    names = ["input_ids", "attention_mask"]
    tokenizer = words_tokenizer(
        t.PreTrainedTokenizerFast, padding_side="left", model_input_names=names
    )
    config = t.Siglip2Config(
        text_config={
            **_TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 64,
            "projection_size": 16,
        },
        vision_config={**_TOWER, "num_patches": 16, "patch_size": PATCH},
    )  # fmt: skip
    torch.manual_seed(0)
    net = t.Siglip2Model(config)
    with torch.no_grad():
        net.logit_scale.fill_(2.0)
        net.logit_bias.fill_(-5.0)
    scattered(net).save_pretrained(folder)
    processor = picture_processor("siglip2")(patch_size=PATCH, max_num_patches=20)
    t.Siglip2Processor(processor, tokenizer).save_pretrained(folder)
    return folder


def words_tokenizer(kind: Any, **options: Any) -> Any:
    """A tokenizer of whole words, lower-cased, with an end."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    words = ["<pad>", "</s>", "<unk>", *WORDS]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return kind(
        tokenizer_object=inner,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=12,
        **options,
    )


FOLDERS = {"clip": clip_folder, "siglip": siglip_folder, "siglip2": siglip2_folder}
