"""The JSON API, `/api/v1`: every page as JSON, and everything reviewers do."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from butfor.review.export import episodes_text, reviews_text
from butfor.review.opinions import settle, unsettle
from butfor.review.routes.access import Poster, SignedIn, find_access, find_session, sign_in
from butfor.review.verdicts import FieldError, Verdict
from butfor.review.views.history import history_view
from butfor.review.views.overview import (
    ListFilters,
    chart_view,
    list_view,
    overview_view,
    results_view,
)
from butfor.review.views.queue import next_view, queue_view
from butfor.review.views.review import about_view
from butfor.review.views.stay import disagreement_view, stay_view, trajectory_view

MOST = 2**53  # the largest whole number that every reader of JSON represents exactly
PLACE = "The place's number in the queue."
Number = Annotated[int, Path(ge=0, le=MOST)]
Place = Annotated[int | None, Query(ge=0, le=MOST, description=PLACE)]
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


# ------------------------------------------------------------------------------------------ session


@router.get("/session")
def show_session(request: Request, viewer: SignedIn) -> dict[str, Any]:
    """Who is signed in, and the token to send as X-CSRF-Token."""
    session = find_session(request)
    return {"reviewer": viewer.reviewer.name, "csrf": session.csrf if session else ""}


@router.post("/session", responses={429: {"model": Problem, "description": "Too many failures"}})
def start_session(request: Request, body: GivenName) -> Json:
    """Sign in; the response sets the cookie."""
    session = sign_in(request, body.reviewer, body.token)
    answer = Json({"reviewer": session.reviewer, "csrf": session.csrf})
    find_access(request).set_cookies(answer, session)
    return answer


# -------------------------------------------------------------------------------------------- views


@router.get("/run")
def show_run(viewer: SignedIn) -> dict[str, Any]:
    """Hashes, thresholds and caveats of the run under review."""
    return about_view(viewer.review)


@router.get("/queue")
def show_queue(viewer: SignedIn) -> dict[str, Any]:
    """Your queue."""
    return queue_view(viewer)


@router.get("/queue/next")
def show_next(viewer: SignedIn) -> dict[str, Any]:
    """What to read next."""
    return {"next": next_view(viewer)}


@router.get("/overview")
def show_overview(viewer: SignedIn) -> dict[str, Any]:
    """Numbers about all stays, once your queue is done."""
    return overview_view(viewer)


@router.get("/episodes")
def list_episodes(viewer: SignedIn, filters: Annotated[ListFilters, Depends()]) -> dict[str, Any]:
    """Stays by what happened, what the model says, and state, once your queue is done."""
    return list_view(viewer, filters)


@router.get("/episodes/{slug}")
def show_episode(
    viewer: SignedIn, response: Response, slug: str, place: Place = None
) -> dict[str, Any]:
    """Everything that is shown of a stay; its version is the ETag."""
    view = stay_view(viewer, viewer.review.shown.find(slug), place)
    if "version" in view:
        response.headers["ETag"] = f'"{view["version"]}"'
    return view


@router.get("/episodes/{slug}/trajectory")
def show_trajectory(
    viewer: SignedIn, slug: str, place: Place = None, settling: bool = False
) -> dict[str, Any]:
    """The rows of a stay's picture, for the trajectory chart."""
    return trajectory_view(viewer, viewer.review.shown.find(slug), place, settling=settling)


@router.get("/charts/{name}")
def show_chart(
    viewer: SignedIn, name: Literal["estimates", "overview", "trajectory"], model: bool = True
) -> dict[str, Any]:
    """A chart as a Vega-Lite template, and its rows."""
    if name == "trajectory":
        shown = viewer.review.shown
        return {"spec": shown.template if model else shown.template_without_model, "datasets": {}}
    return chart_view(viewer, {"overview": "glance"}.get(name, name))


@router.get("/disagreements/{slug}")
def show_disagreement(viewer: SignedIn, slug: str) -> dict[str, Any]:
    """What reviewers differ about."""
    return disagreement_view(viewer, viewer.review.shown.find(slug))


@router.get("/results")
def show_results(viewer: SignedIn) -> dict[str, Any]:
    """The results of the review, once your queue is done."""
    return asdict(results_view(viewer))


@router.get("/agreement")
def show_agreement(viewer: SignedIn) -> dict[str, Any]:
    """How far reviewers agree, once your queue is done."""
    return asdict(results_view(viewer).agreement)


@router.get("/events")
def show_events(
    viewer: SignedIn, after: Annotated[int, Query(ge=0, le=MOST)] = 0
) -> dict[str, Any]:
    """Your actions, and those of everybody once your queue is done."""
    return history_view(viewer, after=after)


@router.get(
    "/export/{table}.{kind}",
    response_class=Response,
    responses={200: {"content": {kind.split(";")[0]: {} for kind in KINDS.values()}}},
)
def export(
    viewer: SignedIn, table: Literal["reviews", "episodes"], kind: Literal["csv", "jsonl"]
) -> Response:
    """All reviews, or all stays, as a file, once your queue is done."""
    viewer.check_overview()
    review = viewer.review
    if table == "reviews":
        text = reviews_text(review.store, review.audit, kind, reader=viewer.reviewer.name)
    else:
        text = episodes_text(review.store, review.audit, kind)
    name = f"{table}-{review.run.id[:8]}.{kind}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text.encode("utf-8", "surrogatepass"), media_type=KINDS[kind], headers=headers)


# ------------------------------------------------------------------------------------------ actions


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
    return {"review": done.review, "version": done.version, "next": next_view(viewer)}


@router.post("/episodes/{slug}/impression", status_code=201)
def give_impression(viewer: Poster, slug: str, body: GivenImpression) -> dict[str, Any]:
    """Say what you think before seeing the model."""
    item = viewer.item(slug, body.place, body.run)
    done = viewer.reviewer.give_impression(item.episode, body.first_impression, repeat=item.repeat)
    return {"version": done.version}


@router.post("/episodes/{slug}/skip")
def skip(viewer: Poster, slug: str, body: About, match: Match = None) -> dict[str, Any]:
    """Leave a stay out for now."""
    item = viewer.item(slug, body.place, body.run)
    expected = _version(match, body)
    done = viewer.reviewer.skip(item.episode, repeat=item.repeat, expected_version=expected)
    return {"version": done.version, "next": next_view(viewer)}


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
    name, expected = viewer.review.shown.find(slug), _version(match, body)
    stay = settle(viewer.reviewer, name, body.verdict, body.reason, expected_version=expected)
    return {"state": stay.state, "final": stay.final, "version": stay.version}


@router.post("/episodes/{slug}/unsettle")
def unsettle_disagreement(
    viewer: Poster, slug: str, body: About, match: Match = None
) -> dict[str, Any]:
    """Withdraw your settlement."""
    viewer.review.check_run(body.run)
    name, expected = viewer.review.shown.find(slug), _version(match, body)
    stay = unsettle(viewer.reviewer, name, expected_version=expected)
    return {"state": stay.state, "version": stay.version}


def _version(match: str | None, body: About) -> int | None:
    """Return the version that the sender read."""
    if match is None or match.strip() == "*":
        return body.version
    plain = match.strip().removeprefix("W/").strip('"')
    if not (plain.isascii() and plain.isdecimal() and len(plain) < 17):
        raise FieldError("If-Match", "give the version that was read, as in its ETag")
    return int(plain)
