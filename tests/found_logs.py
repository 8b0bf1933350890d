"""Logs as strangers bring them: each looks like a public data set, but is made up here."""

import numpy as np
import pandas as pd


def sepsis_codes(stays=300, states=716, actions=25, seed=0):
    """ICU-Sepsis: states and actions by number, a reward at the end."""
    rng = np.random.default_rng(seed)
    following = rng.integers(0, states, (states, 4))
    rows = []
    for stay in range(stays):
        state = int(rng.integers(states))
        length = int(rng.integers(3, 12))
        died = rng.random() < 0.3
        for step in range(length):
            action = int(min(actions - 1, rng.exponential(6)))
            ended = step == length - 1
            rows.append((len(rows), stay, step, state, action, (1 - died) if ended else 0, ended))
            state = int(rng.choice(following[state]))
    frame = pd.DataFrame(
        rows, columns=["Unnamed: 0", "episode", "step", "state", "action", "reward", "terminated"]
    )
    return frame.astype({"reward": float, "terminated": int})


def many_labs(stays=200, labs=45, telling=("lab_07", "lab_31", "lab_44"), seed=0):
    """45 noisy labs of which three decide the treatment and the end; death is written as 0 or 1."""
    rng = np.random.default_rng(seed)
    names = [f"lab_{number:02d}" for number in range(labs)]
    rows = []
    for stay in range(stays):
        severity = rng.normal()
        length = int(rng.integers(4, 9))
        died = int(rng.random() < 1 / (1 + np.exp(-2 * severity)))
        for step in range(length):
            values = rng.normal(size=labs)
            for place, name in enumerate(telling):
                values[names.index(name)] += [severity, -severity, 2 * np.sin(severity)][place]
            dose = max(0.0, values[names.index(telling[0])] + 0.3 * rng.normal())
            rows.append((stay, 4 * step, *np.round(values, 3), round(dose, 3), died))
            severity += 0.3 * rng.normal()
    columns = ["stay_id", "hour", *names, "vasopressor_dose", "hospital_expire_flag"]
    return pd.DataFrame(rows, columns=columns)


def liver_trial(patients=200, seed=0):
    """PBC: irregular visits; follow-up and status are the same on every row of a patient."""
    rng = np.random.default_rng(seed)
    rows = []
    for patient in range(1, patients + 1):
        visits = int(rng.integers(2, 10))
        day = np.cumsum([0, *rng.integers(150, 420, visits - 1)])
        followup = int(day[-1] + rng.integers(10, 200))
        status = int(rng.choice([0, 1, 2], p=[0.45, 0.1, 0.45]))
        arm, age, sex = int(rng.integers(1, 3)), rng.normal(50, 10), rng.choice(["f", "m"])
        bilirubin = rng.gamma(2, 1.5) + status
        for when in day.tolist():
            edema = rng.choice([0, 0.5, 1], p=[0.7, 0.2, 0.1])
            rows.append(
                (len(rows) + 1, patient, followup, status, arm, round(age, 2), sex, when, edema,
                 round(bilirubin, 1), round(rng.normal(3.5, 0.4), 2))
            )  # fmt: skip
            bilirubin = max(0.3, bilirubin + rng.normal() * 0.4)
    columns = "rownames id futime status trt age sex day edema bili albumin".split()  # noqa: SIM905
    return pd.DataFrame(rows, columns=columns)


def bandit(rounds=600, seed=0):
    """Open Bandit: one decision per row, with its click and its propensity."""
    rng = np.random.default_rng(seed)
    item = rng.integers(0, 12, rounds)
    user = rng.choice(["a1", "b2", "c3"], rounds)
    click = (rng.random(rounds) < 0.05 + 0.2 * (item == 3)).astype(int)
    return pd.DataFrame(
        {
            "Unnamed: 0": np.arange(rounds),
            "timestamp": pd.Timestamp("2019-11-24") + pd.to_timedelta(np.arange(rounds), "min"),
            "item_id": item,
            "position": rng.integers(1, 4, rounds),
            "click": click,
            "propensity_score": np.full(rounds, 1 / 12) + rng.choice([0, 1e-3], rounds),
            "user_feature_0": user,
            "user_feature_1": rng.choice(["x", "y"], rounds),
        }
    )


def permits(cases=120, seed=0):
    """Cases of a permit office as process mining keeps them: activities with their time stamps."""
    rng = np.random.default_rng(seed)
    activities = ["check form", "ask for papers", "visit the site", "consult", "decide"]
    rows = []
    for case in range(cases):
        now = pd.Timestamp("2020-01-01") + pd.Timedelta(days=int(rng.integers(300)))
        amount = round(float(rng.gamma(2, 5000)), 2)
        length = int(rng.integers(3, 8))
        result = rng.choice(["granted", "rejected"])
        for step in range(length):
            activity = "decide" if step == length - 1 else rng.choice(activities[:-1])
            clerk = rng.choice(["clerk A", "clerk B", "clerk C"])
            end = result if step == length - 1 else None
            key = f"event_{case}_{step}"
            rows.append((key, f"permit {case}", activity, now, clerk, amount, "Dept 1", end))
            now += pd.Timedelta(minutes=int(rng.exponential(5000)) + 1)
    columns = ["id", "case:concept:name", "concept:name", "time:timestamp", "org:resource"]
    return pd.DataFrame(rows, columns=[*columns, "case:Amount", "org:group", "case:result"])


def frozen_lake(episodes=200, seed=0):
    """FrozenLake as an agent logs it: state, action, reward, next state, and two flags."""
    rng = np.random.default_rng(seed)
    holes, goal = {5, 7, 11, 12}, 15
    rows = []
    for episode in range(episodes):
        state = 0
        for step in range(100):
            action = int(rng.integers(4))
            way = (action + int(rng.integers(-1, 2))) % 4
            row, column = divmod(state, 4)
            row = min(3, max(0, row + (way == 1) - (way == 3)))
            column = min(3, max(0, column + (way == 2) - (way == 0)))
            after = 4 * row + column
            ended = after in holes or after == goal
            rows.append((episode, step, state, action, float(after == goal), after, ended, False))
            state = after
            if ended:
                break
    columns = "episode step state action reward next_state terminated truncated".split()  # noqa: SIM905
    return pd.DataFrame(rows, columns=columns)
