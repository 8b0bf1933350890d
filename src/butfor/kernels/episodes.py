"""Counterfactuals of whole episodes: outcomes exactly, and trajectories drawn."""

from butfor.kernels.chain import choose, move, observe
from butfor.kernels.compiled import bare
from butfor.kernels.random import uniform
from butfor.kernels.rows import pick_by_mass

DRAW_STRIDE = 1 << 32  # numbers of an episode's stream that belong to one draw


@bare
def exact_outcomes(
    first,
    last,
    problem,
    work,
    discount,
    negligible,
    values_after,
    outcomes_after,
    outcome_mass,
    expected_return,
    left_out,
):
    """Push the state distribution of episodes first .. last - 1 through their chains.

    Past the observed end the rows are P and the target; what follows from a state with h steps
    left is known: `values_after` [H + 1, S], `outcomes_after` [H + 1, S, O + 1]. Writes
    `outcome_mass` [n, O + 1] (last: none) and `expected_return` [n]. A state that a step finds with
    less than `negligible` goes on by the model alone from there; `left_out` [n] is the mass of all
    these. Returns -1, or the first step that the model or the behaviour could not have taken.
    """
    for episode in range(first, last):
        impossible = push_episode(
            problem,
            work,
            episode,
            discount,
            negligible,
            values_after,
            outcomes_after,
            outcome_mass,
            expected_return,
            left_out,
        )
        if impossible >= 0:
            return impossible
    return -1


@bare
def push_episode(
    problem,
    work,
    episode,
    discount,
    negligible,
    values_after,
    outcomes_after,
    outcome_mass,
    expected_return,
    left_out,
):
    """Push one episode for `exact_outcomes`."""
    log, target = problem.log, problem.target
    _, next_state, reward, _, states, actions, _ = problem.dynamics
    now, later = work.now, work.later
    now_states, later_states = work.now_states, work.later_states
    mass = work.kept.mass
    now_states[0] = log.state[log.start[episode]]
    now[now_states[0]] = 1.0
    active = 1
    weight = 1.0  # discount ** t
    earned = 0.0
    for i in range(log.start[episode], log.stop[episode]):
        seen_row = log.state[i] * actions + log.action[i]
        seen_entry = observe(problem, episode, i)
        if seen_entry < 0:
            return i
        reached = 0
        for slot in range(active):
            s = now_states[slot]
            here = now[s]
            now[s] = 0.0
            if here < negligible:
                steps = log.stop[episode] - i + log.left[episode]
                left_out[episode] += here
                earned += weight * here * values_after[steps, s]
                for o in range(outcome_mass.shape[1]):
                    outcome_mass[episode, o] += here * outcomes_after[steps, s, o]
                continue
            choose(problem, work, s, i)
            start = target.start[s]
            for j in range(target.start[s + 1] - start):
                share = here * work.choices.mass[j]
                if share == 0.0:
                    continue
                row = s * actions + target.label[start + j]
                low, high, place = move(problem, work, row, start + j, seen_row, seen_entry)
                for e in range(low, high):
                    moved = share * mass[place, e - low]
                    if moved == 0.0:
                        continue
                    earned += weight * moved * reward[e]
                    x = next_state[e]
                    if x >= states:
                        outcome_mass[episode, x - states] += moved
                    else:
                        if later[x] == 0.0:
                            later_states[reached] = x
                            reached += 1
                        later[x] += moved
        now, later = later, now
        now_states, later_states = later_states, now_states
        active = reached
        weight *= discount
    left = log.left[episode]
    for slot in range(active):
        s = now_states[slot]
        here = now[s]
        now[s] = 0.0
        earned += weight * here * values_after[left, s]
        for o in range(outcome_mass.shape[1]):
            outcome_mass[episode, o] += here * outcomes_after[left, s, o]
    expected_return[episode] = earned
    return -1


@bare
def draw_counterfactuals(first, last, problem, work, keys, drawn_state, drawn_action, drawn_reward):
    """Draw trajectories of episodes first .. last - 1 from the same chains as `exact_outcomes`.

    Step t of draw d uses the numbers d 2^32 + 2 t (action) and the next one (state) of the
    episode's stream. Writes `drawn_state` [n, draws, H + 1] (outcome o is S + o), `drawn_action`
    and `drawn_reward` [n, draws, H]; what lies beyond an end stays as it is. Returns as
    `exact_outcomes` does.
    """
    log = problem.log
    for episode in range(first, last):
        length = log.stop[episode] - log.start[episode]
        drawn_state[episode, :, 0] = log.state[log.start[episode]]
        for t in range(length + log.left[episode]):
            i = log.start[episode] + t if t < length else -1
            seen_entry = -1
            if i >= 0:
                seen_entry = observe(problem, episode, i)
                if seen_entry < 0:
                    return i
            for d in range(drawn_state.shape[1]):
                s = drawn_state[episode, d, t]
                if s < 0 or s >= problem.dynamics.states:
                    continue
                counter = d * DRAW_STRIDE + 2 * t
                action, e = draw_step(problem, work, s, i, seen_entry, keys[episode], counter)
                drawn_action[episode, d, t] = action
                drawn_reward[episode, d, t] = problem.dynamics.reward[e]
                drawn_state[episode, d, t + 1] = problem.dynamics.next_state[e]
    return -1


@bare
def draw_step(problem, work, s, i, seen_entry, key, counter):
    """Draw action and entry from state s, given the observed step i, or by the model if i < 0."""
    log, target, rows = problem.log, problem.target, problem.dynamics.rows
    actions = problem.dynamics.actions
    pick = start = target.start[s]
    stop = target.start[s + 1]
    if stop - start > 1:
        u = uniform(key, counter)
        if i >= 0:
            choose(problem, work, s, i)
            pick = start + pick_by_mass(work.choices.mass, 0, stop - start, u)
        else:
            pick = pick_by_mass(target.probability, start, stop, u)
    action = target.label[pick]
    row = s * actions + action
    u = uniform(key, counter + 1)
    if i < 0:
        return action, pick_by_mass(rows.probability, rows.start[row], rows.start[row + 1], u)
    seen_row = log.state[i] * actions + log.action[i]
    low, high, place = move(problem, work, row, pick, seen_row, seen_entry)
    return action, low + pick_by_mass(work.kept.mass[place], 0, high - low, u)
