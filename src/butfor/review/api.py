"""The interface for programs, `/api/v1`: every page as JSON, and what reviewers do."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from butfor.review.doors import HouseOf, Json, Poster, Reviewer, find_session
from butfor.review.export import model_columns, plain_value, reviews_csv, reviews_jsonl, to_csv
from butfor.review.verdicts import FieldError, Verdict

MOST = 2**53
Number = Annotated[int, Path(ge=0, le=MOST)]
Place = Annotated[int | None, Query(ge=0, le=MOST, description="Place, as the queue has it.")]
Match = Annotated[str | None, Header(alias="If-Match", description="Version that was read.")]
KINDS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}


class Body(BaseModel):
    """What is sent: nothing that is not asked for, nothing guessed."""

    model_config = ConfigDict(extra="forbid", strict=True)


class About(Body):
    """What something that is sent is about."""

    run: str | None = Field(None, description="Refused if another run is under review.")
    version: int | None = Field(None, ge=0, le=MOST, description="As If-Match.")
    place: int | None = Field(None, ge=0, le=MOST, description="Place, as the queue has it.")


class SignIn(Body):
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
    """Why something was refused."""

    error: str
    field: str | None = None
    version: int | None = None
    run: str | None = None


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": words}
    for status, words in {
        400: "Not understood",
        401: "Nobody is signed in",
        403: "Refused",
        404: "There is no such thing",
        409: "Stale, or about another run",
        413: "Too large",
        415: "Not JSON",
        422: "A field is wrong; it is named",
    }.items()
}
router = APIRouter(prefix="/api/v1", responses=REFUSALS, default_response_class=Json)


@router.get("/session")
def show_session(session: Reviewer) -> dict[str, Any]:
    """Who is signed in, and the token to send as X-CSRF-Token."""
    return {"reviewer": session.reviewer, "csrf": session.csrf}


@router.post("/session", responses={429: {"model": Problem, "description": "Too many failures"}})
def sign_in(request: Request, house: HouseOf, body: SignIn) -> Json:
    """Sign in; the answer sets the cookie."""
    address = request.client.host if request.client else ""
    session = house.sign_in(find_session(request), body.reviewer, body.token, address)
    answer = Json({"reviewer": session.reviewer, "csrf": session.csrf})
    house.give_cookie(answer, session)
    return answer


@router.get("/run")
def show_run(house: HouseOf, session: Reviewer) -> dict[str, Any]:
    """Hashes, thresholds, caveats."""
    return house.desk.about_run()


@router.get("/queue")
def show_queue(house: HouseOf, session: Reviewer) -> dict[str, Any]:
    """One's queue."""
    return house.desk.queue(session.reviewer)


@router.get("/queue/next")
def show_next(house: HouseOf, session: Reviewer) -> dict[str, Any]:
    """What to read next."""
    return {"next": house.desk.following(session.reviewer)}


@router.get("/overview")
def show_overview(house: HouseOf, session: Reviewer) -> dict[str, Any]:
    """Numbers about all stays; once one's queue is done."""
    return house.desk.overview(session.reviewer)


@router.get("/episodes")
def list_episodes(
    house: HouseOf,
    session: Reviewer,
    obs: str = "",
    model: str = "",
    status: str = "",
    sort: str = "",
    after: str = "",
) -> dict[str, Any]:
    """Stays by what happened, what the model says, and state; once one's queue is done."""
    return house.desk.listing(
        session.reviewer, obs=obs, model=model, status=status, sort=sort, after=after
    )


@router.get("/episodes/{slug}")
def show_episode(house: HouseOf, session: Reviewer, slug: str, place: Place = None) -> Json:
    """All that is shown of a stay; its version is the ETag."""
    desk = house.desk
    view = desk.stay(session.reviewer, desk.named(slug), place)
    return Json(view, headers={"ETag": f'"{view["version"]}"'} if "version" in view else None)


@router.get("/episodes/{slug}/trajectory")
def show_trajectory(
    house: HouseOf, session: Reviewer, slug: str, place: Place = None, settling: bool = False
) -> dict[str, Any]:
    """Rows of a stay's picture, for the chart `trajectory`."""
    desk = house.desk
    return desk.trajectory(session.reviewer, desk.named(slug), place, settling=settling)


@router.get("/charts/{name}")
def show_chart(
    house: HouseOf,
    session: Reviewer,
    name: Literal["estimates", "overview", "trajectory"],
    model: bool = True,
) -> dict[str, Any]:
    """Vega-Lite of a chart; rows apart."""
    desk = house.desk
    if name == "trajectory":
        return {"spec": desk.template(model=model), "datasets": {}}
    return desk.chart(session.reviewer, {"overview": "glance"}.get(name, name))


@router.post("/episodes/{slug}/reviews", status_code=201)
def give_review(
    house: HouseOf, session: Poster, slug: str, body: GivenReview, match: Match = None
) -> dict[str, Any]:
    """Give a verdict."""
    desk, who = house.desk, session.reviewer
    desk.check_run(body.run)
    item = desk.item(who, desk.named(slug), body.place)
    said = Verdict(body.verdict, body.variable, body.step, body.sure, body.comment)
    done = desk.store.submit(
        desk.run.id,
        who,
        item.episode,
        said,
        repeat=item.repeat,
        seconds=body.seconds,
        expected_version=_version(match, body.version),
    )
    return {"review": done.review, "version": done.version, "next": desk.following(who)}


@router.post("/episodes/{slug}/impression", status_code=201)
def give_impression(
    house: HouseOf, session: Poster, slug: str, body: GivenImpression
) -> dict[str, Any]:
    """Say what one thinks before seeing the model."""
    desk = house.desk
    desk.check_run(body.run)
    item = desk.item(session.reviewer, desk.named(slug), body.place)
    done = desk.store.give_impression(
        desk.run.id, session.reviewer, item.episode, body.first_impression, repeat=item.repeat
    )
    return {"version": done.version}


@router.post("/episodes/{slug}/skip")
def skip(
    house: HouseOf, session: Poster, slug: str, body: About, match: Match = None
) -> dict[str, Any]:
    """Leave a stay out."""
    desk, who = house.desk, session.reviewer
    desk.check_run(body.run)
    item = desk.item(who, desk.named(slug), body.place)
    done = desk.store.skip(
        desk.run.id,
        who,
        item.episode,
        repeat=item.repeat,
        expected_version=_version(match, body.version),
    )
    return {"version": done.version, "next": desk.following(who)}


@router.post("/episodes/{slug}/draft")
def save_draft(house: HouseOf, session: Poster, slug: str, body: GivenDraft) -> dict[str, Any]:
    """Keep an unfinished form; not once a verdict is in."""
    desk = house.desk
    desk.check_run(body.run)
    item = desk.item(session.reviewer, desk.named(slug), body.place)
    kept = desk.store.save_draft(
        desk.run.id, session.reviewer, item.episode, body.form, repeat=item.repeat
    )
    return {"kept": kept}


@router.post("/reviews/{review}/withdraw")
def withdraw(
    house: HouseOf, session: Poster, review: Number, body: About, match: Match = None
) -> dict[str, Any]:
    """Take one's verdict back."""
    desk = house.desk
    desk.check_run(body.run)
    done = desk.store.withdraw(
        desk.run.id, session.reviewer, review, expected_version=_version(match, body.version)
    )
    return {"version": done.version}


@router.get("/disagreements/{slug}")
def show_disagreement(house: HouseOf, session: Reviewer, slug: str) -> dict[str, Any]:
    """What reviewers differ about."""
    return house.desk.disagreement(session.reviewer, house.desk.named(slug))


@router.post("/episodes/{slug}/settle")
def settle(
    house: HouseOf, session: Poster, slug: str, body: GivenSettlement, match: Match = None
) -> dict[str, Any]:
    """Settle a disagreement, as somebody who gave no verdict."""
    desk = house.desk
    desk.check_run(body.run)
    stay = desk.store.settle(
        desk.run.id,
        session.reviewer,
        desk.named(slug),
        body.verdict,
        body.reason,
        expected_version=_version(match, body.version),
    )
    return {"state": stay.state, "final": stay.final, "version": stay.version}


@router.post("/episodes/{slug}/unsettle")
def unsettle(
    house: HouseOf, session: Poster, slug: str, body: About, match: Match = None
) -> dict[str, Any]:
    """Take one's settlement back."""
    desk = house.desk
    desk.check_run(body.run)
    expected = _version(match, body.version)
    name = desk.named(slug)
    stay = desk.store.unsettle(desk.run.id, session.reviewer, name, expected_version=expected)
    return {"state": stay.state, "version": stay.version}


@router.get("/results")
def show_results(house: HouseOf, session: Reviewer) -> dict[str, Any]:
    """What the review found; once one's queue is done."""
    return asdict(house.desk.results(session.reviewer))


@router.get("/agreement")
def show_agreement(house: HouseOf, session: Reviewer) -> dict[str, Any]:
    """How far reviewers agree; once one's queue is done."""
    return asdict(house.desk.results(session.reviewer).agreement)


@router.get("/events")
def show_events(
    house: HouseOf, session: Reviewer, after: Annotated[int, Query(ge=0, le=MOST)] = 0
) -> dict[str, Any]:
    """What was done: one's own, and all once one's queue is done."""
    return house.desk.history(session.reviewer, after=after)


@router.get(
    "/export/{table}.{kind}",
    response_class=Response,
    responses={200: {"content": {kind.split(";")[0]: {} for kind in KINDS.values()}}},
)
def export(
    house: HouseOf,
    session: Reviewer,
    table: Literal["reviews", "episodes"],
    kind: Literal["csv", "jsonl"],
) -> Response:
    """All reviews, or all stays, as a file; once one's queue is done."""
    return export_file(house, session.reviewer, table, kind)


def export_file(house: HouseOf, reviewer: str, table: str, kind: str) -> Response:
    """Return a file to keep."""
    desk = house.desk
    desk.check_overview(reviewer)
    if table == "reviews":
        write = reviews_csv if kind == "csv" else reviews_jsonl
        text = write(desk.store, desk.audit, reader=reviewer)
    else:
        text = _episodes(house, kind)
    name = f"{table}-{desk.run.id[:8]}.{kind}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text.encode("utf-8", "surrogatepass"), media_type=KINDS[kind], headers=headers)


def _episodes(house: HouseOf, kind: str) -> str:
    desk = house.desk
    audit = desk.audit
    states = {stay.episode: stay for stay in desk.store.stays(desk.run.id)}
    columns = ["length", *model_columns(audit), "evidence_min", "thin_share"]
    rows = []
    for row in audit.episodes.to_dict("records"):
        stay = states.get(str(row["id"]))
        told: dict[str, Any] = {"run_id": desk.run.id, "episode_id": str(row["id"])}
        told |= {"state": stay.state if stay else "", "final": stay.final if stay else None}
        told |= {"observed": row["observed_outcome"]}
        rows.append(told | {name: plain_value(row.get(name)) for name in columns})
    if kind == "csv":
        names = ["run_id", "episode_id", "state", "final", "observed", *columns]
        return to_csv(rows, names)
    return "".join(Json(None).render(row).decode() + "\n" for row in rows)


def _version(match: str | None, version: int | None) -> int | None:
    """Return the version that the sender read."""
    if match is None or match.strip() == "*":
        return version
    plain = match.strip().removeprefix("W/").strip('"')
    if not (plain.isascii() and plain.isdecimal() and len(plain) < 17):
        raise FieldError("If-Match", "give the version that was read, as its ETag has it")
    return int(plain)
