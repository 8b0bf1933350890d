"""The sepsis simulator, compiled."""

import numpy as np

from butfor.kernels.compiled import compiled
from butfor.kernels.random import uniform

NOISE_SIZE = 13  # uniforms per step


@compiled
def sepsis_step(state, action, noise, corrected):
    """Return the full state after one step, given thirteen uniforms.

    Levels count from 0. Treatments that are given or have just stopped act first; vital signs that
    they do not affect fluctuate.
    """
    running, vitals = state & 7, state >> 3
    ventilated, vasopressed, medicated = running & 1, running >> 1 & 1, running >> 2
    glucose, vitals = vitals % 5, vitals // 5
    oxygen, vitals = vitals & 1, vitals >> 1
    pressure, vitals = vitals % 3, vitals // 3
    heart, diabetes = vitals % 3, vitals // 3
    antibiotics, ventilation, vasopressors = action >> 2, action >> 1 & 1, action & 1

    if antibiotics:
        if heart == 2 and noise[0] < 0.5:
            heart = 1
        if pressure == 2 and noise[1] < 0.5:
            pressure = 1
    elif medicated:
        if heart == 1 and noise[2] < 0.1:
            heart = 2
        if pressure == 1 and noise[3] < 0.1:
            pressure = 2

    if ventilation:
        if oxygen == 0 and noise[4] < 0.7:
            oxygen = 1
    elif ventilated and oxygen == 1 and noise[5] < 0.1:
        oxygen = 0

    if vasopressors:
        if diabetes:
            if pressure == 1:
                if noise[6] < 0.9:
                    pressure = 2
            elif pressure == 0:
                if noise[6] < 0.5:
                    pressure = 1
                elif noise[6] < 0.9:
                    pressure = 2
            if noise[7] < 0.5:
                glucose = min(glucose + 1, 4)
        elif pressure < 2 and noise[6] < 0.7:
            pressure += 1
    elif vasopressed and noise[8] < (0.05 if diabetes else 0.1):
        pressure = max(pressure - 1, 0)

    if not (antibiotics or medicated):
        heart = fluctuate(heart, noise[9], 0.1, 2)
    if not (antibiotics or medicated or vasopressors or vasopressed):
        pressure = fluctuate(pressure, noise[10], 0.1, 2)
    if not (ventilation or ventilated):
        oxygen = fluctuate(oxygen, noise[11], 0.1, 1)
    if not vasopressors:
        if diabetes:
            glucose = fluctuate(glucose, noise[12], 0.3, 4)
        else:
            # the published release lets a non-diabetic's glucose rise to level 1 at most
            glucose = fluctuate(glucose, noise[12], 0.1, 4 if corrected else 1)

    vitals = (((diabetes * 3 + heart) * 3 + pressure) * 2 + oxygen) * 5 + glucose
    return ((vitals * 2 + antibiotics) * 2 + vasopressors) * 2 + ventilation


@compiled
def fluctuate(level, u, chance, top):
    """Move down or up one level, each with this chance, but not beyond 0 or `top`."""
    if u < chance:
        return max(level - 1, 0)
    if u < 2 * chance:
        return min(level + 1, top)
    return level


@compiled
def sepsis_steps(state, action, noise, corrected):
    """Apply `sepsis_step` to each of m states, actions and rows of noise [m, 13]."""
    result = np.empty(len(state), np.int32)
    for i in range(len(state)):
        result[i] = sepsis_step(state[i], action[i], noise[i], corrected)
    return result


@compiled
def sepsis_uniform(key, t, j):
    """Return uniform j of step t of the episode with this key."""
    return uniform(key, 2 + (NOISE_SIZE + 1) * t + j)


@compiled
def sepsis_noise(key, t, noise):
    """Fill `noise` [13] with the uniforms of step t of the episode with this key."""
    for j in range(NOISE_SIZE):
        noise[j] = sepsis_uniform(key, t, j)


@compiled
def sepsis_noise_used(key, t, state, action, noise):
    """Fill in those of the thirteen uniforms that `sepsis_step` uses in this state and action."""
    ventilated, vasopressed, medicated = state & 1, state >> 1 & 1, state >> 2 & 1
    antibiotics, ventilation, vasopressors = action >> 2, action >> 1 & 1, action & 1
    if antibiotics or medicated:
        first = 0 if antibiotics else 2
        noise[first] = sepsis_uniform(key, t, first)
        noise[first + 1] = sepsis_uniform(key, t, first + 1)
    else:
        noise[9] = sepsis_uniform(key, t, 9)
    which = 4 if ventilation else (5 if ventilated else 11)
    noise[which] = sepsis_uniform(key, t, which)
    which = 6 if vasopressors else (8 if vasopressed else 10)
    noise[which] = sepsis_uniform(key, t, which)
    which = 7 if vasopressors else 12
    noise[which] = sepsis_uniform(key, t, which)


@compiled
def simulate_sepsis(
    keys, initial, policy, outcome_of, corrected, horizon, state, action, length, final, outcome
):
    """Simulate one episode for each key; `initial` [S] and `policy` [S, A] are cumulative.

    Number 0 of an episode's stream draws the first state; step t uses the fourteen numbers from
    1 + 14 t on, for the action and then the noise. Writes `length`, `final` (the state reached)
    and `outcome` [n] and, one step after another, `state` and `action`; returns the total number
    of steps.
    """
    noise = np.empty(NOISE_SIZE)
    total = 0
    for i in range(len(keys)):
        key = keys[i]
        s = np.searchsorted(initial, uniform(key, 0), side="right")
        end = -1
        t = 0
        while t < horizon and end < 0:
            u = uniform(key, 1 + (NOISE_SIZE + 1) * t)
            a = 0
            for j in range(policy.shape[1] - 1):  # avoids an unpredictable branch
                a += u >= policy[s, j]
            state[total] = s
            action[total] = a
            sepsis_noise_used(key, t, s, a, noise)
            s = sepsis_step(s, a, noise, corrected)
            end = outcome_of[s]
            total += 1
            t += 1
        length[i] = t
        final[i] = s
        outcome[i] = end
    return total
