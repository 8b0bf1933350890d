"""The tables of an audit: episodes, drawn steps and exact courses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.audit.flags import describe_flag, describe_survival, first_changes, heaviest_step
from butfor.audit.meta import Counts, SamplingDesign
from butfor.audit.numbers import Numbers
from butfor.audit.sampling import strata_columns
from butfor.evaluate.wording import percent
from butfor.log.episodes import Episodes
from butfor.log.variables import unravel
from butfor.models.row_policy import check_rows, compare_rows, describe_loss
from butfor.replay.bounds import CLASSES
from butfor.replay.credible import Credible
from butfor.replay.draws import Draws
from butfor.replay.engine import Model
from butfor.replay.outcomes import DRAWS
from butfor.replay.replay import Replay
from butfor.types import Floats, Progress

# Columns of `shown_table` other than bounds, with their values for episodes that are not shown.
UNSHOWN: dict[str, Any] = {
    "survives": None,
    "rank": 0,
    "step_that_matters": -1,
    "reason": "",
    "control": False,
}


def judged_table(replay: Replay, *, continued: bool) -> pd.DataFrame:
    """Return one row per episode: what happened, the counterfactual, and its evidence.

    If the model continues any records of the log, `usual_return` and `recorded_share` tell how.
    """
    walked = replay.steps()
    table = replay.outcomes().frame()
    if continued:
        table["recorded_share"] = replay.log.lengths / replay.usual_steps
    else:
        del table["usual_return"]
    table["first_change"] = first_changes(replay.log, replay.repeats())
    if replay.sampled:
        table["return_error"] = replay.outcomes().return_error
    table["unsupported"] = replay.support()
    table["evidence_min"] = walked.evidence_min
    table["thin_share"] = walked.thin_share
    table["influence"] = walked.share_about
    table["influence_ends"] = walked.dies_at
    table["final_key"] = replay.log.final_key
    return table


def shown_table(
    replay: Replay,
    rank: NDArray[np.int64],
    control: NDArray[np.bool_],
    known: NDArray[np.int64],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Return one row for each episode whose position is `known`, which include the flagged ones.

    Its bounds, rank, the reason of the flag, and whether it is a control.
    """
    bounds = None
    if not replay.sampled:
        some = replay if len(known) == len(replay) else replay.part(known)
        bounds = some.bounds(threads=threads, progress=progress)
    if bounds is None:
        names = (f"{end}_{kind}" for kind in CLASSES for end in ("low", "high"))
        table = pd.DataFrame({name: np.full(len(known), np.nan) for name in names})
        table["survives"] = None
    else:
        table = bounds.frame()
        table["survives"] = bounds.survives
    table["rank"] = rank[known]
    heaviest = np.full(len(known), -1, dtype=np.int64)
    reasons = np.full(len(known), "", dtype=object)
    flagged = np.flatnonzero(rank)
    if len(flagged):
        chosen = replay.part(flagged)
        cuts = chosen.log.offsets[1:-1]
        parts = np.split(chosen.contributions(), cuts)
        weights = np.split(replay.discount**chosen.log.elapsed, cuts)
        for position, mine, weight in zip(flagged.tolist(), parts, weights, strict=True):
            place = int(np.searchsorted(known, position))
            survival = "" if bounds is None else describe_survival(bounds, place)
            heaviest[place] = heaviest_step(mine, weight)
            reasons[place] = describe_flag(replay, position, contribution=mine, survival=survival)
    table["step_that_matters"] = heaviest
    table["reason"] = reasons
    table["control"] = control[known]
    return table


def episode_table(
    judged: pd.DataFrame,
    shown: pd.DataFrame,
    place: NDArray[np.int64],
    design: SamplingDesign,
) -> pd.DataFrame:
    """Join the table of all episodes with that of the episodes shown, whose rows are `place`."""
    return pd.DataFrame(episode_columns(dict(judged.items()), shown, place, design))


def episode_columns(
    judged: Mapping[Any, Any],
    shown: pd.DataFrame,
    place: NDArray[np.int64],
    design: SamplingDesign,
) -> dict[str, Any]:
    """Return the columns of `episode_table`; those of all episodes are of pandas or Arrow."""
    columns: dict[str, Any] = {}
    for name in shown:
        fill = UNSHOWN.get(str(name), np.nan)
        kind = object if name in ("survives", "reason") else None
        values = np.full(len(judged["id"]), fill, dtype=kind)
        values[place] = shown[name]
        columns[str(name)] = values
    bounds = [name for name in columns if name not in UNSHOWN]
    names = list(judged)
    first = names.index("first_change")
    ordered = [
        *names[:first],
        *bounds,
        "survives",
        *names[first:-1],
        "rank",
        "step_that_matters",
        "reason",
        "final_key",
        "control",
    ]
    columns |= judged
    difference, observed = (judged[name].to_numpy() for name in ("difference", "observed_outcome"))
    strata = strata_columns(difference, observed, columns["rank"] > 0, design)
    return {name: columns[name] for name in ordered} | strata


def draw_table(drawn: Draws | None) -> pd.DataFrame:
    """Return drawn steps of the episodes shown; the last row of a draw, without action, is its end.

    Empty without draws.
    """
    if drawn is None:
        names = ["id", "draw", "step", "state", "action", "reward"]
        return pd.DataFrame({name: np.empty(0, dtype=np.int64) for name in names})
    episode, draw, step = np.nonzero(drawn.state >= 0)
    padded = np.pad(drawn.action, ((0, 0), (0, 0), (0, 1)), constant_values=-1)
    earned = np.pad(drawn.reward, ((0, 0), (0, 0), (0, 1)))
    return pd.DataFrame(
        {
            "id": drawn.episodes.id[episode],
            "draw": draw,
            "step": step,
            "state": drawn.state[episode, draw, step],
            "action": padded[episode, draw, step],
            "reward": earned[episode, draw, step],
        }
    )


def course_table(replay: Replay | None, log: Episodes) -> pd.DataFrame:
    """Return the exact courses of the episodes shown, step by step.

    At each step: the joint probability of each level of each variable and no outcome yet, and that
    of each outcome so far (variable ""). With a hidden state its variables are included, and rows
    with `world` "observed" have their distribution in what happened, given the whole record. `log`
    has the variables, even if no episode is shown.
    """
    levels = [(v.name, level) for v in log.state_variables for level in v.levels]
    ends = [("", outcome.name) for outcome in log.outcomes]
    if replay is None:
        return _course_rows(log.id[:0], np.empty((0, 1, len(levels) + len(ends))), [*levels, *ends])
    courses = _course_rows(replay.log.id, replay.courses(), [*levels, *ends])
    parts = hidden_courses(replay) if replay.hidden else []
    return pd.concat([courses, *parts], ignore_index=True) if parts else courses


def _course_rows(
    ids: NDArray[Any], place: Floats, levels: Sequence[tuple[str, str]]
) -> pd.DataFrame:
    """Return one row per probability [n, H + 1, levels] above 0; levels have their variables."""
    columns = pd.MultiIndex.from_tuples(levels, names=["variable", "level"])
    episode, step, column = np.nonzero(place > 0)
    courses = pd.DataFrame(
        {
            "id": ids[episode],
            "step": step,
            "variable": columns.get_level_values(0).take(column),
            "level": columns.get_level_values(1).take(column),
            "probability": place[episode, step, column],
        }
    )
    courses["world"] = "target"
    return courses


def course_step_table(replay: Replay, shown: NDArray[np.int64]) -> pd.DataFrame:
    """Return the evidence for the courses of the episodes at these positions, step by step."""
    walked = replay.steps()
    episode, step = np.nonzero(walked.mass[shown] > 0)
    at = shown[episode], step
    return pd.DataFrame(
        {
            "id": replay.log.id[at[0]],
            "step": step,
            "mass": walked.mass[at],
            "evidence": walked.evidence[at],
            "thin": walked.thin[at],
            "influence": walked.influence[at],
        }
    )


def hidden_courses(replay: Replay) -> list[pd.DataFrame]:
    """Return the rows of `courses` about hidden variables: under the target, and as observed."""
    model = replay.pomdp
    latent = replay.steps(probability=True).latent
    assert latent is not None
    parts = []
    for variable in model.hidden_variables:
        level = unravel(model.state_variables, np.arange(model.n_states))[variable.name]
        table = latent @ np.eye(len(variable.levels))[level]
        levels = [(variable.name, level) for level in variable.levels]
        parts.append(_course_rows(replay.log.id, table, levels))
    if parts:
        happened = replay.posterior().frame()
        parts.append(happened.assign(world="observed"))
    return parts


def with_credible(estimates: pd.DataFrame, credible: Credible | None) -> pd.DataFrame:
    """Add the credible intervals of the estimates that have one; nan for the others.

    That is MB; the interval of CF is about these episodes, not about the policy, and stays apart.
    They take the policy as given, so an estimate without an interval has none of these either: if
    the policy was learned from the same log, it was selected for its errors.
    """
    table = estimates.copy()
    known = {} if credible is None else credible.estimates.set_index("estimator").to_dict("index")
    for end in ("low", "high"):
        found = [known.get(name, {}).get(end, np.nan) for name in table["estimator"]]
        table[f"{end}_credible"] = np.where(table["low"].isna(), np.nan, found)
    return table


def count_pairs(model: Model, target: Floats, counts: NDArray[np.int64]) -> dict[str, int]:
    """Count states and pairs of state and action.

    `counts` [S, A] are the decisions that the model was learned from, or else those of the log.
    """
    never = getattr(model, "unseen", np.zeros_like(target, dtype=bool))
    visited = counts.sum(axis=1) > 0
    unseen = ((target > 0) & never).any(axis=1)
    return {
        "states": len(target),
        "actions": model.n_actions,
        "visited_states": int(visited.sum()),
        "unseen_pairs": int(never.sum()),
        "visited_states_with_unseen_target_action": int((visited & unseen).sum()),
    }


def warnings_of(counts: Counts, terminal: str) -> list[str]:
    """Return the warnings that follow from the counts."""
    found = []
    if counts.censored:
        found.append(
            f"{counts.censored} of {counts.episodes} episodes stop before the horizon without an "
            "outcome. “Observed” is what was recorded of them; the warning of each other estimate "
            "says what it takes to follow."
        )
    if counts.visited_states_with_unseen_target_action:
        found.append(
            f"In {counts.visited_states_with_unseen_target_action} of {counts.visited_states} "
            "visited states the policy may take an action that was never taken there."
        )
    if terminal == "icml2019":
        found.append(
            "Ends are counted as in the published code (icml2019): outcomes come one step late, so "
            "the null test and the decomposition need not hold."
        )
    return found


def end_notes(replay: Replay, log: Episodes, numbers: Numbers) -> list[str]:
    """Say that the model does not know when episodes end, if all end after the same decisions."""
    cells = numbers.decomposition[numbers.decomposition["by"] == "outcome"]
    ended = cells.loc[cells["observed"] == log.none_name, "episodes"].sum() == 0
    told = replay.horizon == 1 or any(variable.clock for variable in log.state_variables)
    if told or not ended or numbers.steps < numbers.episodes * replay.horizon:
        return []
    none = cells.loc[cells["counterfactual"] == log.none_name, "expected_episodes"].sum()
    return [
        f"Every episode ends with an outcome after {replay.horizon} decisions. The model does not "
        f"know this: it lets some end earlier, and others not at all ({log.none_name!r}: "
        f"{percent(none / numbers.episodes)}). Write horizon = {replay.horizon} and by_step = true "
        "in [evaluation] of the study file, or use log.with_step()."
    ]


def sampling_notes(replay: Replay) -> list[str]:
    """Return what to know about results that are sampled, in one note; nothing if they are not."""
    if not replay.sampled:
        return []
    errors = replay.particles.sampling_errors()
    return [
        f"This log has too many states to enumerate, so results are means over {DRAWS} draws per "
        "episode. By chance of these draws alone, the standard error of MB is "
        f"{errors[0]:.4f}, that of CF is {errors[1]:.4f}, and that of a probability of one episode "
        f"is up to {0.5 / DRAWS**0.5:.3f}. Not computed: bounds over mechanisms, credible "
        "intervals, fewest changes, rehearsals and FQE. The policy is saved only in the states of "
        "the log."
    ]


def interval_notes(replay: Replay, episodes: int, drawn: int) -> list[str]:
    """Say for which episodes bounds and credible intervals were computed, if not for all."""
    if replay.sampled or drawn >= episodes:
        return []
    return [
        "Bounds over mechanisms, and credible intervals of single episodes if there are any, were "
        f"computed for the episodes to review and for {drawn:,} of all {episodes:,}, drawn at "
        "random, not for the others; butfor audit computes them for all with --intervals all."
    ]


def row_notes(replay: Replay) -> list[str]:
    """Return what to know about a target that depends on more than the state, if it does."""
    log = replay.log
    if not replay.by_row:
        return []
    means = compare_rows(log, check_rows(log), replay.target_table).mean(axis=0)
    if replay.sampled:
        return loss_notes(means, "Learned from its rows as a function of the state")
    return loss_notes(means)


def loss_notes(means: Floats, *how: str) -> list[str]:
    """Return what is lost of a policy on more than the state, by the means of `compare_rows`."""
    lost = describe_loss(means, *how)
    use = "Importance weights use each row; counterfactuals and models follow the average."
    return [f"{lost} {use}"] if lost else []
