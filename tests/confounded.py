"""Stays on a ward on which a hidden frailty may drive both the treatment and the course."""

import numpy as np

import butfor as bf

DIED, HOME = bf.Outcome("died", -1.0, bad=True), bf.Outcome("went home", 1.0)
SEVERITY, AGE = (
    bf.Variable("severity", ("low", "middle", "high")),
    bf.Variable("age", ("<65", "65+")),
)
DRUG = bf.Variable("drug", ("no", "yes"))
HORIZON = 5
# a policy with good overlap: the sicker, the likelier the drug
TARGET = np.repeat([[0.6, 0.4], [0.4, 0.6], [0.3, 0.7]], 2, axis=0)


def simulate_stays(episodes, seed, *, confounded):
    """Simulate stays of up to five steps; the log has severity and age.

    Confounded: half of the patients are frail, which lasts and nobody records. They get the drug
    with a probability of .8 and the others of .2, and they do worse. Otherwise nobody is frail,
    everybody fares as the two do on average, and the drug depends on severity alone.
    """
    rng = np.random.default_rng(seed)
    frail = (rng.random(episodes) < 0.5).astype(float) if confounded else np.full(episodes, 0.5)
    age = rng.integers(2, size=episodes)
    severity = rng.integers(3, size=episodes)
    outcome = np.full(episodes, -1)
    steps = []
    for _ in range(HORIZON):
        here = np.flatnonzero(outcome < 0)
        usual = np.array([0.35, 0.5, 0.65])[severity]
        chance = np.where(frail > 0.5, 0.8, 0.2) if confounded else usual
        drug = rng.random(episodes) < chance
        worse = 0.2 + 0.1 * age + 0.2 * frail - 0.12 * drug
        better = 0.25 - 0.1 * frail + 0.2 * drug
        luck = rng.random(episodes)
        move = np.where(luck < worse, 1, np.where(luck > 1 - better, -1, 0))
        reached = np.clip(severity + move, 0, 2)
        luck = rng.random(episodes)
        died = (reached == 2) & (luck < 0.1 + 0.3 * frail)
        home = (reached == 0) & (luck > 0.7 + 0.15 * frail)
        outcome[here] = np.where(died, 0, np.where(home, 1, -1))[here]
        rows = (here, severity[here] * 2 + age[here], drug[here], reached[here] * 2 + age[here])
        steps.append(np.stack(rows))
        severity = reached
    stay, state, action, following = np.concatenate(steps, axis=1)
    order = np.argsort(stay, kind="stable")
    return bf.Episodes.from_arrays(
        state[order],
        action[order],
        following[order],
        offsets=np.append(0, np.cumsum(np.bincount(stay))),
        outcome=outcome,
        outcomes=[DIED, HOME],
        states=(SEVERITY, AGE),
        actions=(DRUG,),
        horizon=HORIZON,
    )


def check_stays(log, fit, target=TARGET):
    """Return the table of checks for the policy on a log, with a model learned by `fit`."""
    return bf.diagnose(bf.Replay(log, fit(log), target, horizon=HORIZON))
