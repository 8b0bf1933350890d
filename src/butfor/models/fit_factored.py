"""Learn a FactoredModel from a log: one conditional distribution per variable."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from butfor.checks import check_distributions
from butfor.log.episodes import Episodes
from butfor.log.variables import check_distinct
from butfor.models.backoff import (
    MOST_CELLS,
    Backoff,
    Cases,
    fit_counts,
    fit_given,
    make_cases,
)
from butfor.models.factored import (
    ACTION,
    END,
    END_NAME,
    NEXT,
    AnyFactor,
    Factor,
    FactoredModel,
    check_prefixes,
    order_variables,
    size_of,
)
from butfor.models.fixed import fixed_factors
from butfor.models.learners import Codes, Predictor, check_learner, fit_classifier
from butfor.models.plan import Taught
from butfor.models.rewards import fit_rewards
from butfor.models.transitions import Transitions, count_distinct, logged_transitions
from butfor.types import Floats

Table = tuple[Sequence[str], ArrayLike]  # parents, and [levels of parents …, levels]
Rule = Callable[[Codes], ArrayLike]  # codes [m] by parent → probabilities [m, levels]
Given = AnyFactor | Table | Rule
Kind = TypeVar("Kind")


def fit_factored(
    log: Episodes,
    learner: Any = "counts",
    *,
    parents: Mapping[str, Sequence[str]] | None = None,
    order: Sequence[str] | None = None,
    known: Mapping[str, Given] | None = None,
    ends: Given | None = None,
    numbers: Collection[str] = (),
) -> FactoredModel:
    """Learn one conditional distribution per variable of the next state, and one of ends.

    Variables that never change or that copy an action variable are found, not learned.

    Parameters
    ----------
    learner
        "counts": tables with back-off, their parents and their back-off chosen by leave-one-out
        log score. Or a classifier or pipeline of scikit-learn with `predict_proba`, cloned for each
        variable and calibrated by cross-fitting. Or {variable: learner}, others by counts; the end
        is called "(end)".
    parents : {variable: parents}, optional
        Parents that are given rather than chosen, in the order of back-off: where it drops one
        after the other, the last goes first. A parent is a state variable before the step
        ("pulse"), an action variable ("action.dose") or a variable of the next state
        ("next.pulse").
    order : optional
        Names of state variables. Each may then depend on the next levels of those before it.
    known : {variable: Factor, (parents, table) or function}, optional
        Distributions that are known. A function gets the codes [m] of each parent by name, by
        default of all variables of the state and the action, and returns probabilities
        [m, levels].
    ends : Factor, (parents, table) or function, optional
        The rule of ends, if it is known. The parents of a function are by default all variables of
        the next state; it returns probabilities [m, O + 1], none last.
    numbers : optional
        Parents whose level enters a classifier as one number, its position among the levels,
        instead of one 0-1 feature per level. Where the log has the number behind a level
        (`Episodes.numbers`), classifiers always learn from that number; the model, which knows
        levels only, then predicts the mean over seven quantiles of the numbers logged with the
        level. Counts do not use numbers.

    Notes
    -----
    The end is predicted from the state that was reached and the action, not from the state before:
    what the state before adds to these tells of something hidden, and plans that trust it are worse
    than those that do not (in the sepsis simulator with glucose and diabetes hidden a true value of
    .16 instead of .39). Give its parents to have it otherwise.

    Where final states are unknown, those known at the same outcome stand for them, which is right
    if it does not depend on the final state, given the outcome, whether it is known. Those *lost to
    follow-up* are lost at the same rate in every step. If most final states are unknown, of all
    episodes or of those with any one outcome, or if the log is wide or a learner is not "counts",
    the end is predicted from the state before and the action, and other variables are learned from
    transitions that did not end.

    A classifier whose parents have too many configurations for a table predicts on demand
    (`Predictor`); such a model, and one of a wide log, answers by sampling.

    The model is causal only if the log's states contain everything that influenced both the actions
    and the course, and if the variables given their parents move independently.
    """
    _check_side(log, parents or {})
    model = learn_factored(
        count_distinct(log),
        learner,
        parents=parents,
        order=order,
        known=known,
        ends=ends,
        numbers=numbers,
        logged=None if log.numbers is None else logged_transitions(log),
    )
    # what is fixed was found in all episodes: others may lack the exceptions
    kept = {one.variable: one for one in model.factors if not one.learned} | {
        name: model.factor(name) for name in known or {}
    }
    again = partial(
        fit_factored,
        learner=learner,
        parents=parents,
        order=order,
        known=kept,
        ends=None if ends is None else model.end,
        numbers=numbers,
    )
    return replace(model, taught=Taught(log.origin, log.id, again))


def learn_factored(
    rows: Transitions,
    learner: Any = "counts",
    *,
    parents: Mapping[str, Sequence[str]] | None = None,
    order: Sequence[str] | None = None,
    known: Mapping[str, Given] | None = None,
    ends: Given | None = None,
    numbers: Collection[str] = (),
    logged: Transitions | None = None,
) -> FactoredModel:
    """Learn a model from counted transitions, of one log or of many; see `fit_factored`.

    `logged` are the transitions from which classifiers learn, if there are numbers behind levels.
    """
    check_prefixes(rows.state_variables)
    names = [variable.name for variable in rows.state_variables]
    learners = _learners(_by_name(learner) if isinstance(learner, Mapping) else learner, names)
    given = _given_parents(rows, _by_name(parents or {}), order)
    found = {name: _given(rows, name, one, given) for name, one in (known or {}).items()}
    _check_names(found, names, "known")
    if ends is not None:
        found[END] = _given(rows, END, ends, given)
    for name in numbers:
        size_of(name, rows.state_variables, rows.action_variables)
    fixed = {name: one for name, one in fixed_factors(rows).items() if name not in given}
    found = dict[str, AnyFactor](fixed) | found
    order_variables(
        {name: found[name].parents if name in found else given.get(name, ()) for name in names}
    )
    counted = all(isinstance(one, str) for one in learners.values())
    known_rows = rows.stand_ins() if counted else rows
    _check_end(known_rows, found[END].parents if END in found else given.get(END, ()))
    for name in [*names, END]:
        if name not in found:
            chosen = given.get(name)
            possible = candidates(known_rows, name, fixed, order) if chosen is None else chosen
            source = known_rows if isinstance(learners[name], str) or logged is None else logged
            found[name] = _learn(
                source, name, learners[name], possible, chosen is not None, numbers
            )
            if name == END:
                found[END] = _add_lost(found[END], rows, known_rows)
    return FactoredModel(
        state_variables=rows.state_variables,
        action_variables=rows.action_variables,
        outcomes=rows.outcomes,
        factors=tuple(found[name] for name in [*names, END]),
        rewards=fit_rewards(known_rows, _parents_of_rewards(known_rows, fixed)),
        initial=rows.first / rows.first.sum(),
        counts=rows.pair_counts(),
        combinations=rows.combinations,
    )


def _add_lost(end: AnyFactor, rows: Transitions, learned_from: Transitions) -> AnyFactor:
    """Let those who are lost to unknown states be lost at the same rate everywhere."""
    size = len(rows.outcomes) + 1
    rate = np.bincount(rows.end, rows.weight, size) / rows.weight.sum()
    rate[np.unique(learned_from.end)] = 0.0
    if not rate.any() or not isinstance(end, Factor):
        return end
    others = np.where(rate > 0, 0.0, end.table)
    table = rate + (1 - rate.sum()) * others / others.sum(axis=-1, keepdims=True)
    cases = end.counts.sum(axis=-1, keepdims=True) * rate / (1 - rate.sum())
    return replace(end, table=table, counts=end.counts + np.rint(cases))


def _by_name(given: Mapping[str, Kind]) -> dict[str, Kind]:
    """Return options by variable, those of the end under its own name."""
    return {END if name == END_NAME else name: one for name, one in given.items()}


def candidates(
    rows: Transitions, variable: str, fixed: Mapping[str, Factor], order: Sequence[str] | None
) -> tuple[str, ...]:
    """Return the possible parents of a variable, or of the end."""
    actions = [ACTION + action.name for action in rows.action_variables]
    before = [each.name for each in rows.state_variables] + actions
    if variable == END:
        return tuple(dict.fromkeys(_reached(rows, fixed) + actions if rows.ends_known else before))
    earlier: Sequence[str] = ()
    if order is not None and variable in order:
        earlier = order[: list(order).index(variable)]
    return (*before, *(NEXT + name for name in earlier if name not in fixed))


def _reached(rows: Transitions, fixed: Mapping[str, Factor]) -> list[str]:
    """Return what tells the next state; a fixed variable is told by what it copies."""
    names = [variable.name for variable in rows.state_variables]
    return [fixed[name].parents[0] if name in fixed else NEXT + name for name in names]


def _parents_of_rewards(rows: Transitions, fixed: Mapping[str, Factor]) -> tuple[str, ...]:
    """Return the possible parents of rewards: the state before, the action, the state reached."""
    before = [variable.name for variable in rows.state_variables]
    return tuple(dict.fromkeys([*before, *candidates(rows, END, fixed, None)]))


def _learn(
    rows: Transitions,
    variable: str,
    learner: Any,
    possible: Sequence[str],
    given: bool,
    numbers: Collection[str],
) -> AnyFactor:
    """Learn one factor from counts or by a classifier."""
    sizes = [size_of(name, rows.state_variables, rows.action_variables) for name in possible]
    if variable == END:
        used = np.ones(len(rows.state), bool)
        level, levels = rows.end, len(rows.outcomes) + 1
    else:
        # an end that does not depend on the next state says nothing of states that follow it
        used = (rows.next_state >= 0) & (rows.ends_known | (rows.end == len(rows.outcomes)))
        level = rows.codes[NEXT + variable]
        levels = size_of(variable, rows.state_variables, rows.action_variables)
    columns = [rows.codes[name][used] for name in possible]
    logged = {name: rows.numbers[name][used] for name in possible if name in rows.numbers}
    cases = make_cases(possible, columns, sizes, level[used], levels, rows.weight[used], logged)
    counted = isinstance(learner, str) or len(np.unique(cases.level)) < 2
    fits = math.prod(sizes) * levels <= MOST_CELLS
    given = given and isinstance(learner, str)  # counted by itself, one level needs no parents
    if given and not fits:
        raise ValueError(
            f"{variable or END_NAME!r}: {len(sizes)} parents have {math.prod(sizes):,} "
            "configurations, too many for a table; name fewer in "
            f"parents={{{variable or END_NAME!r}: [...]}}"
        )
    if not counted:
        learned = fit_classifier(cases, learner, numbers)
        if not fits:
            return Predictor(variable, tuple(possible), learned, round(cases.total))
        counts = cases.counts(range(len(possible)))
        return Factor(
            variable, tuple(possible), learned.table(), counts, learned.source, score=learned.score
        )
    found = fit_given(cases, range(len(possible))) if given else fit_counts(cases)
    return counted_factor(variable, cases, found)


def counted_factor(variable: str, cases: Cases, found: Backoff) -> Factor:
    """Return the table of a variable that was learned by counting."""
    return Factor(
        variable,
        tuple(cases.names[parent] for parent in found.parents),
        found.table(cases),
        np.rint(cases.counts(found.parents)),
        "counts",
        strength=found.strength,
        score=found.score / cases.total,
        every=found.every,
    )


def _learners(learner: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the learner of each variable and of the end, checked."""
    named = dict(learner) if isinstance(learner, Mapping) else {}
    _check_names(named, [*names, END], "learner")
    rest = "counts" if isinstance(learner, Mapping) else learner
    chosen = {name: named.get(name, rest) for name in [*names, END]}
    for name, one in chosen.items():
        check_learner(one, repr(name or END_NAME))
    return chosen


def _check_names(given: Mapping[str, Any], names: Sequence[str], what: str) -> None:
    for name in given:
        if name not in names:
            known = ", ".join(one or END_NAME for one in names)
            remedy = "give ends= for it" if name in (END, END_NAME) else f"there are {known}"
            raise ValueError(f"{what}: no state variable {name or END_NAME!r}; {remedy}")


def _given_parents(
    rows: Transitions, parents: Mapping[str, Sequence[str]], order: Sequence[str] | None
) -> dict[str, tuple[str, ...]]:
    """Return given parents, which must exist and come earlier in the order."""
    names = [variable.name for variable in rows.state_variables]
    _check_names(parents, [*names, END], "parents")
    if order is not None:
        _check_names(dict.fromkeys(order), names, "order")
        check_distinct(order, "order")
    for variable, own in parents.items():
        if isinstance(own, str):
            raise ValueError(f"parents of {variable!r}: {own!r} is text; give a list of names")
        check_distinct(own, f"parents of {variable or END_NAME!r}")
        for parent in own:
            size_of(parent, rows.state_variables, rows.action_variables)
            if order is None or variable == END or not parent.startswith(NEXT):
                continue
            place = {name: i for i, name in enumerate(order)}
            if place.get(parent.removeprefix(NEXT), math.inf) >= place.get(variable, -1):
                raise ValueError(
                    f"parents of {variable!r}: {parent!r} does not come earlier in the order "
                    f"{', '.join(order)}; change the order, or leave this parent out"
                )
    return {variable: tuple(own) for variable, own in parents.items()}


def _given_factor(variable: str, given: AnyFactor | Table) -> AnyFactor:
    """Return a known distribution as a factor."""
    if isinstance(given, Factor | Predictor):
        if given.variable != variable:
            raise ValueError(
                f"the factor given for {variable or END_NAME!r} is of "
                f"{given.variable or END_NAME!r}; give each under its own name"
            )
        return given
    parents, table = given
    numbers = np.asarray(table, dtype=np.float64)
    return Factor(variable, tuple(parents), numbers, np.zeros_like(numbers), "given")


def _given(
    rows: Transitions, variable: str, given: Given, parents: Mapping[str, tuple[str, ...]]
) -> AnyFactor:
    """Return a known distribution as a factor; a function is asked for every configuration."""
    if not callable(given):
        return _given_factor(variable, given)
    states = [each.name for each in rows.state_variables]
    if variable == END:
        usual = [NEXT + name for name in states]
        levels = len(rows.outcomes) + 1
    else:
        usual = [*states, *(ACTION + each.name for each in rows.action_variables)]
        levels = size_of(variable, rows.state_variables, rows.action_variables)
    own = parents.get(variable, tuple(usual))
    sizes = [size_of(name, rows.state_variables, rows.action_variables) for name in own]
    count, what = math.prod(sizes), f"known[{variable!r}]" if variable else "ends"
    if count * levels > MOST_CELLS:
        raise ValueError(
            f"{what}: {count:,} configurations of {len(own)} parents are too many for a table; "
            f"name those that matter in parents={{{variable or END_NAME!r}: [...]}}"
        )
    codes = dict(zip(own, np.unravel_index(np.arange(count), sizes), strict=True))
    table = _check_rule(given, codes, (count, levels), variable, what)
    return Factor(variable, own, table.reshape(*sizes, levels), np.zeros((*sizes, levels)), "given")


def _check_rule(
    rule: Rule, codes: Codes, shape: tuple[int, int], variable: str, what: str
) -> Floats:
    try:
        found = np.asarray(rule(codes), dtype=np.float64)
    except KeyError as error:
        raise ValueError(
            f"{what}: the function asks for {error}, but its parents are {', '.join(codes)}; name "
            f"others in parents={{{variable or END_NAME!r}: [...]}}"
        ) from error
    if found.shape != shape:
        columns = "level" if variable else "outcome, none last"
        raise ValueError(
            f"{what}: the function returns shape {found.shape}, expected {shape}: one row per "
            f"configuration, one column per {columns}"
        )
    return check_distributions(found, what)


def _check_side(log: Episodes, parents: Mapping[str, Sequence[str]]) -> None:
    """Refuse side columns as parents: no model knows how they go on."""
    side = set() if log.side is None else set(map(str, log.side.columns))
    states = {variable.name for variable in log.state_variables}
    for variable, own in parents.items():
        for parent in own:
            if parent.removeprefix("side.") in side - states:
                column = parent.removeprefix("side.")
                raise ValueError(
                    f"parents of {variable or END_NAME!r}: {parent!r} is a side column, which no "
                    "model sees, so what would have become of it is unknown; make it part of the "
                    f"state ([state.{column}] with cuts and number = true, and static = true if it "
                    "never changes within an episode)"
                )


def _check_end(rows: Transitions, parents: Sequence[str]) -> None:
    """Refuse ends that depend on final states which the log does not have."""
    after = [parent for parent in parents if parent.startswith(NEXT)]
    if after and not rows.ends_known:
        missing = int(rows.weight[rows.next_state < 0].sum())
        raise ValueError(
            f"the end depends on {', '.join(after)}, but {missing} episodes end in an unknown "
            "state; give their final states, or parents of the end without next-step variables"
        )
