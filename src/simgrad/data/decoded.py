"""Pictures decoded once: bytes of one size, which a data set then holds as it holds features."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.core.files import sha256
from simgrad.data.base import Pictures, Rows, Split
from simgrad.data.cutting import open_picture
from simgrad.data.log import HOW_TO_SKIP
from simgrad.data.transforms import Transform, named

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class DecodedPictures:
    """A split's pictures as a transform cuts them for evaluation."""

    pictures: Pictures
    style: str  # a name of simgrad.data.transforms
    size: int
    workers: int = 1

    @staticmethod
    def of(split: Split, style: str, size: int, workers: int = 1) -> "DecodedPictures":
        """The pictures of a split."""
        if split.pictures is None:
            raise InputError(
                f"{split.dataset}, split '{split.name}' has no pictures, and the model reads them."
            )
        return DecodedPictures(split.pictures, style, size, max(1, workers))

    def __len__(self) -> int:
        return len(self.pictures)

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, self.size, self.size)

    @property
    def header(self) -> str:
        return f"pictures {self.style} {self.size}"

    def content(self, verify: bool = False) -> str:
        return sha256(self.header, self.pictures.content(verify))

    def rows(self, indices: Rows) -> npt.NDArray[Any]:
        """(rows, 3, size, size) bytes."""
        transform = named(self.style, train=False, size=self.size)
        whole = np.empty((len(indices), *self.shape), dtype=np.uint8)

        def decode(place: int) -> None:
            whole[place] = self._decode(int(indices[place]), transform)

        if self.workers < 2:
            for place in range(len(indices)):
                decode(place)
            return whole
        with ThreadPoolExecutor(self.workers, thread_name_prefix="simgrad-decode") as pool:
            for _ in pool.map(decode, range(len(indices))):
                pass
        return whole

    def _decode(self, row: int, transform: Transform) -> npt.NDArray[Any]:
        return transform(self._picture(row), None).numpy()

    def _picture(self, row: int) -> "Image":
        path = self.pictures.path(row)
        try:
            if path is None:
                return self.pictures.picture(row)
            # A large JPEG is decoded at a half or a quarter, if that is well above what is needed.
            return open_picture(path, str(path), least=self.size * 3 // 2)
        except InputError as error:
            raise InputError(f"{error} {HOW_TO_SKIP}") from None
