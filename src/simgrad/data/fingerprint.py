"""Whether data are the same as before, and if not, what of them differs.

A fingerprint is one line of text: a hash of everything, then a hash of each part, by split:

    9f2c... train.captions=1b7a... train.pairing=03cd... train.pictures=... val.captions=...

It follows the content: captions, pairing, the images' names, the files behind features and
pictures (core/derived.py). A copy of the data has the same one; where the data lie does not count.
"""

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from simgrad.core.files import sha256

if TYPE_CHECKING:
    from simgrad.data.base import Dataset, Split

_DIGITS = 16  # of a part's hash
_WHOLE = "-whole"  # of every byte; compared where both were asked to verify
# How a part is called when it differs.
_WORDS = {"names": "the images' names", "spec": "what is generated", "vectors": "caption vectors"}


class Fingerprint(str):
    """What a data set holds, as one line of hashes; `parts` has them by name, "train.captions".

    Examples:
        >>> found = simgrad.data.open_dataset("scenes(train=4, val=1, test=1)").fingerprint()
        >>> list(found.parts)
        ['train.spec', 'val.spec', 'test.spec']
    """

    __slots__ = ()

    @classmethod
    def of(cls, parts: dict[str, str]) -> Self:
        """From the full hashes of the parts."""
        whole = sha256(*(f"{name}={value}\n" for name, value in sorted(parts.items())))
        shown = (f"{name}={value[:_DIGITS]}" for name, value in parts.items())
        return cls(" ".join([whole, *shown]))

    @property
    def parts(self) -> dict[str, str]:
        """Empty for fingerprints of earlier versions, which had none."""
        return dict(word.rsplit("=", 1) for word in self.split(" ")[1:] if "=" in word)


def fingerprint(dataset: "Dataset", verify: bool = False) -> Fingerprint:
    """Of what a data set holds now; `verify` adds parts for which every byte was read."""
    parts: dict[str, str] = {}
    for split in dataset.splits.values():
        for name, value in _parts(split, dataset.identity, verify).items():
            parts[f"{split.name.replace(' ', '_')}.{name}"] = value
    return Fingerprint.of(parts)


def _parts(split: "Split", identity: str | None, verify: bool) -> dict[str, str]:
    if identity is not None:  # it determines names, captions, pairing and pictures
        parts = {"spec": sha256(identity)}
    else:
        parts = {
            "captions": _texts(split.captions),
            "pairing": sha256(split.image_of_caption.tobytes()),
            "names": _texts(split.image_names),
        }
        if split.pictures is not None:
            parts["pictures"] = split.pictures.content()
    if split.features is not None:
        parts["features"] = split.features.content()
    if split.caption_vectors is not None:
        parts["vectors"] = split.caption_vectors.content()
    held = {
        "pictures": split.pictures,
        "features": split.features,
        "vectors": split.caption_vectors,
    }
    for name, holder in held.items():
        if verify and name in parts and holder is not None:
            parts[name + _WHOLE] = holder.content(verify=True)
    return parts


def _texts(texts: Iterable[str]) -> str:
    return sha256("\0".join(texts))


def difference(before: str, now: str) -> list[str]:
    """What differs between two fingerprints, in words: "captions of train". Empty: nothing.

    Pictures that only one of them has do not count where both have features: you may delete the
    pictures once you have features.

    Examples:
        >>> first = simgrad.data.open_dataset("scenes(train=4, val=1, test=1)").fingerprint()
        >>> other = simgrad.data.open_dataset("scenes(train=5, val=1, test=1)").fingerprint()
        >>> simgrad.data.difference(first, other)
        ['what is generated of train', 'what is generated of val', 'what is generated of test']
    """
    if before == now:
        return []
    old, new = Fingerprint(before).parts, Fingerprint(now).parts
    if not old or not new:
        return ["the data, or how an earlier version described them"]
    words = []
    for split in dict.fromkeys(name.rpartition(".")[0] for name in (*old, *new)):
        if not any(name.startswith(f"{split}.") for name in old):
            words.append(f"the split {split}, which was not there")
        elif not any(name.startswith(f"{split}.") for name in new):
            words.append(f"the split {split}, which is gone")
        else:
            words += [f"{_WORDS.get(p, p)} of {split}" for p in _differing(split, old, new)]
    return words


def _differing(split: str, old: dict[str, str], new: dict[str, str]) -> list[str]:
    names = dict.fromkeys(name for name in (*old, *new) if name.rpartition(".")[0] == split)
    differ = []
    for name in names:
        part = name.rpartition(".")[2]
        comparable = (name in old and name in new) or not part.endswith(_WHOLE)
        if comparable and old.get(name) != new.get(name):
            differ.append(part.removesuffix(_WHOLE))
    pictures, features = f"{split}.pictures", f"{split}.features"
    if (pictures in old) != (pictures in new) and features in old and features in new:
        differ.remove("pictures")
    return list(dict.fromkeys(differ))


def changed(recorded: str, dataset: "Dataset", verify: bool = False) -> list[str]:
    """What of a data set is not as a run recorded it, in words; empty: nothing that is known.

    `recorded` may come from an earlier version, which saw names, captions, pairing and the shape of
    the features, but not what is in the files.
    """
    if Fingerprint(recorded).parts:
        return difference(recorded, fingerprint(dataset, verify))
    if recorded == earlier_fingerprint(dataset):
        return []
    return ["captions, pairing, the images' names or the shape of the features"]


def earlier_fingerprint(dataset: "Dataset") -> str:
    """As versions up to 0.1.0 made it, for what they recorded."""
    digest = hashlib.sha256()

    def add(texts: Iterable[str]) -> None:
        digest.update("\0".join(texts).encode("utf-8", "surrogatepass") + b"\1")

    for split in dataset.splits.values():
        add([split.name, split.features.header if split.features else ""])
        if dataset.identity is not None:
            add([dataset.identity])
            continue
        add(split.image_names)
        add(split.captions)
        digest.update(split.image_of_caption.tobytes())
    return digest.hexdigest()
