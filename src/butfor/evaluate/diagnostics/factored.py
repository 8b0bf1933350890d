"""The checks of a factored model, in one list."""

from __future__ import annotations

from butfor.evaluate.diagnostics.correlation import check_correlation
from butfor.evaluate.diagnostics.extrapolation import check_extrapolation
from butfor.evaluate.diagnostics.halves import Halves
from butfor.evaluate.diagnostics.lights import Row
from butfor.evaluate.diagnostics.log_score import check_log_score, check_variable_scores
from butfor.evaluate.diagnostics.one_step import predict_steps
from butfor.evaluate.diagnostics.second_learner import check_learners
from butfor.evaluate.diagnostics.variables import calibration_by_variable
from butfor.replay.replay import Replay


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
