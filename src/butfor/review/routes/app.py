"""The web app: its routes, and errors as pages or JSON."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

import butfor
from butfor.evaluate.wording import visible
from butfor.review.routes import api, pages
from butfor.review.routes.access import (
    Access,
    ForbiddenError,
    NoQueueError,
    SignInError,
    find_access,
    local_path,
    read_form,
)
from butfor.review.routes.api import Json
from butfor.review.routes.security import RequestFilter
from butfor.review.routes.sessions import Tokens
from butfor.review.shown import AuditReview
from butfor.review.verdicts import ReviewError, StoreError

LOG = logging.getLogger("butfor.review")


def make_app(
    review: AuditReview,
    *,
    hosts: Iterable[str],
    port: int,
    tokens: Tokens | None = None,
    tls: bool = False,
    coordinators: Iterable[str] = (),
) -> ASGIApp:
    """Return the app behind its request filter.

    Parameters
    ----------
    hosts
        What requests may name as their host, including the port on which the app listens.
    tokens
        Who may sign in; without them, anybody can by entering a name.
    coordinators
        Who sees how far reviewers have come and what they said, but gives no verdicts.
    """
    app = FastAPI(
        title="butfor review",
        version=butfor.__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
    )
    app.state.access = Access(review, port, tokens, tls, frozenset(coordinators))
    # as they are: to include a router builds all its routes again, a tenth of a second
    app.router.routes += [*api.router.routes, *pages.router.routes]
    app.add_exception_handler(ReviewError, answer_error)
    app.add_exception_handler(RequestValidationError, answer_invalid)
    app.add_exception_handler(HTTPException, answer_http)
    return RequestFilter(app, hosts=hosts, scheme="https" if tls else "http")


async def answer_error(request: Request, error: Exception) -> Response:
    """Answer what the review refuses; a page repeats what was typed into its form."""
    assert isinstance(error, ReviewError)
    if isinstance(error, NoQueueError) and request.url.path == "/":
        return RedirectResponse("/coordinator", 303)
    if isinstance(error, StoreError):
        LOG.error("%s", visible(str(error)))
    if _is_api(request) or (request.method != "POST" and not isinstance(error, SignInError)):
        return _answer(request, error.status, error.content)
    if request.method != "POST":
        goal = _asked(request)
        query = "" if goal == "/" else f"?next={quote(goal, safe='/')}"
        return RedirectResponse(f"/sign-in{query}", 303)
    form = await read_form(request)  # the request remembers its body
    typed, goal = pages.typed(form), _page_of(request, form)
    if isinstance(error, SignInError):
        problem = {"error": "you are no longer signed in"}
        return pages.render_sign_in(request, error.status, goal, problem=problem, typed=typed)
    if isinstance(error, ForbiddenError) and request.url.path == "/sign-in":
        problem, name = {"error": "the page was too old; sign in now"}, form.get("reviewer", "")
        return pages.render_sign_in(request, error.status, goal, problem=problem, name=name)
    words = error.content["error"]
    return pages.show_problem(request, error.status, words, typed=typed, goal=goal)


def answer_invalid(request: Request, error: Exception) -> Response:
    """Name the first invalid field."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = [str(part) for part in first["loc"] if part not in ("body", "query", "path", "header")]
    field = "body" if first["type"] == "json_invalid" else ".".join(place) or "body"
    words = f"{field}: {first['msg']}"
    if first["loc"][0] == "path" and not _is_api(request):
        return pages.show_problem(request, 404, "there is no such page")
    return _answer(request, 422, {"error": words, "field": field})


def answer_http(request: Request, error: Exception) -> Response:
    """Answer what does not exist, or not with this method."""
    assert isinstance(error, HTTPException)  # of Starlette, from which FastAPI's derives
    return _answer(request, error.status_code, {"error": str(error.detail)}, error.headers)


def _answer(
    request: Request,
    status: int,
    content: dict[str, Any],
    headers: Mapping[str, str] | None = None,
) -> Response:
    if _is_api(request):
        return Json(content, status, headers)
    page = pages.show_problem(request, status, content["error"])
    page.headers.update(headers or {})
    return page


def _is_api(request: Request) -> bool:
    return request.url.path.startswith("/api/")


def _asked(request: Request) -> str:
    """Return the address of a request as it was sent."""
    path = request.scope["raw_path"].decode("ascii", "replace")
    return local_path(path + (f"?{request.url.query}" if request.url.query else ""))


def _page_of(request: Request, form: Mapping[str, str]) -> str:
    """Return the address of the page that a form is on, or that it leads to."""
    path = _asked(request)
    if path == "/sign-in":
        return local_path(form.get("next", "/"))
    if not path.startswith(("/episodes/", "/disagreements/")):
        return "/"
    place = form.get("place", "")
    same = form.get("run") == find_access(request).review.run.id  # places differ between runs
    return f"{path}?place={place}" if same and place.isascii() and place.isdecimal() else path
