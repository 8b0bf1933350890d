"""One episode of a log, with paths drawn under the policy."""

from __future__ import annotations

from collections import Counter

import altair as alt
import numpy as np
import pandas as pd

from butfor.audit.observed_steps import step_table
from butfor.log.episodes import Episodes
from butfor.present.charts import style
from butfor.present.charts.trajectory.layout import TrajectoryLayout
from butfor.present.charts.trajectory.rows import trajectory_datasets
from butfor.present.charts.trajectory.template import filled_template
from butfor.present.text import ESTIMATE, capitalized, ending
from butfor.replay.draws import Draws


@style.unchecked
def trajectory_chart(
    episodes: Episodes,
    position: int,
    draws: Draws | None = None,
    *,
    word: str = "Patient",
    note: str = "",
) -> alt.LayerChart:
    """Draw one episode: state variables, then what the model never saw, then treatments.

    A decision at step t shows at t; a treatment that the state records shows there at t + 1. Lines
    of the draws are beside the level they mean, so that none hides another. If a course ends in an
    outcome, or in a state that the log does not give, its last known level is held, and treatments
    follow the last decision.

    Parameters
    ----------
    position
        Of the episode, from 0.
    draws
        Draws of this episode, found by its id; there may be draws of other episodes among them.
    word
        What an episode is called in the title.
    note
        More to say in the subtitle, such as how much evidence the draws rest on.
    """
    if not isinstance(position, int | np.integer) or not 0 <= position < len(episodes):
        raise ValueError(
            f"position {position}: there are {len(episodes)} episodes, give 0..{len(episodes) - 1}"
        )
    one = episodes.select([position])
    # as in an audit, but without a target and evidence, which are not drawn
    nothing = np.zeros((one.n_states, one.n_actions))
    steps = step_table(one, nothing, np.zeros(len(one.state), dtype=np.int64))
    drawn = None if draws is None else _draw_frame(episodes, int(position), draws)
    first = -1 if drawn is None else _first_difference_step(steps, drawn)
    last = max(int(frame["step"].max()) for frame in (steps, drawn) if frame is not None)
    layout = TrajectoryLayout(
        state=episodes.state_variables,
        action=episodes.action_variables,
        side=tuple(v for v in episodes.side_variables if v.name not in episodes.side_given),
        outcomes=episodes.outcomes,
        none=episodes.none_name,
        horizon=last,
        with_model=False,
        draws=0 if drawn is None else int(drawn["draw"].max()) + 1,
        combinations=(episodes if draws is None else draws.episodes).combinations,
    )
    end = int(episodes.outcome[position])
    datasets = trajectory_datasets(layout, steps, outcome=end, first=first, draws=drawn, last=last)
    name = end if end >= 0 else len(episodes.outcomes)
    length = int(episodes.lengths[position])
    ended = ending(layout.names[name], length, layout.clock, ended=end >= 0)
    title = f"{word} {episodes.id[position]}: {ended}. {_ends_of_draws(layout, drawn)}".strip()
    caveat = []
    if drawn is not None:
        caveat.append(ESTIMATE)
        caveat += ["In every draw the policy treats as was done."] * (first < 0)
    subtitle = " ".join([*caveat, *_fixed(layout, steps), note]).strip()
    return filled_template(layout, datasets, title, subtitle)


def _ends_of_draws(layout: TrajectoryLayout, drawn: pd.DataFrame | None) -> str:
    """Say how many draws ended in each outcome, the most common first."""
    if drawn is None:
        return ""
    ends = drawn.groupby("draw")["state"].last() - layout.n_states
    # a draw without an outcome ends in a state, whose number is below that of all outcomes
    counts = Counter(layout.names[max(end, -1)] for end in ends)
    (name, count), *others = counts.most_common()
    rest = "".join(f"; {number}: {other}" for other, number in others)
    return f"{count} of {layout.draws} draws under the policy: {name}{rest}."


def _fixed(layout: TrajectoryLayout, steps: pd.DataFrame) -> list[str]:
    """Say what never changes, and whether the model was given it."""
    kinds = (("state", layout.state, ""), ("side", layout.side, " (never given to the model)"))
    return [
        f"{capitalized(v.name)}: {steps[f'{kind}.{v.name}'].iloc[0]}{unseen}."
        for kind, variables, unseen in kinds
        for v in variables
        if v.static
    ]


def _draw_frame(episodes: Episodes, position: int, draws: Draws) -> pd.DataFrame:
    """Return one row per drawn step of an episode: `draw, step, state, action`, as in an audit."""
    ids, wanted = draws.episodes.id.tolist(), episodes.id.tolist()[position]
    if wanted not in ids:
        raise ValueError(
            f"no draws of episode {wanted!r}; draw them with "
            f"Replay(episodes.select([{position}]), ...).draws()"
        )
    if draws.episodes.state_variables != episodes.state_variables:
        raise ValueError(
            f"the draws have states over {[v.name for v in draws.episodes.state_variables]}, the "
            f"episodes over {[v.name for v in episodes.state_variables]}; give the log drawn from"
        )
    here = ids.index(wanted)
    draw, step = np.nonzero(draws.state[here] >= 0)
    action = np.pad(draws.action[here], ((0, 0), (0, 1)), constant_values=-1)[draw, step]
    state = draws.state[here][draw, step]
    return pd.DataFrame({"draw": draw, "step": step, "state": state, "action": action})


def _first_difference_step(steps: pd.DataFrame, draws: pd.DataFrame) -> int:
    """Return the first step at which a draw decides differently than was done; -1: none."""
    both = draws.merge(steps[["step", "action"]], on="step", suffixes=("", "_taken"))
    decided = (both["action"] >= 0) & (both["action_taken"] >= 0)
    differs = both.loc[decided & (both["action"] != both["action_taken"]), "step"]
    return int(differs.min()) if len(differs) else -1
