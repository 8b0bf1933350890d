"""Who sends a request: signing in, the session's cookies, and the checks on forms."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import parse_qs, quote

from fastapi import Depends, HTTPException, Path, Query, Request
from fastapi.responses import Response

from butfor.review.routes.sessions import FailedSignIns, Session, Sessions, Tokens
from butfor.review.shown import AuditReview, Viewer
from butfor.review.verdicts import RefusedError, ReviewError, check_reviewer

FORM = "application/x-www-form-urlencoded"
MOST_FIELDS = 40
MOST = 2**53  # the largest whole number that every reader of JSON represents exactly
PLACE = "The place's number in the queue."
Number = Annotated[int, Path(ge=0, le=MOST)]
Place = Annotated[int | None, Query(ge=0, le=MOST, description=PLACE)]


class SignInError(ReviewError):
    """Nobody is signed in."""

    status = 401


class ForbiddenError(ReviewError):
    """A form without the token of its session."""

    status = 403


class NoQueueError(RefusedError):
    """A coordinator asked for what only reviewers have."""


@dataclass(frozen=True)
class Access:
    """Who may sign in to a review, and the sessions of those who did."""

    review: AuditReview
    port: int = 0  # in the cookies' names, which reviews on other ports of the machine can see
    tokens: Tokens | None = None  # without them reviewers only enter a name
    secure: bool = False  # send cookies over TLS only
    coordinators: frozenset[str] = frozenset()  # whatever their capitals
    sessions: Sessions = field(default_factory=Sessions)
    failures: FailedSignIns = field(default_factory=FailedSignIns)

    @property
    def cookie(self) -> str:
        """Name of the session's cookie."""
        return f"butfor_session_{self.port}"

    @property
    def name_cookie(self) -> str:
        """Name of the cookie that remembers who was signed in."""
        return f"butfor_reviewer_{self.port}"

    def is_coordinator(self, name: str) -> bool:
        """Return whether somebody runs the review instead of reviewing."""
        return name.casefold() in {other.casefold() for other in self.coordinators}

    def absent(self, present: Iterable[str]) -> list[str]:
        """Return the reviewers with a token who are not among those present."""
        here = {name.casefold() for name in present}
        named = self.tokens.names if self.tokens else ()
        return [n for n in named if n.casefold() not in here and not self.is_coordinator(n)]

    def is_new(self, name: str) -> bool:
        """Whether a reviewer has not begun with any case."""
        if self.is_coordinator(name):
            return False
        items = self.review.store.reviewer(self.review.run.id, name).queue().items
        return not any(item.version for item in items)

    def set_cookies(self, response: Response, session: Session) -> None:
        """Give the browser its session, and the name for when the session has ended."""
        given = {self.cookie: session.id}
        if session.reviewer:
            given[self.name_cookie] = quote(session.reviewer, safe="")
        for name, value in given.items():
            response.set_cookie(
                name, value, httponly=True, samesite="strict", secure=self.secure, path="/"
            )


def find_access(request: Request) -> Access:
    """Return the review that a request is sent to, and who may sign in."""
    return request.app.state.access


def find_session(request: Request) -> Session | None:
    """Return the session of a request, if it has one."""
    access = find_access(request)
    return access.sessions.find(request.cookies.get(access.cookie))


def find_viewer(request: Request) -> Viewer:
    """Return the reviewer or coordinator who is signed in."""
    session = find_session(request)
    if session is None or not session.reviewer:
        raise SignInError("sign in first")
    access, name = find_access(request), session.reviewer
    reviewer = access.review.store.reviewer(access.review.run.id, name)
    return Viewer(access.review, reviewer, access.is_coordinator(name))


def find_reader(request: Request) -> Viewer:
    """Return the reviewer who is signed in; coordinators are given no cases."""
    viewer = find_viewer(request)
    if viewer.coordinates:
        raise NoQueueError("you coordinate this review, so you have no queue and give no verdicts")
    return viewer


def find_coordinator(request: Request) -> Viewer:
    """Return the coordinator who is signed in."""
    viewer = find_viewer(request)
    if not viewer.coordinates:
        raise RefusedError("only a coordinator sees how far others have come")
    return viewer


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


async def wait_after_failures(request: Request) -> None:
    """Let addresses wait from which somebody tried wrong tokens."""
    await asyncio.sleep(find_access(request).failures.delay(_address(request)))


def sign_in(request: Request, name: str, token: str) -> Session:
    """Start a session for a reviewer or coordinator in place of the current one."""
    access, reviewer = find_access(request), check_reviewer(name)
    if access.tokens is not None and not access.tokens.match(reviewer, token):
        access.failures.add(_address(request))
        raise SignInError("name and token do not match")
    store, run = access.review.store, access.review.run.id
    if access.is_coordinator(reviewer):
        known = store.coordinate(run, reviewer)
    else:
        known = store.join(run, reviewer).name
    access.sessions.end(request.cookies.get(access.cookie))
    return access.sessions.start(known)


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form, the last value of each."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != FORM:
        raise HTTPException(415, f"send a form as {FORM}")
    try:
        fields = parse_qs(
            (await request.body()).decode("ascii"),
            keep_blank_values=True,
            max_num_fields=MOST_FIELDS,
            errors="strict",
        )
    except ValueError:
        raise HTTPException(400, "this is not a valid form") from None
    return {name: values[-1] for name, values in fields.items()}


def check_csrf(request: Request, token: str | None) -> None:
    """Raise if a request does not return its session's token."""
    session = find_session(request)
    if session is None or not hmac.compare_digest(
        session.csrf.encode(), (token or "").encode("utf-8", "surrogatepass")
    ):
        raise ForbiddenError("the form is too old or from another site; open the page again")


def find_poster(request: Request) -> Viewer:
    """Return the reviewer who sends JSON."""
    viewer = find_reader(request)
    check_csrf(request, request.headers.get("x-csrf-token"))
    return viewer


def find_form_poster(
    request: Request, form: Annotated[dict[str, str], Depends(read_form)]
) -> Viewer:
    """Return the reviewer who sends a form."""
    viewer = find_reader(request)
    check_csrf(request, form.get("csrf"))
    return viewer


def local_path(path: str) -> str:
    """Return a path of this site, encoded as it is, or that of the queue."""
    local = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return quote(path, safe="/?=&~-_.%+:@!$'()*,;") if local else "/"


SignedIn = Annotated[Viewer, Depends(find_viewer)]
Reader = Annotated[Viewer, Depends(find_reader)]
Coordinator = Annotated[Viewer, Depends(find_coordinator)]
Poster = Annotated[Viewer, Depends(find_poster)]
FormPoster = Annotated[Viewer, Depends(find_form_poster)]
AfterFailures = Depends(wait_after_failures)
Form = Annotated[dict[str, str], Depends(read_form)]
