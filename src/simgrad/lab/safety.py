"""Who may ask what: hosts, tokens, sizes, headers. In front of everything else.

Bound to this machine alone, the server answers only to this machine's names, so that a page on
the web cannot reach it through a name of its own that points here. Everywhere it asks for a token,
as other users of a machine reach its ports too: `Authorization: Bearer TOKEN`, or ?token=TOKEN
once, as in the link that is printed; that becomes a cookie. Starlette's TrustedHostMiddleware would
replace three lines, and in version 0.40 does not read names such as [::1]; FastAPI's security
guards routes, but no static files.
"""

import asyncio
import hmac
import ipaddress
import secrets
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from simgrad.core.errors import InputError
from simgrad.lab.workers import UploadLimits

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

    hosts: frozenset[str] | None  # None: any name, because the token protects the server
    token: str | None

    @staticmethod
    def for_host(host: str, token: str | None = None) -> "Access":
        """A token, made up if not given. On loopback: local names only, and NO_TOKEN is allowed."""
        if token not in (None, NO_TOKEN) and len(token or "") < _SHORTEST:
            raise InputError(f"`token` has {len(token or '')} characters; {_SHORTEST} at least.")
        try:
            local = host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            local = False
        if token == NO_TOKEN and not local:
            raise InputError(f"`token={NO_TOKEN}` is for this machine alone, and {host} is not.")
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

    def __init__(self, app: ASGIApp, access: Access, limits: UploadLimits) -> None:
        self.app, self.access, self.limits = app, access, limits
        self._arriving = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":
            return  # there are no web sockets here

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        asked = Request(scope, receive)
        answer: ASGIApp = self._refuse(asked) or self.app
        if answer is self.app and asked.method not in {"GET", "HEAD", "OPTIONS"}:
            body = await self._body(asked)
            if isinstance(body, Response):
                answer = body
            else:
                receive = _replay(body, receive)
        await answer(scope, receive, with_headers)

    def _refuse(self, asked: Request) -> Response | None:
        headers, token = asked.headers, self.access.token
        name = host_name(headers.get("host", ""))
        if self.access.hosts is not None and name not in self.access.hosts:
            return _no(421, f"this server does not answer to the name {name[:80]!r}.")
        if "transfer-encoding" in headers and "content-length" in headers:
            # Two lengths: a server before this one may have read the other, and see two requests.
            return _no(400, "a request with two lengths.", {"connection": "close"})
        origin = headers.get("origin")
        if origin is not None and asked.method != "GET" and not self._is_own(origin, headers):
            return _no(403, "requests from other sites are not answered.")
        if token is None:
            return None
        cookie = f"{COOKIE}_{(asked.get('server') or ('', ''))[1]}"  # a browser keeps them by host
        if any(map(self.access.knows, asked.query_params.getlist("token"))):
            # Out of the address bar, into a cookie that scripts cannot read.
            rest = urlencode([one for one in asked.query_params.multi_items() if one[0] != "token"])
            path = "/" + quote(str(asked["path"]).lstrip("/\\"), safe="/")
            moved = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
            moved.set_cookie(cookie, quote(token), httponly=True, samesite="strict")
            return moved
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.access.knows(bearer):
            return None
        if self.access.knows(unquote(asked.cookies.get(cookie, ""))):
            return None
        reason = "a token is needed: open the address that `simgrad serve` printed."
        return _no(401, reason, {"www-authenticate": "Bearer"})

    def _is_own(self, origin: str, headers: Headers) -> bool:
        """Scheme, host and port. Only behind a proxy, which takes a token, may pages be https."""
        schemes = ("http",) if self.access.hosts is not None else ("http", "https")
        host = headers.get("host", "").lower()
        return origin.lower() in [f"{scheme}://{host}" for scheme in schemes]

    async def _body(self, asked: Request) -> bytes | Response:
        """The whole body, within limits of size and time, or why not."""
        told, most = asked.headers.get("content-length", ""), self.limits.bytes
        last = {"connection": "close"}  # the rest of the body is not waited for
        if told.isdigit() and int(told[:20]) > most:
            return _no(413, f"{int(told[:20]):,} bytes; {most:,} at most.", last)
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for part in asked.stream():
                    size += len(part)
                    self._arriving += len(part)
                    parts.append(part)
                    if size > most:
                        return _no(413, f"more than {most:,} bytes.", last)
                    if self._arriving > _IN_FLIGHT:
                        return _no(503, "too many uploads at once.", {"retry-after": "2"})
        except ClientDisconnect:
            return _no(400, "the connection was cut.")
        except TimeoutError:
            seconds = self.limits.body_seconds
            return _no(408, f"the request took more than {seconds:g} s to arrive.", last)
        finally:
            self._arriving -= size
        return b"".join(parts)


def _no(status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"detail": reason}, status, headers)


def _replay(body: bytes, receive: Receive) -> Receive:
    given = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def again() -> Message:
        return next(given, None) or await receive()

    return again


def host_name(host: str) -> str:
    """`[::1]:8000` -> `::1`"""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def inside(path: Path, root: Path) -> bool:
    """Whether a file, links followed, lies in a folder."""
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError, ValueError):
        return False
