"""Who comes in: the session of a request, its forms and tokens, and errors as answers."""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import parse_qs, quote, unquote

from fastapi import Depends, HTTPException, Request
from fastapi.responses import JSONResponse, Response

from butfor.review.desk import Desk
from butfor.review.sessions import Session, Sessions, Tokens, Tries
from butfor.review.verdicts import (
    FieldError,
    RefusedError,
    ReviewError,
    RunChangedError,
    StaleError,
    StoreError,
    UnknownError,
    check_reviewer,
)

FORM = "application/x-www-form-urlencoded"
MOST_FIELDS = 40


class SignInError(ReviewError):
    """Nobody is signed in."""


class ForbiddenError(ReviewError):
    """A form without the token of its session."""


class TooManyError(ReviewError):
    """Too many failures in a short time."""


STATUS: dict[type[ReviewError], int] = {
    FieldError: 422,
    StaleError: 409,
    RunChangedError: 409,
    RefusedError: 403,
    ForbiddenError: 403,
    SignInError: 401,
    TooManyError: 429,
    UnknownError: 404,
    StoreError: 503,
}


class Json(JSONResponse):
    """JSON in plain ASCII, whatever the texts contain."""

    def render(self, content: Any) -> bytes:
        """Return the bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


@dataclass(frozen=True)
class House:
    """What all requests share."""

    desk: Desk
    port: int = 0  # reviews on other ports of a machine share its cookies
    tokens: Tokens | None = None  # without them reviewers type a name
    secure: bool = False  # cookies only over TLS
    sessions: Sessions = field(default_factory=Sessions)
    tries: Tries = field(default_factory=Tries)

    def sign_in(self, session: Session | None, name: str, token: str, address: str) -> Session:
        """Begin a reviewer's session, under a new name; the one before ends."""
        reviewer = check_reviewer(name)
        if self.tokens is not None and not self.tokens.match(reviewer, token):
            if self.tries.too_many(address):
                raise TooManyError("too many failures; wait a minute, then try again")
            self.tries.note_failure(address)
            raise SignInError("name and token do not belong together")
        reviewer = self.desk.store.join(self.desk.run.id, reviewer)
        if session is not None:
            self.sessions.end(session.id)
        return self.sessions.start(reviewer)

    @property
    def cookie(self) -> str:
        """Name of the session's cookie."""
        return f"butfor_session_{self.port}"

    @property
    def name_cookie(self) -> str:
        """Name of the cookie that remembers who was signed in."""
        return f"butfor_reviewer_{self.port}"

    def give_cookie(self, response: Response, session: Session) -> None:
        """Hand the session to the browser, and the name for when the session has ended."""
        given = {self.cookie: session.id}
        if session.reviewer:
            given[self.name_cookie] = quote(session.reviewer, safe="")
        for name, value in given.items():
            response.set_cookie(
                name, value, httponly=True, samesite="strict", secure=self.secure, path="/"
            )

    def take_cookie(self, response: Response) -> None:
        """Let the browser forget who was here."""
        for name in (self.cookie, self.name_cookie):
            response.delete_cookie(name)

    def last_reviewer(self, request: Request) -> str:
        """Return who was signed in before the session ended."""
        return unquote(request.cookies.get(self.name_cookie, ""), errors="replace")


def find_house(request: Request) -> House:
    """Return what all requests share."""
    return request.app.state.house


def find_session(request: Request) -> Session | None:
    """Return the session of a request, if it has one."""
    house = find_house(request)
    return house.sessions.find(request.cookies.get(house.cookie))


def find_reviewer(request: Request) -> Session:
    """Return the session of somebody who is signed in."""
    session = find_session(request)
    if session is None or not session.reviewer:
        raise SignInError("sign in first")
    return session


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
        raise HTTPException(400, "this is not a form") from None
    return {name: values[-1] for name, values in fields.items()}


def check_csrf(session: Session | None, token: str | None) -> Session:
    """Refuse a form that does not bring back its session's token."""
    if session is None or not hmac.compare_digest(
        session.csrf.encode(), (token or "").encode("utf-8", "surrogatepass")
    ):
        raise ForbiddenError("the form is too old, or not from here; open the page again")
    return session


def find_poster(request: Request) -> Session:
    """Return the session of a reviewer who sends JSON."""
    session = find_reviewer(request)
    return check_csrf(session, request.headers.get("x-csrf-token"))


def find_form_poster(
    request: Request, form: Annotated[dict[str, str], Depends(read_form)]
) -> Session:
    """Return the session of a reviewer who sends a form."""
    return check_csrf(find_reviewer(request), form.get("csrf"))


def describe_error(error: ReviewError) -> tuple[int, dict[str, Any]]:
    """Return an error as status and content."""
    content: dict[str, Any] = {"error": str(error)}
    match error:
        case FieldError():
            content |= {"field": error.field}
        case StaleError():
            content |= {"version": error.version}
        case RunChangedError():
            content |= {"run": error.run}
    status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
    return status, content


def local_path(path: str) -> str:
    """Return a path of this site, which stays encoded as it is, or that of the queue."""
    fine = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return quote(path, safe="/?=&~-_.%+:@!$'()*,;") if fine else "/"


HouseOf = Annotated[House, Depends(find_house)]
Reviewer = Annotated[Session, Depends(find_reviewer)]
Poster = Annotated[Session, Depends(find_poster)]
FormPoster = Annotated[Session, Depends(find_form_poster)]
Form = Annotated[dict[str, str], Depends(read_form)]
