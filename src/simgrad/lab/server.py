"""The server around the application: uvicorn, with limits on those who connect and say nothing.

Uvicorn closes a connection that stays silent after an answer, but waits for ever for the first
request, and for the rest of a header that has begun. `Patient` gives both a deadline, and keeps
the number of waiting connections small, so that nobody can use up what the system has of them.
"""

import asyncio
import socket
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from simgrad.core.errors import InputError

_HEADER_SECONDS = 10.0  # from a connection, or from a header's first byte, to its last
# Clients often give up an idle connection after 5 seconds; a server that does so at the same
# moment cuts a request off now and then.
_KEEP_ALIVE_SECONDS = 30
_MOST_WAITING = 100  # connections without a request; far fewer than files a process may open
_MOST_AT_ONCE = 512  # connections, or requests under way; beyond that the answer is 503
_BACKLOG = 64  # connections that the system holds until they are taken


class Patient(H11Protocol):
    """HTTP/1.1 by uvicorn, with a deadline for headers."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        self._deadline: asyncio.TimerHandle | None = None
        self._watch()
        waiting = [c for c in self.connections if isinstance(c, Patient) and c._waits]
        if len(waiting) > _MOST_WAITING:
            min(waiting, key=lambda c: c._since).transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    @property
    def _waits(self) -> bool:
        """No request is under way."""
        return self.conn.their_state is h11.IDLE and not self.transport.is_closing()

    def _watch(self) -> None:
        """A header that is on its way has one deadline, however slowly it comes."""
        if not self._waits:
            self._forget()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(_HEADER_SECONDS, self.transport.abort)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def server(app: Any, **settings: Any) -> uvicorn.Server:
    """A server for an application; `settings` are uvicorn's own."""
    limits: dict[str, Any] = {
        "http": Patient,
        "ws": "none",  # there are no web sockets here
        "limit_concurrency": _MOST_AT_ONCE,
        "timeout_keep_alive": _KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": 3,
        "backlog": _BACKLOG,
        "server_header": False,
        "log_level": "error",  # strangers shall not fill the terminal
    }
    return uvicorn.Server(uvicorn.Config(app, **{**limits, **settings}))


def listen(host: str, port: int) -> socket.socket:
    """A socket that can be reached from here on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except (OSError, UnicodeError, OverflowError) as error:
        listening.close()
        raise InputError(f"cannot listen on {host} port {port}: {error}.") from None
    return listening
