"""`simgrad serve`: the lab page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from simgrad.core.console import console
from simgrad.core.errors import InputError
from simgrad.serve.app import create_app
from simgrad.serve.lab import Lab, find_paths
from simgrad.serve.safety import Access

if TYPE_CHECKING:
    pass


def serve(
    paths: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[STUDY|RUN ...]", help_behavior_hint=""),
    ] = (),
    *,
    port: int = 8000,
    host: str = "127.0.0.1",
    token: str | None = None,
    device: str = "auto",
) -> None:
    """The lab page: runs and studies as they go, search, and the objective bench, in a browser.

    Args:
        paths: run and study folders; runs/ and studies/ here if left out
        port: where to listen; 0 takes a free one
        host: another address than this machine's own needs a token
        token: what visitors must know; made up and printed where one is needed
        device: auto, cpu, cuda
    """
    try:
        import uvicorn

    except ImportError as error:
        raise InputError(
            f"the lab page needs {error.name}: `pip install simgrad[serve]`."
        ) from None

    if not 0 <= port <= 65535:
        raise InputError(f"--port is 0 to 65535, not {port}.")
    access = Access.for_host(host, token)
    lab = Lab(paths or find_paths(Path()), device=device)
    listening = listen(host, port)
    place = access.url(host, listening.getsockname()[1])
    console(stderr=True).print(f"simgrad lab page: {place}\nCtrl-C stops it.")
    settings: dict[str, Any] = {"log_level": "warning", "server_header": False}
    # Clients often give up an idle connection after 5 seconds; a server that does so at the same
    # moment cuts a request off now and then.
    settings |= {"timeout_keep_alive": 30, "timeout_graceful_shutdown": 3}
    server = uvicorn.Server(uvicorn.Config(create_app(lab, access), **settings))
    server.run(sockets=[listening])


def listen(host: str, port: int) -> Any:
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)  # from here on the address that is printed can be reached
    except (OSError, UnicodeError, OverflowError) as error:
        listening.close()
        raise InputError(f"cannot listen on {host} port {port}: {error}.") from None
    return listening
