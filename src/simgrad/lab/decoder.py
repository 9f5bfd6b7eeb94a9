"""The process that decodes pictures from strangers: `python -m simgrad.lab.decoder`.

It reads jobs from standard input and answers on standard output until the input ends. Whatever a
picture does to the decoder, it does it here: the process has little memory, may write no file and
knows nothing. A job is 12 bytes (length of the settings and of the picture), settings as JSON, the
picture; an answer has the same form, with JSON that says what follows or why nothing does.
"""

import contextlib
import io
import json
import struct
import sys
from typing import Any

from simgrad.data.pictures import open_image, reason_of, upright

HEAD = struct.Struct(">IQ")
_MEMORY = 2 << 30


class Refused(Exception):
    """A picture that is not decoded, and why."""


def message(settings: dict[str, Any], data: bytes = b"") -> bytes:
    """A job or an answer."""
    head = json.dumps(settings).encode()
    return HEAD.pack(len(head), len(data)) + head + data


def decode(data: bytes, settings: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Check the size before anything is decoded, then shrink to `side`."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # we count ourselves
    try:
        with open_image(io.BytesIO(data)) as picture:
            width, height = picture.size
            if width < 1 or height < 1 or width * height > settings["pixels"]:
                raise Refused(
                    f"it has {width:,} x {height:,} pixels; "
                    f"{settings['pixels']:,} in all are allowed"
                )
            side = settings["side"]
            picture.draft("RGB", (side, side))
            small = upright(picture)
            small.thumbnail((side, side))
    except Refused:
        raise
    except MemoryError:
        raise Refused("it takes too much memory to decode") from None
    except Exception as error:  # damaged files make decoders raise nearly anything
        raise Refused(reason_of(error).rstrip(".")) from None
    return {"ok": True, "width": small.width, "height": small.height}, _packed(small, settings)


def _packed(picture: Any, settings: dict[str, Any]) -> bytes:
    if settings["format"] == "rgb":
        return bytes(picture.tobytes())
    buffer = io.BytesIO()
    picture.save(buffer, settings["format"], quality=88)
    return buffer.getvalue()


def _confine() -> None:
    """Little memory, no file: as far as this system can."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has none of these limits
        return
    for what, most in (
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        with contextlib.suppress(ValueError, OSError):  # macOS does not limit addresses
            resource.setrlimit(what, (most, most))


def main() -> None:
    """Answer jobs until the input ends."""
    _confine()
    source, answers = sys.stdin.buffer, sys.stdout.buffer
    while len(head := source.read(HEAD.size)) == HEAD.size:
        length, size = HEAD.unpack(head)
        settings, data = json.loads(source.read(length)), source.read(size)
        try:
            answer = message(*decode(data, settings))
        except Refused as error:
            answer = message({"ok": False, "reason": str(error)})
        answers.write(answer)
        answers.flush()


if __name__ == "__main__":
    main()
