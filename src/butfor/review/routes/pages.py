"""The pages; every form works without JavaScript."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlencode

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import ValidationError

from butfor.evaluate.wording import percent, share
from butfor.present import STATIC, straight
from butfor.present.charts.save import chart_bundle
from butfor.present.report.write import render_report
from butfor.review.routes import access, api, stay
from butfor.review.routes.access import Form, FormPoster, SignedIn
from butfor.review.routes.security import from_elsewhere
from butfor.review.shown import Viewer, make_slug
from butfor.review.verdicts import VERDICTS, FieldError, RefusedError, ReviewError, StaleError

Body = TypeVar("Body", bound=api.About)
Action = tuple[type[api.About], Callable[..., dict[str, Any]]]
HERE = Path(__file__).parents[1] / "static"
FILES = {"style.css": STATIC, "charts.js": STATIC} | dict.fromkeys(
    ("review.css", "review.js", "chances.js"), HERE
)
KINDS = {".css": "text/css", ".js": "text/javascript"}
KEYS = {
    "0 – 9": "how many of ten; then the next outcome, and Enter saves",
    "↑ ↓ ← →": "one more, one fewer; the outcome before, the next one",
    "x": "cannot tell how many",
    "1 – 5": "choose a verdict; Enter saves",
    "j": "next in the queue",
    "k": "previous in the queue",
    "c": "write a comment; Esc leaves the field",
    "d": "show or hide five sampled paths",
    "z": "show the whole horizon, or only what this one needs",
    "n": "show or hide the numbers",
    "s": "skip",
    "u": "undo the last verdict",
    "Ctrl + Enter": "save and continue",
    "g q": "go to the queue",
    "?": "show this list",
}
# a page shows what its counterpart in the API returns
PAGES = {
    "/": ("queue.html", "/queue"),
    "/start": ("start.html", "/practice"),
    "/episodes": ("list.html", "/episodes"),
    "/episodes/{slug}": ("stay.html", "/episodes/{slug}"),
    "/disagreements/{slug}": ("disagreement.html", "/disagreements/{slug}"),
    "/overview": ("overview.html", "/overview"),
    "/results": ("results.html", "/results"),
    "/coordinator": ("coordinator.html", "/progress"),
    "/about": ("about.html", "/run"),
    "/audit": ("history.html", "/events"),
}
# what the buttons of a form do, and the fields that they need
STAY_ACTIONS: dict[str, Action] = {
    "save": (api.GivenReview, api.give_review),
    "skip": (api.About, api.skip),
    "impression": (api.GivenImpression, api.give_impression),
    "answer": (api.GivenAnswer, api.give_answer),
}
SETTLEMENT_ACTIONS: dict[str, Action] = {
    "settle": (api.GivenSettlement, api.settle_disagreement),
    "unsettle": (api.About, api.unsettle_disagreement),
}
EMPTY = {  # what to say of a field that must not be
    "verdict": "choose a verdict",
    "reason": "write a reason",
    "first_impression": "write your first impression",
}
TYPED = {
    "first_impression": "First impression",
    "chances": "Out of ten",
    "verdict": "Verdict",
    "variable": "Variable or treatment",
    "step": "Step",
    "sure": "Sure",
    "comment": "Comment",
    "reason": "Reason",
}
SHOWN_FIELDS = {*stay.FIELDS, *EMPTY, "chances"}
REPEATED = (FieldError, StaleError, RefusedError)  # answered by the page with its form again
router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


@cache
def environment() -> Environment:
    """Return the templates; all texts are escaped."""
    made = Environment(
        loader=PackageLoader("butfor.review"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=straight,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"VERDICTS": VERDICTS, "KEYS": KEYS, "STATES": stay.STATES}
    made.globals |= {"static_file": static_address, "address": filtered_address}
    made.filters |= {"percent": percent, "share": share, "minute": _minute}
    return made


def render(request: Request, template: str, code: int = 200, /, **values: Any) -> HTMLResponse:
    """Return a page."""
    session, known = access.find_session(request), access.find_access(request)
    reviewer, stays = session.reviewer if session else "", known.review.stays
    common: dict[str, Any] = {
        "reviewer": reviewer,
        "coordinates": known.is_coordinator(reviewer),
        "csrf": session.csrf if session else "",
        "noun": stays.noun,
        "nouns": stays.nouns,
        "clock": stays.clock,
        "scope": stays.scope,
        "problem": None,
        "form": {},
        "path": request.url.path,
        "saved": request.query_params.get("saved", ""),  # the verdict to confirm
    }
    text = environment().get_template(template).render(common | values)
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=code)


def show_problem(request: Request, status: int, words: str, **values: Any) -> HTMLResponse:
    """Return a page that says what went wrong."""
    if words.startswith("episode "):
        words = access.find_access(request).review.stays.noun + words.removeprefix("episode")
    return render(request, "problem.html", status, words=words, status=status, **values)


@cache
def static_address(name: str) -> str:
    """Return the address of a static file, which changes with its content."""
    return f"/static/{name}?v={hashlib.sha256(_read_file(name)).hexdigest()[:12]}"


def filtered_address(path: str, filters: Mapping[str, Any]) -> str:
    """Return the address of a page with filters; blank ones are left out."""
    query = urlencode({k: v for k, v in filters.items() if v}, errors="replace")
    return f"{path}?{query}" if query else path


def _minute(at: str) -> str:
    return at[:16].replace("T", " ") + " UTC" if at else ""


def _read_file(name: str) -> bytes:
    if name == "vega.js":
        return chart_bundle().encode()
    if name not in FILES:
        raise HTTPException(404, "there is no such file")
    return (FILES[name] / name).read_bytes()


@router.get("/sign-in")
def show_sign_in(request: Request, next: str = "/") -> Response:
    """Ask who it is; a link on another site does not choose what is opened afterwards."""
    goal = "/" if from_elsewhere(request.headers) else access.local_path(next)
    return render_sign_in(request, 200, goal)


@router.post("/sign-in", dependencies=[access.AfterFailures])
def take_sign_in(request: Request, form: Form) -> Response:
    """Sign somebody in."""
    access.check_csrf(request, form.get("csrf"))
    name, goal = form.get("reviewer", ""), access.local_path(form.get("next", "/"))
    try:
        session = access.sign_in(request, name, form.get("token", ""))
    except (FieldError, RefusedError, access.SignInError) as error:
        return render_sign_in(request, error.status, goal, name=name, problem=error.content)
    known = access.find_access(request)
    if goal == "/" and known.is_new(session.reviewer):
        goal = "/start"
    answer = RedirectResponse(goal, 303)
    known.set_cookies(answer, session)
    return answer


def render_sign_in(
    request: Request, status: int, goal: str, *, name: str = "", **values: Any
) -> Response:
    """Return the page to sign in, which leads to the address `goal`."""
    known = access.find_access(request)
    session = access.find_session(request) or known.sessions.start()
    values |= {"reviewer": session.reviewer, "csrf": session.csrf}
    values |= {"next": goal, "with_token": known.tokens is not None}
    before = unquote(request.cookies.get(known.name_cookie, ""), errors="replace")
    values |= {"name": name or before}
    page = render(request, "sign_in.html", status, **values)
    known.set_cookies(page, session)
    return page


@router.post("/sign-out")
def sign_out(request: Request, viewer: SignedIn, form: Form) -> Response:
    """Sign somebody out."""
    access.check_csrf(request, form.get("csrf"))
    known = access.find_access(request)
    known.sessions.end(request.cookies.get(known.cookie))
    answer = RedirectResponse("/sign-in", 303)
    for name in (known.cookie, known.name_cookie):
        answer.delete_cookie(name)
    return answer


def _page(template: str, view: Callable[..., Any]) -> Callable[..., Response]:
    def show(request: Request, view: Any = Depends(view)) -> Response:  # noqa: B008
        return render(request, template, view=view)

    return show


for _path, (_template, _view) in PAGES.items():
    router.get(_path)(_page(_template, api.VIEWS[_view]))


@router.get("/docs")
def show_docs(request: Request, viewer: SignedIn) -> Response:
    """Describe the API."""
    described = request.app.openapi()
    operations = [
        {"method": method.upper(), "path": path, **operation}
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    ]
    return render(request, "docs.html", operations=operations)


@router.get("/export/report.html")
def export_report(viewer: SignedIn) -> Response:
    """Return the report as a file."""
    viewer.check_overview()
    headers = {"Content-Disposition": 'attachment; filename="report.html"'}
    review = viewer.review
    experts = review.experts(review.store.last_event())
    return HTMLResponse(render_report(review.audit, experts=experts), headers=headers)


router.get("/export/{table}.{kind}")(api.export)


@router.get("/static/{name}")
def show_file(name: str) -> Response:
    """Return a static file of the package."""
    text = _read_file(name)
    headers = {"Cache-Control": "private, max-age=31536000, immutable"}
    kind = f"{KINDS[Path(name).suffix]}; charset=utf-8"
    return Response(text, media_type=kind, headers=headers)


@router.post("/episodes/{slug}")
def take_stay_form(request: Request, viewer: FormPoster, form: Form, slug: str) -> Response:
    """Save a verdict, skip the stay, or record what the reviewer says before seeing the model."""
    try:
        done = _act(viewer, slug, form, STAY_ACTIONS)
    except REPEATED as error:
        place = _read_body(api.About, {"place": form.get("place", "")}).place
        view = stay.show_episode(viewer, Response(), slug, place) | {"form": form}
        shown = view["place"] is not None and not (view["mine"] or view["closed"])
        kept = shown and view["asks"] == _asked_by(form)  # if not, another tab has answered
        values = {"view": view, "problem": _explain(error), "kept": kept, "typed": typed(form)}
        return render(request, "stay.html", error.status, **values)
    if "next" not in done:
        return RedirectResponse(_stay_address(slug, form.get("place")), 303)
    following, saved = done["next"], done.get("review")
    if following:
        goal = _stay_address(following["slug"], following["place"], saved)
    else:
        goal = filtered_address("/", {"saved": saved})
    return RedirectResponse(goal, 303)


@router.post("/start")
def take_practice(request: Request, viewer: FormPoster, form: Form) -> Response:
    """Show what the model says about the practice case, or what is wrong with the numbers."""
    try:
        view = api.solve_practice(viewer, _answer_of(viewer, form))
    except REPEATED as error:
        view = stay.show_start(viewer) | {"form": form}
        return render(request, "start.html", error.status, view=view, problem=_explain(error))
    return render(request, "start.html", view=view)


@router.post("/disagreements/{slug}")
def take_settlement(request: Request, viewer: FormPoster, form: Form, slug: str) -> Response:
    """Settle a disagreement and show the next one, or withdraw the settlement."""
    try:
        done = _act(viewer, slug, form, SETTLEMENT_ACTIONS)
    except REPEATED as error:
        view = stay.show_disagreement(viewer, slug)
        values = {"view": view, "problem": _explain(error), "form": form, "typed": typed(form)}
        return render(request, "disagreement.html", error.status, **values)
    following = done.get("next")
    if following is None:
        return RedirectResponse(f"/disagreements/{slug}", 303)
    return RedirectResponse(f"/disagreements/{following['slug']}?settled={slug}", 303)


@router.post("/reviews/{review}/withdraw")
def undo(viewer: FormPoster, form: Form, review: access.Number) -> Response:
    """Withdraw a verdict and show its stay again."""
    viewer.review.check_run(form.get("run", ""))
    expected = _read_body(api.About, form, "version").version
    done = viewer.reviewer.withdraw(review, expected_version=expected)
    return RedirectResponse(_stay_address(make_slug(done.episode), done.place), 303)


def typed(form: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what somebody typed into a form, each with its label."""
    words = {str(number): f"({number}) {said}" for number, said in VERDICTS.items()}
    numbers = [value for name, value in form.items() if name.startswith("chances.") and value]
    shown = dict(form) | {"chances": ", ".join(numbers)}
    shown |= {"verdict": words.get(form.get("verdict", ""), "")}
    return [(label, shown[name]) for name, label in TYPED.items() if shown.get(name)]


def _asked_by(form: Mapping[str, str]) -> str:
    """Return which question the form on a stay's page asks, as `Viewer.asks` calls it."""
    if "first_impression" in form:
        return "impression"
    return "chances" if "reason" in form else ""


def _act(
    viewer: Viewer, slug: str, form: Mapping[str, str], actions: Mapping[str, Action]
) -> dict[str, Any]:
    """Do what the button of a form says, as the API does it."""
    chosen = form.get("do", "")
    if chosen not in actions:
        raise FieldError("do", f"{chosen[:40]!r} is not one of {', '.join(actions)}")
    kind, act = actions[chosen]
    viewer.review.check_run(form.get("run", ""))
    if kind is api.GivenAnswer:
        return act(viewer, slug, _answer_of(viewer, form))
    return act(viewer, slug, _read_body(kind, form, "version"))


def _answer_of(viewer: Viewer, form: Mapping[str, str]) -> api.GivenAnswer:
    """Return what a form says about the chances."""
    body = _read_body(api.GivenAnswer, form, "version")
    if form.get("cannot_tell"):
        return body
    chances = _read_chances(form, viewer.review.run.outcomes)
    return body.model_copy(update={"chances": chances, "reason": ""})


def _read_chances(form: Mapping[str, str], outcomes: Sequence[str]) -> dict[str, int]:
    """Return the numbers of a form by outcome; one that is left blank is 0."""
    given = [form.get(f"chances.{place}", "").strip() for place in range(len(outcomes))]
    if outcomes and not any(given):
        raise FieldError("chances", "give a number for each outcome, or tick “Cannot tell”")
    for text in given:
        if text and not (text.isascii() and text.isdecimal() and len(text) < 3):
            raise FieldError("chances", f"{text[:20]!r}: give whole numbers from 0 to 10")
    return {name: int(text or 0) for name, text in zip(outcomes, given, strict=True)}


def _read_body(kind: type[Body], form: Mapping[str, str], *required: str) -> Body:
    """Return the fields of a form as the body of a request to the API, without blank ones."""
    given = {name: form[name].replace("\r\n", "\n") for name in kind.model_fields if form.get(name)}
    for name in required:
        if name not in given:
            raise FieldError(name, "required")
    try:
        return kind.model_validate_strings(given, strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        words = "required" if first["type"] == "missing" else first["msg"]
        raise FieldError(str(first["loc"][0]), words) from None


def _explain(error: ReviewError) -> dict[str, str]:
    """Return what went wrong as a sentence, and which field of the form it is about, if any."""
    field, words = error.content.get("field"), str(error)
    if field not in SHOWN_FIELDS:
        field = ""
    else:
        words = words.removeprefix(f"{field}: ")
        words = EMPTY[field] if words == "required" else words
    return {"field": field, "sentence": f"{words[:1].upper()}{words[1:]}."}


def _stay_address(slug: str, place: int | str | None, saved: int | None = None) -> str:
    return filtered_address(f"/episodes/{slug}", {"place": place, "saved": saved})
