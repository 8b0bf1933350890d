"""AuditSettings: the choices for an audit of a log on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from butfor.audit.sampling import FLAGS, check_sizes
from butfor.checks import check_choice, check_pseudo_count, check_whole
from butfor.evaluate.rehearsal import Part, can_rehearse
from butfor.hidden.policies import Policy
from butfor.interop.targets import target_from_table
from butfor.log.checksums import sha256_of
from butfor.log.combinations import MOST_TRANSITIONS
from butfor.log.episodes import Episodes
from butfor.log.sections import Evaluation, Study
from butfor.log.study import StudySource, read_study
from butfor.log.variables import Variable, count_levels
from butfor.mechanisms.gumbel_max import GumbelMax
from butfor.mechanisms.independent import Independent
from butfor.mechanisms.inverse_cdf import InverseCDF
from butfor.mechanisms.maximal import MaximalCoupling
from butfor.mechanisms.protocol import Mechanism
from butfor.models.caution import Caution
from butfor.models.classifiers import BOOSTING, LOGISTIC, make_classifier
from butfor.models.factored import FactoredModel
from butfor.models.mdp import TabularMDP
from butfor.models.plan import Plan
from butfor.models.row_policy import RowPolicy, row_policy
from butfor.printed import Printed
from butfor.random import check_seed
from butfor.replay.replay import ACTION_NOISES, Replay
from butfor.replay.usual import censoring_hazard
from butfor.types import Floats

LEARN = "learn"
LOG = "log"  # the policy that the log carries in its own columns
LEARNED_HERE = "learned from this log"
CAUTION = Caution()  # with which a target is learned
MECHANISMS: dict[str, Mechanism] = {
    "gumbel-max": GumbelMax(),
    "maximal": MaximalCoupling(),
    "inverse-cdf": InverseCDF(),
    "independent": Independent(),
}
FULL, SUMMARY, AUTO = "full", "summary", "auto"  # levels of detail
FACTORED, TABULAR = "factored", "tabular"  # kinds of model
MOST_MODELS = 1_000_000  # that can be drawn
MOST_DECISIONS = 1_000_000  # in a log that "auto" audits in full detail


LEARNERS: dict[str, Callable[[], Any]] = {  # by their name in a study file
    "counts": lambda: "counts",
    "logistic": lambda: make_classifier(LOGISTIC),
    "boosting": lambda: make_classifier(BOOSTING),
}


def factored_options(study: Study) -> dict[str, Any]:
    """Return how the study's [model] says that a factored model is to be learned."""
    chosen = study.model
    return {
        "learner": LEARNERS[chosen.learner](),
        "parents": chosen.parents or None,
        "order": chosen.order,
    }


def check_censoring(evaluation: Evaluation, log: Episodes) -> None:
    """Refuse weights for those who were lost where they cannot be counted by state."""
    if evaluation.censoring == "ipcw" and log.combinations is not None:
        raise ValueError(
            '[evaluation] censoring = "ipcw" counts who is lost by state, but hardly a state of '
            "this log occurs twice; remove it, or use fewer variables or levels"
        )


@dataclass(frozen=True, repr=False)
class AuditSettings(Printed):
    """The choices for an audit: see `audit_log`, and `audit_into` for the detail."""

    target: str | Path = LEARN
    model: str = AUTO  # factored or tabular; auto: see `kind`
    missing: str = "error"
    unseen: str | None = None
    prior: float = 0.0
    smoothing: float = 0.0
    mechanism: str = "gumbel-max"
    action_noise: str = "shared"
    noise_on: Sequence[str] | None = None
    flags: int = FLAGS
    review_size: int | None = None  # see `review_total`
    draws: int = 5
    intervals: int | None = None  # see `sample_size`
    models: int | None = None  # None: in full detail see `choose_models`, none in summary
    seed: int = 0
    detail: str = AUTO
    rehearsal: bool = True  # see `rehearses`
    caution: Caution | None = CAUTION
    time_step: float | str | None = None  # instead of the study's
    checksums: str | Path | None = None  # a list of the SHA-256 of each file of the log

    def __post_init__(self) -> None:
        check_choice(self.model, "model", (AUTO, FACTORED, TABULAR))
        check_choice(self.mechanism, "mechanism", tuple(MECHANISMS))
        check_choice(self.action_noise, "action_noise", ACTION_NOISES)
        check_choice(self.detail, "detail", (FULL, SUMMARY, AUTO))
        check_sizes(self.flags, self.review_size, self.intervals)
        check_whole(self.draws, "draws", 0, "a whole number")
        if self.models is not None:
            check_whole(self.models, "models", 0, "a whole number", MOST_MODELS)
        check_seed(self.seed)
        check_pseudo_count(self.prior, "prior")
        check_pseudo_count(self.smoothing, "smoothing")

    @property
    def learned(self) -> bool:
        """Whether the target is learned from the log."""
        return self.target == LEARN

    def ask(
        self,
        log: Episodes,
        model: TabularMDP | FactoredModel,
        target: Policy | RowPolicy | Plan,
        behavior: Floats | None,
        evaluation: Evaluation,
        *,
        horizon: int | None = None,
        hazard: Floats | None = None,
    ) -> Replay:
        """Return the question of an audit with these settings.

        `hazard` [S] of being lost is estimated from the log if it is needed and not given.
        """
        steps = evaluation.horizon if horizon is None else horizon
        check_censoring(evaluation, log)
        if evaluation.censoring == "ipcw" and hazard is None:
            hazard = censoring_hazard(log, horizon=steps)
        return Replay(
            log,
            model,
            target,
            behavior=behavior,
            mechanism=MECHANISMS[self.mechanism],
            action_noise=self.action_noise,
            horizon=steps,
            discount=evaluation.discount,
            censored="cut" if evaluation.censored == "cut" else "continue",
            hazard=hazard,
            seed=self.seed,
        )

    def read_study(self, study: StudySource) -> Study:
        """Read a study, with the time step of these settings if there is one."""
        return read_study(study, every=self.time_step)

    def widen(self, study: Study, log: Episodes) -> Episodes:
        """Return the log, as a wide one if "auto" would find too many transitions to enumerate."""
        chosen = self.model == AUTO and study.model.kind is None and len(log.state_variables) > 1
        size = count_levels(log.state_variables)
        if (
            not chosen
            or size * log.n_actions * size <= MOST_TRANSITIONS
            or self._tabular_only(study)
        ):
            return log
        return log.widen()

    def _tabular_only(self, study: Study) -> list[str]:
        """Return what is asked for that only a tabular model has."""
        asked = {
            "prior": self.prior > 0,
            "unseen": self.unseen is not None,
            "noise_on": bool(self.noise(study)),
        }
        return [name for name, value in asked.items() if value]

    def kind(
        self,
        study: Study,
        states: Sequence[Variable],
        actions: Sequence[Variable],
        *,
        wide: bool = False,
    ) -> str:
        """Return the kind of model to learn.

        "auto" is what the study's [model] says. Without that, a factored model if there are two or
        more state variables and their transitions can be enumerated, unless something is asked for
        that only a tabular model has: a prior, a rule for unseen pairs, or noise on labels. A wide
        log has a factored model in any case.
        """
        size, asked = count_levels(states), self._tabular_only(study)
        given = study.model.kind if self.model == AUTO else self.model
        if wide and given == TABULAR:
            raise ValueError(
                f"{size:,} possible states are too many for a tabular model; choose the factored "
                "one, or use fewer variables or levels"
            )
        if wide:
            given = FACTORED
        if given == FACTORED and asked:
            remedy = "leave it out" if wide else "leave it out, or choose the tabular model"
            raise ValueError(f"{asked[0]} belongs to tabular models; {remedy}")
        if given is not None:
            return given
        few = size * count_levels(actions) * size <= MOST_TRANSITIONS
        return FACTORED if len(states) > 1 and few and not asked else TABULAR

    def classifies(self, study: Study) -> bool:
        """Whether a classifier learns the model, if that is factored."""
        return study.model.learner != "counts" and self.model != TABULAR

    def rehearses(self, study: Study, log: Part) -> bool:
        """Whether to rehearse the method that learns the target; classifiers take too long."""
        return self.rehearsal and self.learned and can_rehearse(log) and not self.classifies(study)

    def noise(self, study: Study) -> tuple[str, ...]:
        """Return the variables whose levels have the noise; if empty, next states have it."""
        return study.noise_variables() if self.noise_on is None else tuple(self.noise_on)

    def check_target(self) -> None:
        """Raise an error if the file of the target does not exist."""
        if self.target not in (LEARN, LOG) and not Path(self.target).is_file():
            raise FileNotFoundError(
                f"--target {self.target}: there is no such file; give a table, {LEARN!r}, or "
                f"{LOG!r} for the log's own"
            )

    def given_target(self, log: Episodes) -> Policy | RowPolicy:
        """Return the target of the log's own columns, or read it from its table.

        The table of a wide log names some of the variables.
        """
        self.check_target()
        if self.target == LOG:
            return row_policy(log)
        return target_from_table(self.target, log, missing=self.missing)

    def record(
        self,
        source: Any,
        study: Study,
        study_text: str,
        *,
        probability: bool,
        problems: dict[str, int],
        warnings: Sequence[str],
    ) -> dict[str, Any]:
        """Return how the audit was made, for `meta.json`."""
        paths = list(source) if isinstance(source, list | tuple) else [source]
        names = {LEARN: LEARNED_HERE, LOG: "in columns of the log"}
        words, time_step = study.words.model_dump(exclude_none=True), None
        if clock := study.clock():
            words["time"], time_step = clock
        return {
            "words": words,
            "time_step": time_step,
            "problems": problems,
            "warnings": list(warnings),
            "target": names.get(str(self.target), Path(self.target).name),
            "made_by": {
                "source": [str(path) for path in paths],
                "study": study_text,
                "model": study.model.model_dump(exclude_none=True),
                "unseen": self.unseen,
                "prior": self.prior,
                "smoothing": self.smoothing,
                "noise_on": list(self.noise(study)) or None,
                "planning_discount": study.evaluation.planning_discount,
                "caution": asdict(self.caution) if self.learned and self.caution else None,
                "rules": study.rules.model_dump() if self.learned else None,
                "behavior_probability": probability,
                "time_step": self.time_step,
                "checksums": None if self.checksums is None else sha256_of(Path(self.checksums)),
            },
        }
