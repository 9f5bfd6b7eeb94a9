"""The lab page's application: pages, API, static files, and what an error becomes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

import simgrad
from simgrad.core.errors import InputError
from simgrad.lab import api, views
from simgrad.lab.lab import Lab, NotFound
from simgrad.lab.safety import NO_TOKEN, Access, Guard
from simgrad.lab.service import Service
from simgrad.lab.workers import Overloaded

_RETRY = {"retry-after": "1"}


def create_app(lab: Lab, access: Access | None = None) -> FastAPI:
    """The application for a lab; `access` is by default that of a server on this machine."""
    service = Service(lab)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="simgrad lab",
        version=simgrad.__version__,
        description="Runs, studies, search and objectives of `simgrad serve`, as JSON.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # the usual page loads scripts from elsewhere
        redoc_url=None,
        lifespan=life,
    )
    app.add_middleware(
        Guard,
        access=access or Access.for_host("127.0.0.1", NO_TOKEN),
        limits=lab.limits,
    )
    app.include_router(api.routes(service))
    app.include_router(views.routes(service, app), include_in_schema=False)
    static = str(files("simgrad.lab").joinpath("static"))
    app.mount("/static", StaticFiles(directory=static), name="static")
    _errors(app)
    return app


def _errors(app: FastAPI) -> None:
    async def known(request: Request, error: Exception) -> Response:
        status = 404 if isinstance(error, NotFound) else 422
        return answer(request, status, str(error))

    async def busy(request: Request, error: Exception) -> Response:
        return answer(request, 503, "too much at once: try again in a second.", _RETRY)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        parts = [
            f"{'.'.join(str(place) for place in problem['loc'][1:])}: {problem['msg']}"
            for problem in error.errors()[:5]
        ]
        return answer(request, 422, "; ".join(parts)[:1000])

    async def plain(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        return answer(request, error.status_code, str(error.detail), headers)

    app.add_exception_handler(InputError, known)
    app.add_exception_handler(Overloaded, busy)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, plain)


def answer(
    request: Request, status: int, reason: str, headers: dict[str, Any] | None = None
) -> Response:
    """A problem, as a page for people and as JSON for programs."""
    wants_page = "text/html" in request.headers.get("accept", "")
    if wants_page and not request.url.path.startswith("/api/"):
        title = HTTPStatus(status).phrase
        text = views.render("problem.html", request.url.path, title=title, reason=reason)
        return HTMLResponse(text, status, headers)
    # Surrogates from odd requests have no UTF-8.
    reason = reason.encode("utf-8", "replace").decode()
    return JSONResponse({"detail": reason}, status, headers)
