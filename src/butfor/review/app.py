"""The review app: the store behind pages and an interface for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp

import butfor
from butfor.review import api, pages
from butfor.review.desk import Desk
from butfor.review.doors import (
    ForbiddenError,
    House,
    Json,
    SignInError,
    describe_error,
    find_house,
    find_session,
    local_path,
    read_form,
)
from butfor.review.guard import Guard
from butfor.review.sessions import Tokens
from butfor.review.verdicts import VERDICTS, ReviewError

TYPED = {
    "first_impression": "First impression",
    "verdict": "Verdict",
    "variable": "Variable or treatment",
    "step": "Step",
    "sure": "Sure",
    "comment": "Comment",
    "reason": "Reason",
}


def make_app(
    desk: Desk, *, hosts: Iterable[str], port: int, tokens: Tokens | None = None, tls: bool = False
) -> ASGIApp:
    """Return the app, guarded.

    Parameters
    ----------
    hosts
        What requests may name as their host, with the port.
    port
        Where it listens.
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
    app.state.house = House(desk, port=port, tokens=tokens, secure=tls)
    app.include_router(api.router)
    app.include_router(pages.router)
    app.add_exception_handler(ReviewError, answer_error)
    app.add_exception_handler(RequestValidationError, answer_invalid)
    app.add_exception_handler(StarletteHTTPException, answer_http)
    return Guard(app, hosts=hosts, scheme="https" if tls else "http")


async def answer_error(request: Request, error: Exception) -> Response:
    """Answer what the rules of the review refuse; a page repeats what was written."""
    assert isinstance(error, ReviewError)
    status, said = describe_error(error)
    if _for_programs(request):
        return Json(said, status)
    if request.method != "POST":
        if isinstance(error, SignInError):
            return RedirectResponse("/sign-in" + _next(_asked(request)), 303)
        return pages.show_problem(request, status, str(error))
    form = await read_form(request)  # read already, and remembered
    typed, goal = _typed(form), _page_of(request, form)
    if isinstance(error, SignInError):
        return _ask_again(request, status, "you are no longer signed in", goal, typed=typed)
    if isinstance(error, ForbiddenError) and request.url.path == "/sign-in":
        name = form.get("reviewer", "")
        return _ask_again(request, status, "the page was too old; sign in now", goal, name=name)
    return pages.show_problem(request, status, str(error), typed=typed, goal=goal)


def _ask_again(
    request: Request,
    status: int,
    words: str,
    goal: str,
    *,
    name: str = "",
    typed: Sequence[tuple[str, str]] = (),
) -> Response:
    """Return the page to sign in, and to read again what was written."""
    house = find_house(request)
    session = find_session(request) or house.sessions.start()
    page = pages.render(
        request,
        "sign_in.html",
        session,
        status,
        problem={"error": words},
        next=goal,
        with_token=house.tokens is not None,
        name=name or house.last_reviewer(request),
        typed=typed,
    )
    house.give_cookie(page, session)
    return page


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


def _asked(request: Request) -> str:
    """Return the address of a request as it was sent."""
    path = request.scope["raw_path"].decode("ascii", "replace")
    return local_path(path + (f"?{request.url.query}" if request.url.query else ""))


def _page_of(request: Request, form: Mapping[str, str]) -> str:
    """Return the address of the page that a form stands on, or that it leads to."""
    path = _asked(request)
    if path == "/sign-in":
        return local_path(form.get("next", "/"))
    if not path.startswith(("/episodes/", "/disagreements/")):
        return "/"
    place = form.get("place", "")
    same = form.get("run") == find_house(request).desk.run.id  # in another run it lies elsewhere
    return f"{path}?place={place}" if same and place.isascii() and place.isdecimal() else path


def _next(goal: str) -> str:
    return "" if goal == "/" else f"?next={quote(goal, safe='/')}"


def _typed(form: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what somebody wrote into a form, with what it is."""
    words = {str(number): f"({number}) {said}" for number, said in VERDICTS.items()}
    shown = dict(form) | {"verdict": words.get(form.get("verdict", ""), "")}
    return [(label, shown[name]) for name, label in TYPED.items() if shown.get(name)]
