"""VSE-infinity: precomp/ as SCAN's, images, and id_mapping.json from image ids to files.

ROOT/precomp/SPLIT_{caps,ids}.txt with ROOT/images or ROOT/flickr30k-images for raw pictures, and
SPLIT_ims.npy in precomp/ where features are used. COCO's cxc_annots/testall_capids.txt gives the
ids of the test captions.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.data.arrays import open_features
from simgrad.data.base import Dataset, Split
from simgrad.data.layouts.base import Layout, declare
from simgrad.data.layouts.building import read_lines
from simgrad.data.layouts.precomputed import keep_published, read_split, split_files
from simgrad.data.log import Log
from simgrad.data.picture_files import FilePictures, find_root


@declare(
    "vse-infinity",
    paper="Chen et al., CVPR 2021",
    description="id_mapping.json, precomp/ and images",
)
@dataclass(frozen=True)
class VSEInfinity(Layout):
    """Captions by line, images by id."""

    def parts(self, path: Path) -> dict[str, bool]:
        return {
            "id_mapping.json": (path / "id_mapping.json").is_file(),
            "precomp/": (path / "precomp").is_dir(),
        }

    def read(self, path: Path, log: Log, published: bool) -> Dataset:
        file = path / "id_mapping.json"
        mapping = read_json(file)
        if not isinstance(mapping, dict) or not all(isinstance(v, str) for v in mapping.values()):
            raise InputError(f"{file}: must map image ids to file names.")
        folder = path / "precomp"
        names = split_files(folder)
        if not names:
            raise InputError(f"{folder}: no SPLIT_caps.txt there.")
        splits: dict[str, Split] = {}
        notes: list[str] = []
        for name in names:
            ims = folder / f"{name}_ims.npy"
            try:
                array = open_features(ims) if ims.exists() else None
                split = _name_images(
                    read_split(folder, name, array, log, path.name), mapping, folder, name
                )
            except InputError as error:
                log.whole_file(folder / f"{name}_caps.txt", error)
                continue
            split = _with_caption_ids(split, path, name, log)
            splits[split.name] = keep_published(split, notes) if published else split
        return Dataset(path.name, "", _with_pictures(splits, path, notes), tuple(notes))


def _name_images(split: Split, mapping: dict[str, str], folder: Path, name: str) -> Split:
    """File names for ids."""
    if not (folder / f"{name}_ids.txt").is_file():
        return split
    for row, identifier in enumerate(split.image_names):
        if identifier not in mapping:
            raise InputError(
                f"{folder / f'{name}_ids.txt'}: image {row} has the id {identifier!r:.40}, "
                f"which {folder.parent / 'id_mapping.json'} does not have."
            )
    return replace(split, image_names=[mapping[identifier] for identifier in split.image_names])


def _with_caption_ids(split: Split, path: Path, name: str, log: Log) -> Split:
    file = path / "cxc_annots" / f"{name}_capids.txt"
    if not file.is_file():
        return split
    ids = [(line or "").strip() for line in read_lines(file, log)]
    if len(ids) != split.num_captions:
        raise InputError(f"{file}: {len(ids):,} ids for {split.num_captions:,} captions.")
    return replace(split, caption_ids=ids)


def _with_pictures(splits: dict[str, Split], path: Path, notes: list[str]) -> dict[str, Split]:
    files = [name for split in splits.values() for name in split.image_names[:20]]
    root = find_root(path, files)
    if root is None:
        notes.append(f"no pictures found in {path / 'images'}")
        return splits
    return {
        name: replace(split, pictures=FilePictures(root, split.image_names))
        for name, split in splits.items()
    }
