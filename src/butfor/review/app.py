"""The review app: the store behind pages and an interface for programs."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp

import butfor
from butfor.review import api, pages
from butfor.review.desk import Desk
from butfor.review.doors import House, Json, SignInError, describe_error, local_path
from butfor.review.guard import Guard
from butfor.review.sessions import Tokens
from butfor.review.verdicts import ReviewError


def make_app(
    desk: Desk, *, hosts: Iterable[str], tokens: Tokens | None = None, tls: bool = False
) -> ASGIApp:
    """Return the app, guarded.

    Parameters
    ----------
    hosts
        What requests may name as their host, with the port.
    tokens
        Who may sign in; without, everybody types a name.
    tls
        Whether browsers come over TLS.
    """
    app = FastAPI(
        title="butfor review",
        version=butfor.__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
    )
    app.state.house = House(desk, tokens=tokens, secure=tls)
    app.include_router(api.router)
    app.include_router(pages.router)
    app.add_exception_handler(ReviewError, answer_error)
    app.add_exception_handler(RequestValidationError, answer_invalid)
    app.add_exception_handler(StarletteHTTPException, answer_http)
    return Guard(app, hosts=hosts, scheme="https" if tls else "http")


def answer_error(request: Request, error: Exception) -> Response:
    """Answer what the rules of the review refuse."""
    assert isinstance(error, ReviewError)
    status, said = describe_error(error)
    if _for_programs(request):
        return Json(said, status)
    if isinstance(error, SignInError) and request.method == "GET":
        query = f"?{request.url.query}" if request.url.query else ""
        goal = local_path(request.url.path + query)
        return RedirectResponse(request.url_for("show_sign_in").path + _next(goal), 303)
    return pages.show_problem(request, status, str(error))


def answer_invalid(request: Request, error: Exception) -> Response:
    """Name the first field that is wrong."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = [str(part) for part in first["loc"] if part not in ("body", "query", "path", "header")]
    field = ".".join(place) if first["type"] != "json_invalid" else "body"
    words = f"{field or 'body'}: {first['msg']}"
    if _for_programs(request):
        return Json({"error": words, "field": field or "body"}, 422)
    return pages.show_problem(request, 422, words)


def answer_http(request: Request, error: Exception) -> Response:
    """Answer what there is not, or not in this way."""
    assert isinstance(error, HTTPException | StarletteHTTPException)
    if _for_programs(request):
        return Json({"error": str(error.detail)}, error.status_code, headers=error.headers)
    page = pages.show_problem(request, error.status_code, str(error.detail))
    page.headers.update(error.headers or {})
    return page


def _for_programs(request: Request) -> bool:
    return request.url.path.startswith("/api/")


def _next(goal: str) -> str:
    return "" if goal == "/" else "?next=" + goal.replace("?", "%3F").replace("&", "%26")
