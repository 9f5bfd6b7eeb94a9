"""`simgrad serve`: the lab page."""

from pathlib import Path
from typing import Annotated

import tyro

from simgrad.core.console import console
from simgrad.core.errors import InputError

try:
    from simgrad.lab.app import create_app
    from simgrad.lab.lab import Lab, find_paths
    from simgrad.lab.safety import Access
    from simgrad.lab.server import listen, server
except ModuleNotFoundError as error:
    raise InputError(f"the lab page needs {error.name}: `pip install 'simgrad[serve]'`.") from None


def serve(
    paths: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[STUDY|RUN ...]", help_behavior_hint=""),
    ] = (),
    *,
    port: Annotated[int, tyro.conf.arg(metavar="PORT")] = 8000,
    host: Annotated[str, tyro.conf.arg(metavar="ADDRESS")] = "127.0.0.1",
    token: Annotated[str | None, tyro.conf.arg(metavar="TOKEN")] = None,
    device: Annotated[str, tyro.conf.arg(metavar="DEVICE")] = "auto",
) -> None:
    """Serve the lab page: runs and studies, search, and the objective bench.

    Args:
        paths: run and study folders (default: runs/ and studies/ here)
        port: port to listen on; 0 takes a free one
        host: address to listen on
        token: access token; if not given, one is generated and part of the printed link. none: no
            token, on this machine alone
        device: auto, cpu, cuda, cuda:N or mps
    """
    if not 0 <= port <= 65535:
        raise InputError(f"--port is 0 to 65535, not {port}.")
    access = Access.for_host(host, token)
    lab = Lab(paths or find_paths(Path()), device=device)
    listening = listen(host, port)
    place = access.url(host, listening.getsockname()[1])
    console(stderr=True).print(f"simgrad lab page: {place}\nCtrl-C stops it.")
    server(create_app(lab, access)).run(sockets=[listening])
