"""Finding the problems of a table of decisions, and settling each as the study says."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from butfor.log.coding import MISSING, NOT_A_NUMBER, UNKNOWN
from butfor.log.decisions import Decisions, Index, Mask, first_rows, last_rows
from butfor.log.fields import place
from butfor.types import Floats


def settle_order(rows: Decisions, wrong_time: Mask | None = None, *, merging: bool = False) -> None:
    """Leave rows sorted by episode and time, with no time twice in an episode.

    `wrong_time` marks cells of the time column that hold no time. Rows of the same time are left if
    they are to be merged.
    """
    lost = rows.episode < 0
    rows.find("missing_episode", lost, "have no episode", "Fill or drop the rows")
    if rows.time is not None:
        wrong = np.zeros(len(rows), dtype=bool) if wrong_time is None else wrong_time
        empty = np.isnan(rows.time) & ~wrong
        what = "have a time that is neither a number nor a date such as 2024-05-31 16:00"
        for kind, bad, problem, remedy in (
            ("missing_time", empty & ~lost, "have no time", "Fill or drop the rows"),
            ("not_numbers", wrong & ~lost, what, "Correct the cells"),
        ):
            if rows.problems.policy(kind) == "fill":  # no time can be filled in
                rows.refuse(kind, bad, problem, remedy)
            else:
                rows.find(kind, bad, problem, remedy)
        lost = lost | empty | wrong
    if lost.any():
        rows.take(~lost)
    rows.drop_doomed()
    late = out_of_order(rows.episode, rows.time)
    what = "follow a later row of the same episode"
    if rows.time is None:
        what = "follow rows of another episode, and there is no time column"
    rows.problems.find("order", rows.row[late], what, "Sort the log by episode and time")
    if late.any() or (np.diff(rows.episode) < 0).any():
        keys = [rows.episode] if rows.time is None else [rows.time, rows.episode]
        rows.take(np.lexsort(keys))
    merging = merging and rows.problems.policy("duplicates") == "refuse"
    if rows.time is not None and not merging:
        same = (rows.episode[1:] == rows.episode[:-1]) & (rows.time[1:] == rows.time[:-1])
        again = np.append(False, same)[: len(rows)]
        what = "have the episode and time of an earlier row"
        rows.find("duplicates", again, what, "Remove all but one")
        if again.any():
            rows.take(~again)


def out_of_order(episode: Index, time: Floats | None) -> Mask:
    """Mark rows that follow a later row of their episode; episodes are numbered by first row.

    Without times the rows of an episode must be contiguous: those that come after rows of another
    episode are marked.
    """
    if time is None:
        newest = np.maximum.accumulate(episode)
        return ~first_rows(newest) & first_rows(episode)
    order = np.argsort(episode, kind="stable")
    wrong = np.zeros(len(episode), dtype=bool)
    later = (episode[order][1:] == episode[order][:-1]) & (time[order][1:] < time[order][:-1])
    wrong[order[1:][later]] = True
    return wrong


def settle_outcomes(rows: Decisions, column: str, remedy: str) -> None:
    """Find the outcome of each episode, and leave no row after it."""
    unknown = rows.outcome == UNKNOWN
    if unknown.any():
        what = f"have an unknown outcome: {rows.values(column, unknown)}"
        rows.find("unknown_levels", unknown, what, remedy, noun="cell")
        rows.outcome = np.where(unknown, MISSING, rows.outcome)
        rows.drop_doomed()
    rows.ends = np.full(int(rows.episode.max(initial=-1)) + 1, MISSING)
    has = rows.outcome >= 0
    if not has.any():
        return
    start = np.flatnonzero(first_rows(rows.episode))
    number = rows.episode[start]
    highest = np.maximum.reduceat(rows.outcome, start)
    lowest = np.minimum.reduceat(np.where(has, rows.outcome, np.iinfo(np.int64).max), start)
    rows.ends[number] = highest
    differ = number[(highest >= 0) & (lowest != highest)]
    remedy = "Give each episode one outcome, on its last row"
    rows.find_episodes("differing_outcomes", differ, "have several different outcomes", remedy)
    if rows.problems.policy("differing_outcomes") == "last":
        _keep_last_outcome(rows, differ)
    else:
        rows.drop(differ)
    _drop_after_outcome(rows)


def _keep_last_outcome(rows: Decisions, episodes: Index) -> None:
    """Let the last outcome of these episodes be their only one."""
    chosen = np.flatnonzero(np.isin(rows.episode, episodes) & (rows.outcome >= 0))
    last = chosen[last_rows(rows.episode[chosen])]
    rows.ends[rows.episode[last]] = rows.outcome[last]
    rows.outcome[np.setdiff1d(chosen, last)] = MISSING


def _drop_after_outcome(rows: Decisions) -> None:
    """Leave no row after the first outcome, except a last one that gives the final state.

    An outcome on every row of an episode tells how the episode ends, not when.
    """
    if len(rows) == 0:
        return
    start = np.flatnonzero(first_rows(rows.episode))
    lengths = np.diff(np.append(start, len(rows)))
    has = rows.outcome >= 0
    every = np.add.reduceat(has.astype(np.int64), start) == lengths
    rows.problems.count("outcome on every row: episodes", int((every & (lengths > 1)).sum()))
    before: Index = np.cumsum(has) - has  # outcomes on earlier rows of the log
    seen = before - np.repeat(before[start], lengths) > 0
    final = last_rows(rows.episode) & ~rows.decided()
    after = seen & ~np.repeat(every, lengths) & ~final
    if after.any():
        judged = after & ~np.isin(rows.episode, list(rows.broken))
        remedy = "Put the outcome on the last row"
        rows.find("after_outcome", judged, "follow the outcome of the episode", remedy)
        rows.take(~after)


def may_be_missing(rows: Decisions) -> dict[str, Mask]:
    """Mark the rows that need no action or no state, by group.

    The action may be missing on a final row, and the state too if the episode has an outcome.
    """
    final = last_rows(rows.episode) & ~rows.decided()
    blank = np.logical_and.reduce([codes == MISSING for codes in rows.group("state").values()])
    return {"action": final, "state": final & blank & (rows.ends[rows.episode] >= 0)}


def settle_unknown(rows: Decisions, remedies: Mapping[tuple[str, str], str]) -> None:
    """Settle the cells of some columns that hold something else; those to be filled are missing."""
    for key, remedy in remedies.items():
        rows.cells[key] = np.where(_wrong(rows, *key, remedy), MISSING, rows.cells[key])
    rows.drop_doomed()


def settle_cells(
    rows: Decisions,
    remedies: Mapping[tuple[str, str], str],
    limited: Collection[tuple[str, str]] = (),
) -> None:
    """Leave no cell of the state or the action without a level, unless it may be missing.

    `remedies` has one for each group and column. What is missing in `limited` columns is beyond
    what the study lets be carried forward.
    """
    if len(rows) == 0:
        return
    exempt = may_be_missing(rows)
    for key in list(rows.cells):
        group, column = key
        fill = np.zeros(len(rows), dtype=bool)
        # cells of other groups may be missing, or are checked later
        bad = (rows.cells[key] == MISSING) & ~exempt[group] if group in exempt else fill
        if bad.any():
            what = f"have no {column!r}"
            if group == "action":
                what += ", which only the last row of an episode may lack, to give the final state"
            kind = f"missing_{group}"
            if key in limited and rows.problems.policy(kind) == "fill":
                what = f"have no {column!r}, and nothing may be carried forward to them"
                rows.refuse(kind, bad, what, f"Add fill = ... to {place('missing', column)}")
            elif rows.find(kind, bad, what, remedies[key], noun="cell") == "fill":
                fill |= bad
        fill |= _wrong(rows, group, column, remedies[key])
        if fill.any():
            rows.cells[key] = _fill(rows, group, column, fill)
    rows.drop_doomed()


def _wrong(rows: Decisions, group: str, column: str, remedy: str) -> Mask:
    """Find cells with something else than a level or a number; mark those to be filled."""
    fill, codes = np.zeros(len(rows), dtype=bool), rows.cells[group, column]
    for code, kind, what in (
        (UNKNOWN, "unknown_levels", "is not one of its levels"),
        (NOT_A_NUMBER, "not_numbers", "is not a finite number"),
    ):
        bad = codes == code
        if bad.any():
            text = f"have a {column!r} that {what}: {rows.values(column, bad)}"
            if rows.find(kind, bad, text, remedy, noun="cell") == "fill":
                fill |= bad
    return fill


def _fill(rows: Decisions, group: str, column: str, fill: Mask) -> Index:
    """Carry the episode's last good value of the state or the action forward into some cells."""
    codes = rows.cells[group, column]
    if group not in ("state", "action"):
        return np.where(fill, MISSING, codes)
    good, known = rows.last_known(codes)
    what = f"have no {column!r}, and nothing before it in the episode to carry forward"
    rows.refuse(f"missing_{group}", fill & ~known, what, 'Fill it in, or use "drop"')
    return np.where(fill & known, codes[good], codes)


def settle_gaps(rows: Decisions, step: float) -> None:
    """Leave each row one time step after the one before it."""
    if len(rows) == 0 or rows.time is None:
        return
    inside = np.flatnonzero(~first_rows(rows.episode))
    steps = np.ones(len(rows))  # by how many time steps a row follows the one before it
    steps[inside] = (rows.time[inside] - rows.time[inside - 1]) / step
    gap = (np.abs(steps - 1) > 1e-6) & ~np.isin(rows.episode, list(rows.broken))
    if not gap.any():
        return
    what = "do not follow one time step after the row before"
    if rows.problems.policy("gaps") == "fill":
        _fill_gaps(rows, steps, gap, what, step)
    else:
        rows.find("gaps", gap, what, "Fill the gaps")
        rows.drop_doomed()


def _fill_gaps(rows: Decisions, steps: Floats, gap: Mask, what: str, step: float) -> None:
    """Repeat the row before each gap, at its own times, without outcome and with reward 0."""
    whole = np.round(steps)
    odd = gap & ((np.abs(steps - whole) > 1e-6) | (whole < 1))
    if odd.any() or whole.sum() > 10 * len(rows) + 1000:
        bad = odd if odd.any() else gap
        why = "cannot be filled: not a whole number of steps, or far too many"
        rows.refuse("gaps", bad, f"{what}, and {why}", 'Correct time_step, or use "drop"')
        return
    times = np.append(whole[1:], 1).astype(np.int64)  # how often each row appears then
    _, again = rows.repeat(times)
    assert rows.time is not None  # in which gaps were found
    rows.time = rows.time + step * again
    rows.row = np.where(again > 0, -1, rows.row)
    rows.problems.count("gaps: rows filled", int((again > 0).sum()))


_EPISODE_PROBLEMS = {
    "no_transition": (
        "have no transition: no decision that is followed by a state or an outcome",
        "Complete or drop the episodes",
    ),
    "no_outcome": ("end without an outcome", "Put it on the last row"),
    "behavior_probability": (
        "have a decision whose behavior_probability is missing or outside 0 to 1",
        "Give the probability of the action taken, above 0",
    ),
    "beyond_horizon": ("are longer than the horizon", "Raise the horizon, or leave it out"),
}


def settle_transitions(
    rows: Decisions,
    *,
    outcomes: bool = True,
    horizon: int | None = None,
    lost: int | None = None,
    every: bool = False,
) -> None:
    """Leave episodes that have transitions, probabilities and, if asked, `outcomes`.

    `lost` is the outcome of last decisions that nothing follows, if the study keeps these, and of
    `every` episode that has none before the horizon.
    """
    if lost is not None and rows.problems.policy("no_transition") == "keep":
        stays = rows.episode[last_rows(rows.episode) & rows.decided()]
        stays = stays[rows.ends[stays] < 0]
        rows.ends[stays] = lost
        rows.problems.count("no_transition: episodes kept as lost to follow-up", len(stays))
    kept, lengths = rows.transitions()
    present = rows.episode[first_rows(rows.episode)]
    steps = lengths[present]
    found = {"no_transition": present[steps == 0]}
    if outcomes:
        short = steps < (np.inf if horizon is None else horizon)
        stopped = present[(rows.ends[present] < 0) & (steps > 0) & short]
        if lost is None or not every:
            found["no_outcome"] = stopped
        else:
            rows.ends[stopped] = lost
            rows.problems.count("lost to follow-up: episodes", len(stopped))
    if "probability" in rows.numbers:
        given, codes = rows.numbers["probability"], rows.number_codes("probability")
        wrong = kept & ~((given > 0) & (given <= 1)) & (codes != NOT_A_NUMBER)
        found["behavior_probability"] = np.unique(rows.episode[wrong])
    if horizon is not None:
        found["beyond_horizon"] = present[steps > horizon]
    for kind, episodes in found.items():
        rows.find_episodes(kind, episodes, *_EPISODE_PROBLEMS[kind])
    kept, _ = rows.transitions()
    left = last_rows(rows.episode) & rows.decided() & ~kept
    if "reward" in rows.numbers:
        reward = rows.numbers["reward"]
        empty = kept & np.isnan(reward) & (rows.number_codes("reward") >= 0)
        rows.find("missing_reward", empty, "have no reward", "Fill or drop them")
        rows.numbers["reward"] = np.nan_to_num(reward)
        earns = left & (rows.numbers["reward"] != 0)
        rows.shortened = rows.episode[earns]
        rows.find(
            "lost_reward",
            earns,
            "are a last decision that earns a reward but is no transition, because neither a final "
            "state nor an outcome follows it",
            "Add a last row without an action that gives the final state, or an outcome",
        )
    rows.problems.count("last decision, with nothing after it: rows left out", int(left.sum()))
