"""Meta: the provenance, parameters and counts of an audit, stored as `meta.json`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    computed_field,
    field_validator,
    model_validator,
)

from butfor.checks import check_size
from butfor.log.variables import Outcome, Variable, check_outcomes, check_variables

META = "meta.json"
SIGN = rb'"butfor":\s*"\d+\.\d+.*"digest":\s*"[0-9a-f]{64}"'  # in that of any version
SEAL = b',\n  "sha256": "'
CHANGED = "its SHA-256 is not the one in meta.json, so it was changed or is damaged"
REMEDY = "run `butfor audit` again, or restore the folder"
MOST_BYTES = 64_000_000
MOST_STEPS = 1_000_000  # largest horizon
Count = Annotated[int, Field(ge=0, lt=2**63)]


class Section(BaseModel):
    """A frozen record with strictly checked types."""

    model_config = ConfigDict(strict=True, frozen=True)


class CredibleSettings(Section):
    """How the credible intervals of single episodes were computed."""

    models: int
    prior: float | None = None  # weight of the prior; None: drawn from its posterior
    confidence: float
    # of the mean counterfactual return of just these episodes; None: not noted
    these: tuple[float, float] | None = None


class FactorSettings(Section):
    """One factor of a factored model: what decides a variable, and how that was found."""

    variable: str  # "": the end
    parents: tuple[str, ...]
    source: str
    strength: float | None = None  # of the back-off
    score: float | None = None  # mean log score of a case left out
    every: bool = False  # the back-off drops each parent in turn


class Parameters(Section):
    """The question: together with the digest of the inputs it identifies a run."""

    action_noise: str = Field(pattern="^(shared|fresh)$")
    mechanism: str
    horizon: int = Field(ge=1, le=MOST_STEPS)
    discount: float
    terminal: str = Field(pattern="^(visits|icml2019)$")
    hidden: bool = False
    latent_behavior: bool = False
    noise: str = Field("state", pattern="^(state|variables)$")
    factors: tuple[FactorSettings, ...] = ()  # none: the model is not factored
    reward_parents: tuple[str, ...] = ()  # of a factored model
    flags: Count = 0
    draws: Count
    intervals: Count | None = None  # episodes drawn at random that have bounds; None: not noted
    credible: CredibleSettings | None = None
    censored: str | None = Field(None, pattern="^(continue|cut)$")  # None: as version 0.1 did
    censoring: str | None = Field(None, pattern="^ipcw$")  # how weights make up for lost episodes
    by_row: bool = False  # weights use what the target does in each row
    sampled: Count = 0  # draws behind each probability; 0: probabilities are exact


class Counts(Section):
    """Numbers of episodes, steps, states, actions and pairs."""

    episodes: Count
    steps: Count
    censored: Count = 0
    flagged: Count
    states: Count
    actions: Count
    visited_states: Count = 0
    unseen_pairs: Count = 0
    visited_states_with_unseen_target_action: Count = 0


class Variables(Section):
    """The variables whose levels the tables encode."""

    state: tuple[Variable, ...]
    action: tuple[Variable, ...]
    side: tuple[Variable, ...]
    side_given: tuple[str, ...] = ()  # side columns that the model was given all the same
    hidden: tuple[Variable, ...] = ()
    latent: tuple[Variable, ...] = ()  # all variables of a hidden state

    @field_validator("state", "action", "latent")
    @classmethod
    def _check(cls, variables: tuple[Variable, ...], info: Any) -> tuple[Variable, ...]:
        return check_variables(variables, info.field_name) if variables else ()


class RehearsalSettings(Section):
    """What a rehearsal is compared with."""

    value: float  # of policies learned with all variables, in the other half's model
    observed: float


class Stratum(Section):
    """Episodes that have the same probability of being reviewed."""

    outcome: str | None = None  # the observed one; None: any
    third: int | None = None  # of all episodes by size of difference, 1 the smallest; None: any
    episodes: Count
    drawn: Count

    @property
    def probability(self) -> float:
        """Probability of being reviewed."""
        return self.drawn / max(1, self.episodes)


class SamplingDesign(Section):
    """How the episodes to review were chosen; see `audit/sampling.py`."""

    review_size: Count
    seed: Count
    cuts: tuple[float, float]  # sizes of differences at which the second and last third begin
    strata: tuple[Stratum, ...] = Field(min_length=1)  # first the flagged, then the others


class Meta(Section):
    """Provenance, parameters, counts and names of an audit."""

    butfor: str
    parameters: Parameters
    seed: Count
    digest: str
    counts: Counts
    outcome_details: tuple[Outcome, ...]
    none: str
    variables: Variables
    warnings: tuple[str, ...]
    words: dict[str, str]  # what readers call things: episode, step, none, time (its unit)
    time_step: float | None = None  # in units of time; None: time is counted in steps
    problems: dict[str, int]
    target: str
    made_by: dict[str, Any]
    decomposition_gap: float | None = None
    rehearsal: RehearsalSettings | None = None
    design: SamplingDesign | None = None  # of the review; None: made by version 0.1
    # of outcomes, none last: under targets of one half of the log, in the model of the other
    fresh_chances: tuple[float, ...] | None = None
    # of outcomes in the records, continued by the model where they stop early; None: nowhere
    usual_chances: tuple[float, ...] | None = None
    date: str | None = Field(None, pattern=r"^\d{4}-\d{2}-\d{2}$")  # of the run; None: not noted
    seconds: dict[str, float] = {}

    @computed_field  # type: ignore[prop-decorator]
    @property
    def outcomes(self) -> tuple[str, ...]:
        """Names of the outcomes."""
        return tuple(outcome.name for outcome in self.outcome_details)

    @property
    def outcome_names(self) -> list[str]:
        """Names of the outcomes, that of none last."""
        return [*self.outcomes, self.none]

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_outcomes(self.outcome_details)
        if self.none in self.outcomes:
            raise ValueError(f"none: {self.none!r} is also the name of an outcome")
        if not (self.variables.state and self.variables.action):
            raise ValueError("variables: state and action need at least one variable each")
        if self.parameters.hidden and not self.variables.latent:
            raise ValueError("variables latent: the state is hidden but has no variables")
        return self

    def content(self, files: Mapping[str, str]) -> bytes:
        """Return the content of `meta.json`: this, the SHA-256 of the other files, and its own."""
        listed = json.dumps(files, indent=2).replace("\n", "\n  ")
        body = self.model_dump_json(indent=2).removesuffix("\n}")
        return _sealed(f'{body},\n  "files": {listed}'.encode())


class Sums(Section):
    """The checksums in `meta.json`; audits of version 0.1 have none."""

    files: dict[str, str] | None = None
    sha256: str | None = None


def _sealed(body: bytes) -> bytes:
    """Add to what comes before it the last entry of `meta.json`, its SHA-256."""
    return body + SEAL + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def read_meta(path: Path) -> tuple[Meta, dict[str, str]]:
    """Read and check `meta.json`; also return the SHA-256 of the other files, if it has them."""
    check_size(path, MOST_BYTES, "the meta.json of an audit")
    content = path.read_bytes()
    try:
        sums = Sums.model_validate_json(content)
        if sums != Sums() and _sealed(content.rpartition(SEAL)[0]) != content:
            raise ValueError(f"{path}: {CHANGED}; {REMEDY}")
        return Meta.model_validate_json(content), sums.files or {}
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = " ".join(map(str, first["loc"]))
        problem = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{path}: {place + ': ' if place else ''}{problem}; {REMEDY}") from None


def explain(path: Path, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a check, and add the file and the remedy to its error message."""
    try:
        return function(*arguments)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; {REMEDY}") from None
