"""The pages for people; every form works without JavaScript."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from butfor.evaluate.wording import percent, share, signed
from butfor.present import STATIC, straight
from butfor.present.charts.save import chart_bundle
from butfor.present.report.write import render_report
from butfor.review.api import KINDS, MOST, export_file
from butfor.review.desk import STATES, make_slug
from butfor.review.doors import (
    Form,
    FormPoster,
    HouseOf,
    Reviewer,
    SignInError,
    TooManyError,
    check_csrf,
    describe_error,
    find_house,
    find_session,
    local_path,
)
from butfor.review.sessions import Session
from butfor.review.verdicts import SURE, VERDICTS, FieldError, RefusedError, StaleError, Verdict

HERE = Path(__file__).parent / "static"
FILES = {
    "style.css": (STATIC / "style.css", "text/css"),
    "charts.js": (STATIC / "charts.js", "text/javascript"),
    "review.css": (HERE / "review.css", "text/css"),
    "review.js": (HERE / "review.js", "text/javascript"),
}
KEYS = {
    "1 – 5": "choose a verdict",
    "j": "next in the queue",
    "k": "the one before",
    "c": "write a comment; Esc leaves it",
    "d": "show or hide five sampled paths",
    "n": "show or hide the numbers",
    "s": "skip",
    "u": "undo the last verdict",
    "Ctrl + Enter": "save and go on",
    "g q": "to the queue",
    "?": "this list",
}
Place = Annotated[int | None, Query(ge=0, le=MOST)]
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
    made.globals |= {"VERDICTS": VERDICTS, "SURE": SURE, "KEYS": KEYS, "version_of": version_of}
    made.filters |= {"percent": percent, "signed": signed, "share": share, "minute": _minute}
    return made


def render(
    request: Request, template: str, session: Session | None, code: int = 200, /, **values: Any
) -> HTMLResponse:
    """Return a page."""
    desk = find_house(request).desk
    common = {
        "reviewer": session.reviewer if session else "",
        "csrf": session.csrf if session else "",
        "noun": desk.stays.noun,
        "nouns": desk.stays.nouns,
        "scope": desk.stays.scope,
        "problem": None,
        "path": request.url.path,
    }
    text = environment().get_template(template).render(common | values)
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=code)


def show_problem(request: Request, status: int, words: str, **values: Any) -> HTMLResponse:
    """Return a page that says what went wrong."""
    session = find_session(request)
    return render(request, "problem.html", session, status, words=words, status=status, **values)


# ------------------------------------------------------------------------------------------ doors


@router.get("/sign-in")
def show_sign_in(request: Request, house: HouseOf, next: str = "/") -> Response:
    """Ask who it is."""
    session = find_session(request) or house.sessions.start()
    page = render(
        request,
        "sign_in.html",
        session,
        next=local_path(next),
        with_token=house.tokens is not None,
        name=house.last_reviewer(request),
    )
    house.give_cookie(page, session)
    return page


@router.post("/sign-in")
def sign_in(request: Request, house: HouseOf, form: Form) -> Response:
    """Let somebody in."""
    before = check_csrf(find_session(request), form.get("csrf"))
    name, goal = form.get("reviewer", ""), local_path(form.get("next", "/"))
    address = request.client.host if request.client else ""
    try:
        session = house.sign_in(before, name, form.get("token", ""), address)
    except (FieldError, SignInError, TooManyError) as error:
        status, said = describe_error(error)
        values = {"next": goal, "with_token": house.tokens is not None, "name": name}
        return render(request, "sign_in.html", before, status, problem=said, **values)
    answer = RedirectResponse(goal, 303)
    house.give_cookie(answer, session)
    return answer


@router.post("/sign-out")
def sign_out(house: HouseOf, session: FormPoster) -> Response:
    """Let somebody go."""
    house.sessions.end(session.id)
    answer = RedirectResponse("/sign-in", 303)
    house.take_cookie(answer)
    return answer


# ------------------------------------------------------------------------------------------ reading


@router.get("/")
def show_queue(request: Request, house: HouseOf, session: Reviewer) -> Response:
    """Show the queue."""
    return render(request, "queue.html", session, view=house.desk.queue(session.reviewer))


@router.get("/episodes")
def show_list(
    request: Request,
    house: HouseOf,
    session: Reviewer,
    obs: str = "",
    model: str = "",
    status: str = "",
    sort: str = "",
    after: str = "",
) -> Response:
    """Show a list of stays."""
    view = house.desk.listing(
        session.reviewer, obs=obs, model=model, status=status, sort=sort, after=after
    )
    further = urlencode({**view["filters"], "after": view["after"] or ""}, errors="replace")
    return render(request, "list.html", session, view=view, further=further)


@router.get("/overview")
def show_overview(request: Request, house: HouseOf, session: Reviewer) -> Response:
    """Show numbers about all stays."""
    view = house.desk.overview(session.reviewer)
    return render(request, "overview.html", session, view=view, link=_cell_link)


@router.get("/results")
def show_results(request: Request, house: HouseOf, session: Reviewer) -> Response:
    """Show what the review found."""
    view = house.desk.results(session.reviewer)
    return render(request, "results.html", session, view=asdict(view), states=STATES)


@router.get("/about")
def show_about(request: Request, house: HouseOf, session: Reviewer) -> Response:
    """Show how to read all this."""
    return render(request, "about.html", session, view=house.desk.about_run())


@router.get("/audit")
def show_history(
    request: Request,
    house: HouseOf,
    session: Reviewer,
    after: Annotated[int, Query(ge=0, le=MOST)] = 0,
) -> Response:
    """Show what was done."""
    view = house.desk.history(session.reviewer, after=after)
    return render(request, "history.html", session, view=view)


@router.get("/docs")
def show_docs(request: Request, session: Reviewer) -> Response:
    """Show the interface for programs."""
    described = request.app.openapi()
    operations = [
        {"method": method.upper(), "path": path, **operation}
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    ]
    return render(request, "docs.html", session, operations=operations)


@router.get("/export/report.html")
def export_report(house: HouseOf, session: Reviewer) -> Response:
    """Give the report as a file."""
    house.desk.check_overview(session.reviewer)
    headers = {"Content-Disposition": 'attachment; filename="report.html"'}
    return HTMLResponse(render_report(house.desk.audit), headers=headers)


@router.get("/export/{table}.{kind}")
def export(house: HouseOf, session: Reviewer, table: str, kind: str) -> Response:
    """Give a table as a file."""
    if table not in ("reviews", "episodes") or kind not in KINDS:
        raise HTTPException(404, "there is no such file")
    return export_file(house, session.reviewer, table, kind)


@router.get("/static/{name}")
def show_file(name: str) -> Response:
    """Give a file that comes with the package."""
    if name == "vega.js":
        text, kind = chart_bundle().encode(), "text/javascript"
    elif name in FILES:
        path, kind = FILES[name]
        text = path.read_bytes()
    else:
        raise HTTPException(404, "there is no such file")
    headers = {"Cache-Control": "private, max-age=31536000, immutable"}
    return Response(text, media_type=f"{kind}; charset=utf-8", headers=headers)


@cache
def version_of(name: str) -> str:
    """Return what changes the address of a file when its content changes."""
    text = chart_bundle().encode() if name == "vega.js" else FILES[name][0].read_bytes()
    return f"/static/{name}?v={hashlib.sha256(text).hexdigest()[:12]}"


# ------------------------------------------------------------------------------------------ a stay


@router.get("/episodes/{slug}")
def show_stay(
    request: Request, house: HouseOf, session: Reviewer, slug: str, place: Place = None
) -> Response:
    """Show a stay and ask about it."""
    desk = house.desk
    view = desk.stay(session.reviewer, desk.named(slug), place)
    return render(request, "stay.html", session, view=view)


@router.post("/episodes/{slug}")
def work_on_stay(
    request: Request, house: HouseOf, session: FormPoster, form: Form, slug: str
) -> Response:
    """Do what a form about a stay says: save, skip or give an impression."""
    desk, who = house.desk, session.reviewer
    name = desk.named(slug)
    place = _number(form, "place")
    try:
        desk.check_run(form.get("run", ""))
        item = desk.item(who, name, place)
        key, again = (desk.run.id, who, name), item.repeat
        expected = _number(form, "version", required=True)
        match form.get("do"):
            case "impression":
                answer = form.get("first_impression", "")
                desk.store.give_impression(*key, answer, repeat=again)
                return RedirectResponse(_address(slug, place), 303)
            case "skip":
                desk.store.skip(*key, expected_version=expected, repeat=again)
            case "save":
                desk.store.submit(
                    *key,
                    _verdict(form),
                    seconds=_seconds(form),
                    expected_version=expected,
                    repeat=again,
                )
            case _:
                raise FieldError("do", "save, skip or impression")
    except (FieldError, StaleError, RefusedError) as error:
        status, said = describe_error(error)
        view = desk.stay(who, name, place) | {"form": form}
        return render(request, "stay.html", session, status, view=view, problem=said)
    following = desk.following(who)
    return RedirectResponse(
        "/" if following is None else _address(following["slug"], following["place"]), 303
    )


@router.post("/reviews/{review}/withdraw")
def undo(house: HouseOf, session: FormPoster, form: Form, review: int) -> Response:
    """Take a verdict back and show its stay again."""
    desk = house.desk
    desk.check_run(form.get("run", ""))
    if not 0 <= review <= MOST:
        raise HTTPException(404, "there is no such review")
    expected = _number(form, "version", required=True)
    done = desk.store.withdraw(desk.run.id, session.reviewer, review, expected_version=expected)
    return RedirectResponse(_address(make_slug(done.episode), done.place), 303)


# ----------------------------------------------------------------------------------- disagreements


@router.get("/disagreements/{slug}")
def show_disagreement(request: Request, house: HouseOf, session: Reviewer, slug: str) -> Response:
    """Show what reviewers differ about."""
    view = house.desk.disagreement(session.reviewer, house.desk.named(slug))
    return render(request, "disagreement.html", session, view=view, form={})


@router.post("/disagreements/{slug}")
def settle(
    request: Request, house: HouseOf, session: FormPoster, form: Form, slug: str
) -> Response:
    """Settle a disagreement, or take that back."""
    desk, who = house.desk, session.reviewer
    name = desk.named(slug)
    try:
        desk.check_run(form.get("run", ""))
        expected = _number(form, "version", required=True)
        if form.get("do") == "unsettle":
            desk.store.unsettle(desk.run.id, who, name, expected_version=expected)
        elif form.get("do") != "settle":
            raise FieldError("do", "settle or unsettle")
        else:
            verdict = _number(form, "verdict", required=True)
            reason = form.get("reason", "")
            desk.store.settle(
                desk.run.id, who, name, verdict or 0, reason, expected_version=expected
            )
    except (FieldError, StaleError, RefusedError) as error:
        status, said = describe_error(error)
        view = desk.disagreement(who, name)
        return render(
            request, "disagreement.html", session, status, view=view, problem=said, form=form
        )
    return RedirectResponse(f"/disagreements/{slug}", 303)


# ------------------------------------------------------------------------------------------ fields


def _verdict(form: dict[str, str]) -> Verdict:
    verdict = _number(form, "verdict")
    if verdict is None:
        raise FieldError("verdict", "choose one of the five")
    names = ("variable", "sure", "comment")
    texts = {name: form.get(name, "").replace("\r\n", "\n") for name in names}
    return Verdict(verdict, step=_number(form, "step"), **texts)


def _number(form: dict[str, str], name: str, *, required: bool = False) -> int | None:
    text = form.get(name, "").strip()
    if not text and not required:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise FieldError(name, f"{text[:40]!r} is no whole number from 0 on")
    return int(text)


def _seconds(form: dict[str, str]) -> float:
    try:
        return float(form.get("seconds") or 0)
    except ValueError:
        raise FieldError("seconds", "no number") from None


def _address(slug: str, place: int | None) -> str:
    return f"/episodes/{slug}" + ("" if place is None else f"?place={place}")


def _cell_link(observed: str, model: str) -> str:
    return "/episodes?" + urlencode({"obs": observed, "model": model}, errors="replace")


def _minute(at: str) -> str:
    """Write a time of the store to the minute."""
    return at[:16].replace("T", " ") + " UTC" if at else ""
