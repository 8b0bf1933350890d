"""The JSON API, `/api/v1`: every page as JSON, and everything reviewers do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from butfor.review.export import episodes_text, reviews_text
from butfor.review.reviewer import settle, unsettle
from butfor.review.routes import access, overview, stay
from butfor.review.routes.access import MOST, PLACE, Number, Poster, SignedIn
from butfor.review.shown import Viewer
from butfor.review.verdicts import Chances, FieldError, Verdict

Match = Annotated[str | None, Header(alias="If-Match", description="The version that was read.")]
KINDS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}


class Json(JSONResponse):
    """JSON in plain ASCII, whatever the texts contain."""

    def render(self, content: Any) -> bytes:
        """Return the bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class Body(BaseModel):
    """A request body: unknown fields and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class About(Body):
    """What a request is about."""

    run: str | None = Field(None, description="Refused if another run is under review.")
    version: int | None = Field(None, ge=0, le=MOST, description="As If-Match.")
    place: int | None = Field(None, ge=0, le=MOST, description=PLACE)


class GivenName(Body):
    """Who signs in."""

    reviewer: str
    token: str = ""


class GivenReview(About):
    """A verdict."""

    verdict: int = Field(ge=1, le=5)
    variable: str = ""
    step: int | None = Field(None, ge=0, le=MOST)
    sure: Literal["", "low", "mid", "high"] = ""
    comment: str = ""
    seconds: float = Field(0.0, ge=0, le=86400)


class GivenImpression(About):
    """What a reviewer thinks before seeing the model."""

    first_impression: str


class GivenAnswer(About):
    """What a reviewer expects under the policy, before seeing the model."""

    chances: dict[str, int] | None = Field(
        None, description="Out of ten such cases, by outcome; null: cannot tell, with a reason."
    )
    reason: str = Field("", description="Why it cannot be told.")
    sure: Literal["", "low", "mid", "high"] = ""
    seconds: float = Field(0.0, ge=0, le=86400)


class GivenSettlement(About):
    """How a disagreement is settled."""

    verdict: int = Field(ge=1, le=5)
    reason: str


class GivenDraft(About):
    """An unfinished form."""

    form: dict[str, str | int | None]


class Problem(BaseModel):
    """Why a request was refused."""

    error: str
    field: str | None = None
    version: int | None = None
    run: str | None = None


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": words}
    for status, words in {
        400: "Malformed",
        401: "Nobody is signed in",
        403: "Refused",
        404: "Not found",
        409: "Stale, or about another run",
        413: "Too large",
        415: "Not JSON",
        422: "An invalid field, which is named",
    }.items()
}
router = APIRouter(prefix="/api/v1", responses=REFUSALS, default_response_class=Json)


@router.get("/session")
def show_session(request: Request, viewer: SignedIn) -> dict[str, Any]:
    """Who is signed in, and the token to send as X-CSRF-Token."""
    session = access.find_session(request)
    return {
        "reviewer": viewer.reviewer.name,
        "coordinator": viewer.coordinates,
        "csrf": session.csrf if session else "",
    }


@router.post("/session", dependencies=[access.AfterFailures])
def start_session(request: Request, body: GivenName) -> Json:
    """Sign in; the response sets the cookie."""
    session = access.sign_in(request, body.reviewer, body.token)
    answer = Json({"reviewer": session.reviewer, "csrf": session.csrf})
    access.find_access(request).set_cookies(answer, session)
    return answer


# every page shows what the view of its name here returns
VIEWS: dict[str, Callable[..., dict[str, Any]]] = {
    "/run": overview.show_run,
    "/practice": stay.show_start,
    "/practice/trajectory": stay.show_practice_rows,
    "/queue": stay.show_queue,
    "/queue/next": stay.show_next,
    "/overview": overview.show_overview,
    "/episodes": overview.list_episodes,
    "/episodes/{slug}": stay.show_episode,
    "/episodes/{slug}/trajectory": stay.show_trajectory,
    "/charts/{name}": overview.show_chart,
    "/disagreements/{slug}": stay.show_disagreement,
    "/progress": overview.show_progress,
    "/results": overview.show_results,
    "/agreement": overview.show_agreement,
    "/events": overview.show_events,
}
for _path, _view in VIEWS.items():
    router.get(_path)(_view)


@router.get(
    "/export/{table}.{kind}",
    response_class=Response,
    responses={200: {"content": {kind.split(";")[0]: {} for kind in KINDS.values()}}},
)
def export(
    viewer: SignedIn,
    table: Literal["reviews", "episodes"],
    kind: Literal["csv", "jsonl"],
    real_names: bool = False,
) -> Response:
    """All reviews, or all stays, as a file, once your queue is done or if you coordinate."""
    viewer.check_overview()
    if real_names:
        viewer.check_names()
    review = viewer.review
    if table == "reviews":
        text = reviews_text(review.store, review.audit, kind, real_names=real_names)
    else:
        text = episodes_text(review.store, review.audit, kind)
    name = f"{table}-{review.run.id[:8]}.{kind}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text.encode("utf-8", "surrogatepass"), media_type=KINDS[kind], headers=headers)


@router.post("/episodes/{slug}/reviews", status_code=201)
def give_review(
    viewer: Poster, slug: str, body: GivenReview, match: Match = None
) -> dict[str, Any]:
    """Give a verdict."""
    item = viewer.item(slug, body.place, body.run)
    done = viewer.reviewer.submit(
        item.episode,
        Verdict(body.verdict, body.variable, body.step, body.sure, body.comment),
        repeat=item.repeat,
        seconds=body.seconds,
        expected_version=_version(match, body),
    )
    return {"review": done.review, "version": done.version, **stay.show_next(viewer)}


@router.post("/episodes/{slug}/impression", status_code=201)
def give_impression(viewer: Poster, slug: str, body: GivenImpression) -> dict[str, Any]:
    """Say what you think before seeing the model."""
    item = viewer.item(slug, body.place, body.run)
    done = viewer.reviewer.give_impression(item.episode, body.first_impression, repeat=item.repeat)
    return {"version": done.version}


@router.post("/episodes/{slug}/answer", status_code=201)
def give_answer(viewer: Poster, slug: str, body: GivenAnswer) -> dict[str, Any]:
    """Say what you expect under the policy, before seeing the model."""
    item = viewer.item(slug, body.place, body.run)
    done = viewer.reviewer.answer(
        item.episode, _chances(viewer, body), repeat=item.repeat, seconds=body.seconds
    )
    return {"version": done.version}


@router.post("/practice")
def solve_practice(viewer: Poster, body: GivenAnswer) -> dict[str, Any]:
    """Say what you expect of the practice case and see what the model says; nothing is kept."""
    viewer.review.check_run(body.run)
    return stay.solve(viewer, _chances(viewer, body))


def _chances(viewer: Viewer, body: GivenAnswer) -> Chances:
    """Return the chances that were sent, in the order of the outcomes."""
    outcomes = viewer.review.run.outcomes
    if body.chances is None:
        return Chances(None, body.sure, body.reason)
    if outcomes and set(body.chances) != set(outcomes):
        raise FieldError("chances", f"give a number for each: {', '.join(outcomes)}")
    return Chances(tuple(body.chances.get(name, 0) for name in outcomes), body.sure, body.reason)


@router.post("/episodes/{slug}/skip")
def skip(viewer: Poster, slug: str, body: About, match: Match = None) -> dict[str, Any]:
    """Leave a stay out for now."""
    item = viewer.item(slug, body.place, body.run)
    expected = _version(match, body)
    done = viewer.reviewer.skip(item.episode, repeat=item.repeat, expected_version=expected)
    return {"version": done.version, **stay.show_next(viewer)}


@router.post("/episodes/{slug}/draft")
def save_draft(viewer: Poster, slug: str, body: GivenDraft) -> dict[str, Any]:
    """Save an unfinished form, unless the verdict is already given."""
    item = viewer.item(slug, body.place, body.run)
    return {"kept": viewer.reviewer.save_draft(item.episode, body.form, repeat=item.repeat)}


@router.post("/reviews/{review}/withdraw")
def withdraw(viewer: Poster, review: Number, body: About, match: Match = None) -> dict[str, Any]:
    """Withdraw your verdict."""
    viewer.review.check_run(body.run)
    done = viewer.reviewer.withdraw(review, expected_version=_version(match, body))
    return {"version": done.version}


@router.post("/episodes/{slug}/settle")
def settle_disagreement(
    viewer: Poster, slug: str, body: GivenSettlement, match: Match = None
) -> dict[str, Any]:
    """Settle a disagreement, as somebody who gave no verdict."""
    viewer.review.check_run(body.run)
    name, expected = viewer.review.find(slug), _version(match, body)
    settled = settle(viewer.reviewer, name, body.verdict, body.reason, expected_version=expected)
    return {
        "state": settled.state,
        "final": settled.final,
        "version": settled.version,
        "next": next(iter(stay.list_to_settle(viewer)), None),
    }


@router.post("/episodes/{slug}/unsettle")
def unsettle_disagreement(
    viewer: Poster, slug: str, body: About, match: Match = None
) -> dict[str, Any]:
    """Withdraw your settlement."""
    viewer.review.check_run(body.run)
    name, expected = viewer.review.find(slug), _version(match, body)
    settled = unsettle(viewer.reviewer, name, expected_version=expected)
    return {"state": settled.state, "version": settled.version}


def _version(match: str | None, body: About) -> int | None:
    """Return the version that the sender read."""
    if match is None or match.strip() == "*":
        return body.version
    plain = match.strip().removeprefix("W/").strip('"')
    if not (plain.isascii() and plain.isdecimal() and len(plain) < 17):
        raise FieldError("If-Match", "give the version that was read, as in its ETag")
    return int(plain)
