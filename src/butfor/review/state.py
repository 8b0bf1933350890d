"""What the events of a review say: `State.apply` is the only code that knows what an event means.

Drafts and claims are not evidence: the file has them, and no event does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from butfor.review.plan import ReviewSettings, place_number, reviewer_seed
from butfor.review.verdicts import RunChangedError, UnknownError

SALT = "salt"  # random, in every payload as it is stored
START = "0" * 64  # the hash before the first event


class Event(NamedTuple):
    """One action, as its row is in the file; `reviewer` and `episode` may be empty."""

    id: int  # 1, 2, 3 …
    at: str  # ISO 8601, UTC
    run: str
    reviewer: str
    episode: str
    # run, join, coordinate, impression, answer, submit, skip, withdraw, settle, unsettle,
    # settling, overview
    action: str
    text: str  # the payload as JSON, with a salt
    prev_hash: str
    hash: str

    @property
    def payload(self) -> dict[str, Any]:
        """What was said, read anew each time: kept as text, it takes a fraction of the memory."""
        said: dict[str, Any] = json.loads(self.text)
        said.pop(SALT, None)
        return said

    def plain(self) -> dict[str, Any]:
        """Return the event by name, with its payload, as exports have it."""
        return {
            name: self.payload if name == "payload" else getattr(self, name)
            for name in ("payload" if field == "text" else field for field in self._fields)
        }


@dataclass(frozen=True)
class Run:
    """An audit under review."""

    id: str
    opened_at: str
    settings: ReviewSettings
    current: bool
    outcomes: tuple[str, ...]  # whose chances reviewers are asked for, none last; empty: not asked
    secret: str = field(repr=False)  # what the orders of reviewers follow from; never shown


@dataclass(frozen=True)
class Review:
    """A verdict, whether or not it was withdrawn later."""

    id: int
    run: str
    reviewer: str
    episode: str
    repeat: bool
    verdict: int
    variable: str
    step: int | None
    sure: str
    comment: str
    seconds: float
    first_impression: str | None
    created_at: str
    withdrawn_at: str | None = None
    informed: bool = False  # given after seeing what others said about this stay or about all stays

    @property
    def counts(self) -> bool:
        """Whether it counts toward the stay's state: in force, and not a repeat."""
        return self.withdrawn_at is None and not self.repeat


@dataclass(frozen=True)
class Answer:
    """The chances that a reviewer gave before seeing what the model says; never withdrawn."""

    id: int
    run: str
    reviewer: str
    episode: str
    repeat: bool
    out_of_ten: tuple[int, ...] | None  # by outcome, none last; None: cannot tell
    sure: str
    reason: str
    seconds: float
    created_at: str
    informed: bool  # given after seeing what others said about this stay or about all stays


@dataclass(frozen=True)
class Settlement:
    """How a third reviewer settled a disagreement."""

    id: int
    run: str
    episode: str
    reviewer: str
    verdict: int
    reason: str
    created_at: str
    withdrawn_at: str | None = None


@dataclass(slots=True)
class Standing:
    """What a reviewer has done with a place in the queue."""

    state: str = ""  # submitted, skipped, withdrawn
    impression: str | None = None
    answer: int | None = None
    review: int | None = None  # the verdict in force
    version: int = 0  # the last event
    changed_at: str = ""


UNTOUCHED = Standing()
Told = TypeVar("Told", Review, Answer, Settlement)


@dataclass
class RunState:
    """Everything that follows from the events of one run."""

    run: Run
    stays: dict[str, tuple[bool, int]]  # whether a control, and steps; flagged ones by rank first
    queues: dict[str, list[tuple[str, bool, int]]] = field(default_factory=dict)  # by reviewer:
    # episode, whether it comes back, number of the place
    standing: dict[tuple[str, str, bool], Standing] = field(default_factory=dict)
    reviews: dict[int, Review] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)
    settlements: dict[int, Settlement] = field(default_factory=dict)
    about: dict[str, list[int]] = field(default_factory=dict)  # numbers of a stay's reviews
    verdicts: dict[str, dict[int, int]] = field(default_factory=dict)  # those that count, likewise
    settled: dict[str, int] = field(default_factory=dict)  # number of the settlement in force
    changed: dict[str, tuple[int, str]] = field(default_factory=dict)  # last event on a stay, when
    shown: set[tuple[str, str, str]] = field(default_factory=set)  # reviewer, episode or "", what
    coordinators: set[str] = field(default_factory=set)
    withdrawn: dict[int, int] = field(default_factory=dict)  # by review: the event that did it
    active: dict[str, str] = field(default_factory=dict)  # by name: when they last did something

    def reviews_of(self, episode: str, reviewer: str | None = None) -> list[Review]:
        """Return all verdicts on a stay, or those of one reviewer."""
        found = [self.reviews[number] for number in self.about.get(episode, ())]
        return [review for review in found if reviewer in (None, review.reviewer)]

    def held(self, episode: str) -> list[Review]:
        """Return the verdicts on a stay that are in force, without repeats."""
        return [self.reviews[number] for number in self.verdicts.get(episode, ())]

    def is_informed(self, reviewer: str, episode: str) -> bool:
        """Return whether a reviewer saw what others said about a stay, or about all."""
        return any(who == reviewer and about in (episode, "") for who, about, _ in self.shown)


@dataclass
class State:
    """What all events say, taken in one by one."""

    events: list[Event] = field(default_factory=list)
    runs: dict[str, RunState] = field(default_factory=dict)  # as they were first opened
    current: str = ""  # the run opened last
    names: dict[str, str] = field(default_factory=dict)  # as first written, by name in lower case
    pseudonyms: dict[str, str] = field(default_factory=dict)  # by who joined any run first

    @property
    def head(self) -> str:
        """The hash of the last event."""
        return self.events[-1].hash if self.events else START

    def run(self, identifier: str, *, current: bool = False) -> RunState:
        """Return a run; one that must be `current` is the one under review."""
        if identifier not in self.runs:
            raise UnknownError(f"there is no run {identifier!r}")
        if current and identifier != self.current:
            raise RunChangedError(self.current)
        return self.runs[identifier]

    def known_name(self, name: str) -> str:
        """Return a name as it was first written: capitals do not make another person."""
        return self.names.get(name.casefold(), name)

    def apply(self, event: Event) -> None:
        """Take in the next event."""
        if event.action == "run":
            self._open(event)
        else:
            self._change(self.runs[event.run], event, event.payload)
        self.events.append(event)

    def _change(self, run: RunState, event: Event, said: dict[str, Any]) -> None:
        """Take in an event of a run that was opened."""
        who = event.reviewer
        run.active[who] = max(event.at, run.active.get(who, ""))
        if event.action in ("join", "coordinate"):
            self.names.setdefault(who.casefold(), who)
        match event.action:
            case "join":
                run.queues[who] = _places(run.run, who, said["order"])
                self.pseudonyms.setdefault(who, f"Reviewer {len(self.pseudonyms) + 1}")
            case "coordinate":
                run.coordinators.add(who)
            case "settling" | "overview":
                run.shown.add((who, event.episode, event.action))
            case "settle" | "unsettle":
                _settle(run, event, said)
            case _:
                _read(run, event, said)
        if event.action in ("submit", "withdraw", "settle", "unsettle"):
            run.changed[event.episode] = event.id, event.at

    def _open(self, event: Event) -> None:
        """Make a run the current one; its first event carries the settings and the stays."""
        said = event.payload
        if said:
            run = Run(
                id=event.run,
                opened_at=event.at,
                settings=ReviewSettings(**said["settings"]),
                current=True,
                outcomes=tuple(said.get("outcomes", ())),
                secret=said.get("secret", ""),
            )
            stays = {episode: (bool(control), steps) for episode, control, steps in said["stays"]}
            self.runs[event.run] = RunState(run, stays)
        self.current = event.run
        for one in self.runs.values():
            one.run = replace(one.run, current=one.run.id == event.run)


def _places(run: Run, reviewer: str, order: list[Any]) -> list[tuple[str, bool, int]]:
    seed = reviewer_seed(run.settings.seed, run.id, reviewer, run.secret)
    return [
        (episode, bool(again), place_number(seed, position))
        for position, (episode, again) in enumerate(order)
    ]


def _read(run: RunState, event: Event, said: dict[str, Any]) -> None:
    """Take in what a reviewer did with a place in the queue."""
    place = event.reviewer, event.episode, bool(said["repeat"])
    stood = run.standing.setdefault(place, Standing())
    stood.version, stood.changed_at = event.id, event.at
    match event.action:
        case "impression":
            stood.impression = said["answer"]
        case "answer":
            given = said["out_of_ten"]
            said["out_of_ten"] = None if given is None else tuple(given)
            run.answers[event.id] = _told(Answer, event, said)
            stood.answer = event.id
        case "skip":
            stood.state = "skipped"
        case "submit":
            run.reviews[event.id] = _told(Review, event, said)
            run.about.setdefault(event.episode, []).append(event.id)
            if not said["repeat"]:
                run.verdicts.setdefault(event.episode, {})[event.id] = said["verdict"]
            stood.state, stood.review = "submitted", event.id
        case "withdraw":
            number = said["review"]
            run.reviews[number] = replace(run.reviews[number], withdrawn_at=event.at)
            run.withdrawn[number] = event.id
            run.verdicts.get(event.episode, {}).pop(number, None)
            stood.state, stood.review = "withdrawn", None
            if said.get("shown"):
                run.shown.add((event.reviewer, event.episode, "verdicts"))


def _settle(run: RunState, event: Event, said: dict[str, Any]) -> None:
    """Take in how a disagreement was settled, or that this was withdrawn."""
    if event.action == "settle":
        run.settlements[event.id] = _told(Settlement, event, said)
        run.settled[event.episode] = event.id
        return
    number = said["settlement"]
    run.settlements[number] = replace(run.settlements[number], withdrawn_at=event.at)
    run.settled.pop(event.episode, None)


def _told(kind: type[Told], event: Event, said: dict[str, Any]) -> Told:
    """Return what somebody said, as far as its kind has a place for it."""
    return kind(
        id=event.id,
        run=event.run,
        reviewer=event.reviewer,
        episode=event.episode,
        created_at=event.at,
        **{name: said[name] for name in kind.__dataclass_fields__ if name in said},
    )
