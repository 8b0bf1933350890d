"""Similar past cases of a factored model in plain Python, one transition after the other."""

from butfor.models.factored import ACTION, END, NEXT


def levels_of(variables, index, prefix=""):
    """Return the level code of each variable of a mixed-radix number."""
    found = {}
    for variable in reversed(variables):
        index, found[prefix + variable.name] = divmod(index, len(variable.levels))
    return found


def transitions(log):
    """Yield episode, levels of all parents (none of an unknown next state), and whether known."""
    for episode in range(len(log)):
        for i in range(log.offsets[episode], log.offsets[episode + 1]):
            levels = levels_of(log.state_variables, int(log.state[i]))
            levels |= levels_of(log.action_variables, int(log.action[i]), ACTION)
            known = log.next_state[i] >= 0
            if known:
                levels |= levels_of(log.state_variables, int(log.next_state[i]), NEXT)
            yield episode, levels, known


def cases_of_step(model, log, step):
    """Count the transitions of other episodes that share the parents, least over the variables."""
    all_steps = list(transitions(log))
    mine, levels, _ = all_steps[step]
    least = float("inf")
    for factor in model.factors:
        if not factor.learned or not set(factor.parents) <= set(levels):
            continue
        number = 0
        for episode, other, known in all_steps:
            counted = known or factor.variable == END
            if episode != mine and counted and set(factor.parents) <= set(other):
                number += all(other[p] == levels[p] for p in factor.parents)
        least = min(least, number)
    return least


def cases_of_pair(model, state, action):
    """Return the expected number of cases of a state and action, least over the variables."""
    start = levels_of(model.state_variables, state) | levels_of(
        model.action_variables, action, ACTION
    )
    ways, least = [(1.0, start)], float("inf")
    for factor in model.factors:
        places = [tuple(levels[parent] for parent in factor.parents) for _, levels in ways]
        if factor.learned and factor.counts.any():
            total = sum(
                weight * factor.counts[place].sum()
                for (weight, _), place in zip(ways, places, strict=True)
            )
            least = min(least, total)
        ways = [
            (weight * p, levels | {NEXT + factor.variable: level})
            for (weight, levels), place in zip(ways, places, strict=True)
            for level, p in enumerate(factor.table[place])
            if p > 0
        ]
    return least
