"""Who may ask what: hosts, tokens, sizes, headers. Pure ASGI, in front of everything else.

Bound to this machine alone, the server answers only to this machine's names, so that a page on
the web cannot reach it through a name of its own that points here. Everywhere it asks for a token,
as other users of a machine reach its ports too: `Authorization: Bearer TOKEN`, or ?token=TOKEN
once, as in the link that is printed; that becomes a cookie.
"""

import asyncio
import hmac
import ipaddress
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from simgrad.core.errors import InputError
from simgrad.lab.workers import UploadLimits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "simgrad_token"
NO_TOKEN = "none"
_SHORTEST = 16  # characters of a token
_IN_FLIGHT = 256 << 20  # bytes of all uploads that are arriving
_LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # "no-referrer" would make our own forms come from "null"
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(frozen=True)
class Access:
    """Which names the server answers to, and what a visitor must know."""

    hosts: frozenset[str] | None  # None: any, for it takes the token to get further
    token: str | None

    @staticmethod
    def for_host(host: str, token: str | None = None) -> "Access":
        """A token, made up if not given. Loopback: own names only, and NO_TOKEN is possible."""
        if token not in (None, NO_TOKEN) and len(token or "") < _SHORTEST:
            raise InputError(f"--token has {len(token or '')} characters; {_SHORTEST} at least.")
        try:
            local = host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            local = False
        if token == NO_TOKEN and not local:
            raise InputError(f"--token {NO_TOKEN} is for this machine alone, and {host} is not.")
        if token is None:
            token = secrets.token_urlsafe(24)
        return Access(_LOCAL | {host} if local else None, None if token == NO_TOKEN else token)

    def url(self, host: str, port: int) -> str:
        """Where to go in a browser."""
        name = f"[{host}]" if ":" in host else host
        query = f"?token={quote(self.token)}" if self.token else ""
        return f"http://{name}:{port}/{query}"

    def knows(self, offered: str) -> bool:
        """Compare in constant time."""
        if self.token is None:
            return True
        return hmac.compare_digest(offered.encode("utf-8", "replace"), self.token.encode())


class Guard:
    """Every request passes here first."""

    def __init__(self, app: App, access: Access, limits: UploadLimits) -> None:
        self.app, self.access, self.limits = app, access, limits
        self._arriving = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # there are no web sockets here
        send = _with_headers(send)
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        refusal = self._refuse(scope, headers)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        if scope["method"] not in {"GET", "HEAD", "OPTIONS"}:
            try:
                receive = await self._body(headers, receive)
            except _Refused as error:
                await _answer(send, error.status, error.reason, error.headers)
                return
        await self.app(scope, receive, send)

    def _refuse(
        self, scope: Scope, headers: dict[str, str]
    ) -> tuple[int, str, dict[str, str]] | None:
        name = host_name(headers.get("host", ""))
        if self.access.hosts is not None and name not in self.access.hosts:
            return 421, f"this server does not answer to the name {name[:80]!r}.", {}
        if "transfer-encoding" in headers and "content-length" in headers:
            # Two lengths: a server before this one may have read the other, and see two requests.
            return 400, "a request with two lengths.", {"connection": "close"}
        origin = headers.get("origin")
        if origin is not None and scope["method"] != "GET" and not self._is_own(origin, headers):
            return 403, "requests from other sites are not answered.", {}
        if self.access.token is None:
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        bearer = headers.get("authorization", "")
        bearer = bearer[7:] if bearer[:7].lower() == "bearer " else ""
        if any(name == "token" and self.access.knows(value) for name, value in query):
            # Out of the address bar, into a cookie that scripts cannot read.
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            path = "/" + quote(str(scope["path"]).lstrip("/\\"), safe="/")
            cookie = f"{_cookie(scope)}={quote(self.access.token or '')}"
            cookie += "; HttpOnly; SameSite=Strict; Path=/"
            where = f"{path}?{rest}" if rest else path
            return 303, "", {"location": where, "set-cookie": cookie}
        if any(
            map(self.access.knows, [bearer, *_tokens(headers.get("cookie", ""), _cookie(scope))])
        ):
            return None
        reason = "a token is needed: open the address that `simgrad serve` printed."
        return 401, reason, {"www-authenticate": "Bearer"}

    def _is_own(self, origin: str, headers: dict[str, str]) -> bool:
        """Scheme, host and port. Only behind a proxy, which takes a token, may pages be https."""
        schemes = ("http",) if self.access.hosts is not None else ("http", "https")
        host = headers.get("host", "").lower()
        return origin.lower() in [f"{scheme}://{host}" for scheme in schemes]

    async def _body(self, headers: dict[str, str], receive: Receive) -> Receive:
        """The whole body within limits of size and time, then a `receive` that gives it back."""
        told = headers.get("content-length", "")
        if told.isdigit() and int(told[:20]) > self.limits.bytes:
            raise _Refused(413, f"{int(told[:20]):,} bytes; {self.limits.bytes:,} at most.")
        parts: list[bytes] = []
        size = 0
        deadline = asyncio.get_running_loop().time() + self.limits.body_seconds
        try:
            while True:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
                if message["type"] == "http.disconnect":
                    raise _Refused(400, "the connection was cut.")
                part = message.get("body", b"")
                size += len(part)
                self._arriving += len(part)
                parts.append(part)
                if size > self.limits.bytes:
                    raise _Refused(413, f"more than {self.limits.bytes:,} bytes.")
                if self._arriving > _IN_FLIGHT:
                    raise _Refused(503, "too many uploads at once.", {"retry-after": "2"})
                if not message.get("more_body", False):
                    break
        except TimeoutError:
            reason = f"the request took more than {self.limits.body_seconds:g} s to arrive."
            raise _Refused(408, reason) from None
        finally:
            self._arriving -= size
        return _replay(b"".join(parts), receive)


class _Refused(Exception):
    def __init__(self, status: int, reason: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers or {}


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _with_headers(send: Send) -> Send:
    extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *extra]
        await send(message)

    return wrapped


async def _answer(send: Send, status: int, reason: str, headers: dict[str, str]) -> None:
    import json

    body = json.dumps({"detail": reason}).encode() if reason else b""
    pairs = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    start = [(k.encode("latin-1"), v.encode("latin-1", "replace")) for k, v in pairs.items()]
    if status in {408, 413}:
        start.append((b"connection", b"close"))  # the rest of the body is not waited for
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


def host_name(host: str) -> str:
    """`[::1]:8000` -> `::1`"""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _cookie(scope: Scope) -> str:
    """A browser keeps cookies by host alone: two servers on one machine have two names."""
    server = scope.get("server") or ("", "")
    return f"{COOKIE}_{server[1]}"


def _tokens(header: str, own: str) -> list[str]:
    """The tokens among the cookies. Other servers on this host set cookies too, of any form."""
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return [unquote(value.strip('"')) for name, _, value in pairs if name == own]


def inside(path: Path, root: Path) -> bool:
    """Whether a file, links followed, lies in a folder."""
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError, ValueError):
        return False
