"""Fine-tuning a CLIP: captions a second and memory, beside a plain loop and a peer's trainer.

    python -m benchmarks finetune                # two cores: a tiny CLIP, float32 and bf16
    python -m benchmarks finetune --device cuda  # ViT-B/32 at 224 pixels, bf16, batch 256

All three train the same random CLIP, saved once, on the same pictures and captions with the softmax
of CLIP, from pictures in memory to new weights; the last epoch is timed, without evaluation.
simgrad cuts pictures and tokenises captions once, before the first epoch; the others as they go.
The plain loop is transformers' model and processor in a DataLoader with workers. The peer is
sentence-transformers' trainer with MultipleNegativesRankingLoss; with GradCache, its cached form,
in pieces of a quarter. On a CPU each has a process of its own, and memory is what it takes above
its imports.
"""

import functools
import gc
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from common import MIB, Row, command, goal, in_worker, peak_above, row

_SIZES = {  # pictures, batch, pixels, settings of a tower
    "cuda": (2048, 256, 224, None),
    "cpu": (480, 16, 32, {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                         "num_attention_heads": 2}),
}  # fmt: skip
_PRECISIONS = {"cuda": ("bf16",), "cpu": ("float32", "bf16")}
_WORKERS = 8


def run(quick: bool = False) -> list[Row]:
    return _rows("cpu", quick)


def run_cuda(quick: bool = False) -> list[Row]:
    return _rows("cuda", quick)


def _rows(device: str, quick: bool) -> list[Row]:
    pictures, batch, pixels, tower = _SIZES[device]
    pictures = pictures // 2 if quick else pictures
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as place:
        _save_clip(Path(place) / "clip", pixels, tower)
        data = f"scenes(train={pictures}, val=16, test=0)"  # the processor enlarges pictures
        for precision in _PRECISIONS[device]:
            for piece in (None, batch // 4):
                job = {"folder": place, "data": data, "batch": batch, "piece": piece,
                       "precision": precision, "device": device}  # fmt: skip
                found += _beside(job)
    return found


def _beside(job: dict[str, Any]) -> list[Row]:
    """Ours and its peers, with or without GradCache."""
    setting = f"{job['device']}, {job['precision']}, batch {job['batch']}"
    if job["piece"]:
        setting += f", pieces of {job['piece']}"
    ours = _measured("ours", job)
    peers = ["sentence-transformers"] if job["piece"] else ["sentence-transformers", "a plain loop"]
    found: list[Row] = []
    for name in peers:
        theirs = _measured(name, job)
        if ours is None or theirs is None:
            found.append(row(f"finetune: ours / {name}", setting, why="it failed, or is not here"))
            continue
        ratio = ours[0] / theirs[0]
        found.append(
            row(
                f"finetune: ours / {name}",
                setting,
                ratio=ratio,
                figure=theirs[0],
                unit="{:,.0f} captions/s",
                peak_mib=theirs[1],
                **goal("not slower", ratio >= 1, "slower"),
            )
        )
    if ours is not None:
        found.append(
            row("finetune: ours", setting, figure=ours[0], unit="{:,.0f} captions/s",
                peak_mib=ours[1])
        )  # fmt: skip
    return found


def _measured(way: str, job: dict[str, Any]) -> tuple[float, float] | None:
    """Captions a second of the second epoch, and the most memory."""
    begun = time.perf_counter()
    if job["device"] == "cpu":
        told = in_worker(__file__, {"way": way, **job})
        if told is None:
            return None
        speed, peak = told["speed"], told["peak"]
    else:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        try:
            speed = _WAYS[way](**job)
        except ImportError as error:
            print(f"  {way}: {error}", file=sys.stderr)
            return None
        peak = torch.cuda.max_memory_allocated() / MIB
    seconds = time.perf_counter() - begun
    print(f"  {way}: {speed:,.0f} captions/s, {seconds:.0f} s in all", file=sys.stderr, flush=True)
    return speed, peak


def worker(job: dict[str, Any]) -> dict[str, float]:
    """One way in a process of its own; imports and pictures are there before memory is read."""
    import sentence_transformers  # noqa: F401
    import transformers  # noqa: F401

    from simgrad.training import rounds  # noqa: F401

    way = _WAYS[job.pop("way")]
    _pairs(job["data"])
    speeds: list[float] = []
    peak = peak_above(lambda: speeds.append(way(**job)))
    return {"speed": speeds[0], "peak": peak}


def _save_clip(folder: Path, pixels: int, tower: dict[str, int] | None) -> None:
    """A random CLIP with word pieces of the scenes' captions, as simgrad would export it."""
    from simgrad.data.subwords import WordPieces
    from simgrad.models import Inputs, build, save
    from simgrad.retriever.opening import open_folder

    captions = _pairs("scenes(train=200, val=2, test=0)")[1]
    words = WordPieces.build(captions)
    sizes = f"size={pixels}, patch={pixels // 7 if tower is None else 8}"
    if tower is not None:
        sizes += f", width={tower['hidden_size']}, layers=2, heads=2, dimension=64"
    torch.manual_seed(0)
    model = build(f"clip(source=none, {sizes})", Inputs.of("pixels", (3,), words))
    save(folder / "checkpoint", model, words.cut(model.longest))
    open_folder(folder / "checkpoint", device="cpu").export(folder / "out", "transformers")


@functools.cache
def _pairs(data: str) -> tuple[list[Any], list[str]]:
    """Pictures and one caption of each."""
    from simgrad.data import open_dataset

    split = open_dataset(data).split("train")
    assert split.pictures is not None
    pictures = [split.pictures.picture(i) for i in range(split.num_images)]
    return pictures, [split.captions[5 * i] for i in range(split.num_images)]


def _ours(
    folder: str, data: str, batch: int, piece: int | None, precision: str, device: str
) -> float:
    from simgrad.runs.recipe import Recipe
    from simgrad.training.rounds import train

    recipe = Recipe(
        data=data, model=f"clip(source={folder}/clip/out)", batch=batch, micro_batch=piece,
        objective="nt-xent(learned=true)", optimizer="adamw", lr=1e-5, weight_decay=0.1, epochs=2,
        sampler="distinct", precision=precision, device=device,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        done = train(recipe, place, quiet=True)
        if not done.finished:
            raise RuntimeError("stopped before its end: no figure")
        return float(done.history[-1]["samples_per_second"])


def _plain(
    folder: str, data: str, batch: int, piece: int | None, precision: str, device: str
) -> float:
    import transformers
    from torch.utils.data import DataLoader

    source = f"{folder}/clip/out"
    net = transformers.AutoModel.from_pretrained(source, dtype=torch.float32).to(device).train()
    processor = transformers.AutoProcessor.from_pretrained(source)
    pairs = list(zip(*_pairs(data), strict=True))

    def collate(some: list[Any]) -> Any:
        images, texts = zip(*some, strict=True)
        return processor(images=list(images), text=list(texts), padding=True, return_tensors="pt")

    loader: Any = DataLoader(
        pairs,  # type: ignore[arg-type]
        batch,
        shuffle=True,
        drop_last=True,
        collate_fn=collate,
        num_workers=_WORKERS if device == "cuda" else 0,
        persistent_workers=device == "cuda",
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5, weight_decay=0.1, fused=True)
    seconds = 0.0
    for _ in range(2):
        start = time.perf_counter()
        for given in loader:
            moved = {name: value.to(device, non_blocking=True) for name, value in given.items()}
            with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
                loss = net(**moved, return_loss=True).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    return len(loader) * batch / seconds


def _sentence_transformers(
    folder: str, data: str, batch: int, piece: int | None, precision: str, device: str
) -> float:
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        losses,
    )
    from transformers import TrainerCallback

    pictures, captions = _pairs(data)
    model = SentenceTransformer(f"{folder}/clip/out", device=device)
    loss = (
        losses.MultipleNegativesRankingLoss(model)
        if piece is None
        else losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=piece)
    )
    moments: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_epoch_begin(self, *_: Any, **__: Any) -> None:
            moments.append(time.perf_counter())

        def on_epoch_end(self, *_: Any, **__: Any) -> None:
            if device == "cuda":
                torch.cuda.synchronize()
            moments.append(time.perf_counter())

    arguments = SentenceTransformerTrainingArguments(
        output_dir=f"{folder}/trainer", num_train_epochs=2, learning_rate=1e-5,
        per_device_train_batch_size=batch, bf16=precision == "bf16", use_cpu=device == "cpu",
        dataloader_num_workers=_WORKERS if device == "cuda" else 0, dataloader_drop_last=True,
        save_strategy="no", logging_strategy="no", report_to="none", disable_tqdm=True,
    )  # fmt: skip
    trainer = SentenceTransformerTrainer(
        model=model, args=arguments, loss=loss, callbacks=[Clock()],
        train_dataset=Dataset.from_dict({"anchor": pictures, "positive": captions}),
    )  # fmt: skip
    trainer.train()
    return len(pictures) // batch * batch / (moments[3] - moments[2])


_WAYS = {"ours": _ours, "sentence-transformers": _sentence_transformers, "a plain loop": _plain}

if __name__ == "__main__":
    command(__doc__, run, run_cuda, worker)
