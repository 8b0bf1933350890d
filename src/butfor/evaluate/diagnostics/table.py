"""diagnose: every check in one call, with a light and a sentence for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.evaluate.crossfit import Learn
from butfor.evaluate.diagnostics.calibration import check_calibration
from butfor.evaluate.diagnostics.correlation import check_correlation
from butfor.evaluate.diagnostics.disagreement import disagreement_row
from butfor.evaluate.diagnostics.extrapolation import check_extrapolation, occupancy
from butfor.evaluate.diagnostics.halves import Halves
from butfor.evaluate.diagnostics.hidden import check_consistency, check_entropy, check_shared_rows
from butfor.evaluate.diagnostics.lights import UNKNOWN, Row, at_least, at_most, worst_light
from butfor.evaluate.diagnostics.log_score import check_log_score, check_variable_scores
from butfor.evaluate.diagnostics.one_step import predict_steps
from butfor.evaluate.diagnostics.overlap import RARE, overlap_row, usual_row
from butfor.evaluate.diagnostics.past import past_row
from butfor.evaluate.diagnostics.second_learner import check_learners
from butfor.evaluate.diagnostics.variables import calibration_by_variable
from butfor.evaluate.diagnostics.weights import weight_row
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.sample import Sample
from butfor.evaluate.warn import FEW
from butfor.evaluate.wording import percent
from butfor.models.cases import CaseCounter
from butfor.models.step_factored import Moved
from butfor.printed import Table
from butfor.replay.replay import Replay, refuse_hidden

COLUMNS = ["check", "value", "light", "sentence"]

# Limits are (green, amber): a light is green up to the first, amber up to the second, else red.
# At least: a share of 400 episodes has a 95% interval of ± 5 points, one of 50 episodes ± 14.
EPISODES = (400, FEW)
# At least: if one episode in ten (in a hundred) represents all of them, errors in the behavior
# policy are multiplied by as much.
EFFECTIVE = (0.10, 0.01)
RARE_ROWS = (0.05, 0.20)  # at most: one decision in twenty, one in five
# At most: by default pairs never seen lead to the worst outcome, so up to this much of its
# probability is assumed; one point is lost in the noise of any log, ten are not.
UNSUPPORTED = (0.01, 0.10)
ABOUT = (0.50, 0.20)  # at least: half of the steps, one in five
HIDDEN_CAUSES = (
    "No computation shows whether something that was not recorded influenced both the decisions "
    "and the course. If so, every estimate can be wrong while every check above is good. "
    "Ask those who made the decisions what they went by."
)


def diagnose(replay: Replay, *, learn: Learn | None = None, seed: int = 0) -> pd.DataFrame:
    """Check whether log and model can support a conclusion about the target: one row per check.

    Parameters
    ----------
    learn, seed
        See `calibration_table`.

    Returns
    -------
    DataFrame
        check, value, light ("green", "amber", "red", or "unknown" for what cannot be checked),
        sentence. The checks, in this order:

        - *overlap*: share of the target's choices in logged states that were made there at least
          ten times; the light also depends on the share made at least once;
        - *effective sample size*: (sum w)^2 / sum w^2 of the importance weights, over n;
        - *episodes left*: share of the episodes with any weight;
        - *mean importance weight*: mean of the final weights, which should be 1;
        - *rare rows*: share of the target's decisions, in the model from the log's first states
          on, that rest on fewer than 10 logged transitions;
        - *unsupported mass*: mean probability that a counterfactual uses a pair never seen;
        - *calibration*: mean gap between the predicted and the observed share of the bad outcome on
          held-out data, by decile of the prediction (nan if it cannot be assessed);
        - *estimators disagree*: distance of WIS, DR or CF from MB, in standard deviations of the
          return, of that which is farthest and differs by more than chance;
        - *the past still matters*: share of what the state leaves open, about the action or about
          what follows, that the step before tells; nan if there are too few cases;
        - *influence*: median share of the counterfactual's steps that still depend on what happened
          in the episode;
        - *null check*: share of episodes that a policy equal to the behavior would change, which
          should be none;
        - *hidden causes*: always unknown.

        With a factored model, after *calibration*:

        - *calibration by variable*, *calibration of ends*: gap between predicted and observed
          shares one step ahead, on held-out data, of the worst variable and of the end;
        - *residual correlation*: correlation between what the model of the other half did not
          predict of two variables, of the pair that is most correlated;
        - *learners agree*: by how much another learner changes the target's value in the model;
        - *log score*: by how much the mean log probability of a held-out transition is higher than
          in a tabular model, or by clusters of states if these are better;
        - *extrapolation*, with classifiers: share of the target's steps whose parents never had
          these levels in the log.

        Where states cannot be enumerated, *overlap* is the share of the target's choices that are
        made in similar states at least once in a hundred times, *calibration* is about the first
        decision of each episode, *log score* compares with the frequencies of each variable, and
        *the past still matters* is left out: hardly a state has two cases to compare.

        With a hidden state:

        - *overlap* as above, by observation, for a target on the last observation;
        - *consistency*: standard errors between the mean counterfactual return and what the model
          alone predicts for the target;
        - *hidden state*: its entropy in bits given the record, mean over steps;
        - *rows in common*: share of the rows met that share a label with the observed row;
        - *influence*, *null check* and *hidden causes* as above.

    Notes
    -----
    Green lights are necessary, not sufficient: a common cause of actions and course that the log
    does not record may leave no trace in it. `Audit.conclusion` decides from all checks.
    """
    refuse_hidden(replay, learn=learn)
    replay.compute()
    return diagnose_sample(EpisodeColumns(replay, seed), check_model(replay, learn, seed))


def check_model(replay: Replay, learn: Learn | None, seed: int) -> list[Row]:
    """Return the rows about the model of a log in memory; none if the state is hidden."""
    if replay.hidden:
        return []
    halves = Halves(replay.episodes, replay.learned, learn, seed)
    rows = [check_calibration(halves, replay.horizon)]
    return rows + check_factored_model(replay, halves) if replay.factors else rows


def diagnose_sample(sample: Sample, about_model: Sequence[Row]) -> pd.DataFrame:
    """Return the table of `diagnose` from what is known about all episodes together.

    `about_model` are the rows of `check_model`, calibration first.
    """
    replay = sample.replay
    rows: list[Row | None]
    if replay.hidden:
        rows = [*_check_hidden(replay, sample)]
    else:
        rows = [
            _overlap(sample),
            effective_row(sample.episodes, sample.effective),
            left_row(sample.episodes, sample.followers),
            weight_row(sample),
            rare_row(sample),
            unsupported_row(sample.unsupported),
            *about_model,
            disagreement_row(sample),
            # where hardly a state occurs twice, none has the cases for a test
            None if replay.sampled else past_row(sample.past),
            influence_row(*sample.influence),
        ]
    rows.append(null_row(*sample.null))
    rows.append(("hidden causes", float("nan"), UNKNOWN, HIDDEN_CAUSES))
    return Table([row for row in rows if row is not None], columns=COLUMNS)


def _overlap(sample: Sample) -> Row:
    replay = sample.replay
    if not replay.sampled:
        return overlap_row(sample.counts, replay.target_table)
    state = replay.log.state
    return usual_row(replay.behavior_table[state], replay.target_table[state])


def _check_hidden(replay: Replay, sample: Sample) -> list[Row]:
    rows = [
        check_consistency(replay),
        check_entropy(replay.posterior()),
        check_shared_rows(replay.steps()),
        influence_row(*sample.influence),
    ]
    if isinstance(replay.target, np.ndarray):
        rows.insert(0, overlap_row(sample.decisions, replay.target_table))
    return rows


# one function for each row


def effective_row(n: int, effective: float) -> Row:
    """Return the row about the effective sample size of n episodes."""
    light = worst_light([at_least(effective, EPISODES), at_least(effective / n, EFFECTIVE)])
    sentence = (
        f"Weighted by how likely the policy makes them, the {n} episodes say as much about it as "
        f"{effective:.1f} episodes recorded under it (effective sample size)."
    )
    return "effective sample size", effective / n, light, sentence


def left_row(n: int, followers: int) -> Row:
    """Return the row about the number of episodes with any weight."""
    sentence = f"In all {n} episodes the policy might have taken every action that was taken."
    if followers < n:
        sentence = (
            f"{followers} of {n} episodes follow the policy to their end; the others contain an "
            "action that it never takes, and weighted estimates leave them out."
        )
    return "episodes left", followers / n, at_least(followers, EPISODES), sentence


def rare_row(sample: Sample) -> Row:
    """Return the row about decisions that rest on few transitions."""
    value = _rare_share(sample)
    sentence = (
        f"{percent(value).capitalize()} of the decisions that the policy would make in the model "
        f"rest on fewer than {RARE} logged transitions."
    )
    return "rare rows", value, at_most(value, RARE_ROWS), sentence


def _rare_share(sample: Sample) -> float:
    replay = sample.replay
    if not replay.sampled:
        used = occupancy(replay, sample.first)
        return float(used[replay.known_cases(sample.decisions) < RARE].sum() / used.sum())
    counter = CaseCounter(replay.factored, replay.log)

    def few(moved: Moved) -> NDArray[np.bool_]:
        none = np.zeros(len(moved.action), np.int64)  # no episode of the log is left out
        return counter.count(moved.codes, none, none) < RARE

    return replay.particles.share_in_model(few)


def unsupported_row(value: float) -> Row:
    """Return the row about the mean probability of using a pair never seen."""
    sentence = (
        f"{percent(value).capitalize()} of the probability, on average over the episodes, passes "
        "through states and actions never seen together; what follows there is assumed, not "
        "learned from data."
    )
    return "unsupported mass", value, at_most(value, UNSUPPORTED), sentence


def influence_row(about: float, after: float) -> Row:
    """Return the row about the influence of the record, from medians over the episodes."""
    sentence = (
        f"In the median episode {percent(about)} of the steps under the policy still depend on "
        f"its record; {percent(after)} of the rewards come after that influence "
        "has ended and are what the model predicts for anyone."
    )
    return "influence", about, at_least(about, ABOUT), sentence


def check_factored_model(replay: Replay, halves: Halves) -> list[Row]:
    """Return a row for each check that applies to this model and this log."""
    rows: list[Row | None] = []
    if not halves.problem:
        predicted = predict_steps(halves, replay.factored)
        rows += calibration_by_variable(predicted, halves.given)
        rows.append(check_correlation(halves.episodes, predicted))
        if replay.sampled:
            rows.append(check_variable_scores(halves.episodes, predicted))
        else:
            rows.append(check_log_score(halves))
    rows += [check_learners(replay), check_extrapolation(replay)]
    return [row for row in rows if row is not None]


def null_row(checked: int, changed: int) -> Row | None:
    """Return the row about the null check; None if nothing was checked."""
    if checked == 0:
        return None
    if changed:
        sentence = (
            f"{changed} of {checked} episodes would change under a policy that does what was done, "
            "so differences are not only due to the policy: the behavior does not fit the log."
        )
        return "null check", changed / checked, "red", sentence
    sentence = (
        f"Under a policy that does what was done, all {checked} episodes checked remain as they "
        "were."
    )
    return "null check", 0.0, "green", sentence
