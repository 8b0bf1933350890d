"""How many models credible intervals are drawn from by default, and what is said about that.

The rule depends on sizes alone, never on the time that anything takes, so that an audit is the same
on every machine.
"""

from __future__ import annotations

from butfor.audit.sampling import review_total, sample_size
from butfor.audit.settings import AuditSettings
from butfor.models.posterior import MOST_CELLS, count_cells
from butfor.replay.drawn import count_others
from butfor.replay.replay import Replay

MODELS = (200, 100, 50)  # to draw of a tabular model: the first that is not too much work
MODELS_FACTORED = 50  # to draw of a factored one, each of which takes a pass of its own
# Steps left times states times next states, and a tenth of the transitions followed, of all models:
# some 20 seconds of computing.
MOST_WORK = 4e9
STEP = 3_000  # the least work of one step left, however few the states: what it takes to start

CREDIBLE = (
    "Noise belongs to what nature decides, except in the credible intervals of single episodes, "
    "where it belongs to next states: with their prior, a row contains every next state."
)
TOO_MANY = f"More than {MOST_CELLS:,} transitions are possible, so there are no credible intervals."
TOO_LONG = (
    "With so many states and steps credible intervals take long, so there are none; --models 50 "
    "computes them."
)
FEWER = (
    f"With so many states and steps, credible intervals come from {{models}} models instead of "
    f"{MODELS[0]}, so their ends are less exact; --models {MODELS[0]} draws as many as usual."
)


def choose_models(replay: Replay, settings: AuditSettings) -> tuple[int, str]:
    """Return how many models to draw, and what to say if they are fewer than usual by default."""
    if settings.models is not None:
        return settings.models, ""
    if replay.sampled:
        return 0, ""
    if replay.factors:
        return MODELS_FACTORED, ""
    if count_cells(replay.episodes) > MOST_CELLS:
        return 0, TOO_MANY
    work = _work_of_model(replay, settings)
    for models in MODELS:
        if (models + 2 * count_others(models)) * work <= MOST_WORK:
            return models, "" if models == MODELS[0] else FEWER.format(models=models)
    return 0, TOO_LONG


def _work_of_model(replay: Replay, settings: AuditSettings) -> float:
    """Return the work of one drawn model: its tables, and the pass over some of the episodes."""
    log, model = replay.log, replay.mdp
    reviewed = review_total(settings.flags, settings.review_size)
    chosen = min(len(log), sample_size(len(log), settings.intervals) + reviewed)
    tables = replay.horizon * max(STEP, log.n_states * (log.n_states + len(log.outcomes)))
    entries = int((replay.target_table.ravel()[model.entry_row] > 0).sum())
    return tables + chosen / len(log) * len(log.state) * entries / 10
