"""A made-up log of a help desk: tickets, what agents did, and what a new rule suggests.

python examples/helpdesk/make_log.py examples/helpdesk/helpdesk.csv
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

MOST = 8  # actions per ticket
ACTIONS = ("answer", "ask customer", "escalate")


def simulate(tickets: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Return one row per action of an agent."""
    rng = np.random.default_rng(seed)
    rows = [row for ticket in range(tickets) for row in _ticket(f"T{10_000 + ticket}", rng)]
    columns = ["ticket", "hours_open", "topic", "mood", "diagnosed", "agent_action"]
    return pd.DataFrame(rows, columns=[*columns, "suggested_action", "result"])


def _ticket(name: str, rng: np.random.Generator) -> list[tuple]:
    """Return the actions on one ticket: what is diagnosed can be answered."""
    topic = str(rng.choice(["billing", "login", "outage"], p=[0.4, 0.4, 0.2]))
    patience, diagnosed, now, rows = rng.normal(1.5, 0.7), False, 0, []
    for _ in range(MOST):
        mood = "calm" if patience > 1 else "annoyed" if patience > 0 else "angry"
        chances = (0.6, 0.15, 0.25) if diagnosed else (0.35, 0.45, 0.2)
        action = int(rng.choice(3, p=chances))
        suggested = _suggest(topic, mood, diagnosed)
        seen = (name, now, topic, mood, "yes" if diagnosed else "no")
        solved = rng.random() < ((0.7 if diagnosed else 0.15), 0.02, 0.5)[action]
        hours = int(
            rng.choice([1, 4, 24], p=([0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0, 0.4, 0.6])[action])
        )
        patience -= 0.25 + 0.02 * hours + 0.3 * (action == 0 and not diagnosed)
        left = not solved and rng.random() < 0.35 / (1 + np.exp(4 * patience))
        result = "resolved" if solved else "canceled" if left else None
        rows.append((*seen, ACTIONS[action], suggested, result))
        if result:
            return rows
        diagnosed = diagnosed or bool(rng.random() < (0.1, 0.6, 0.8)[action])
        now += hours
    return rows


def _suggest(topic: str, mood: str, diagnosed: bool) -> str:
    """Return the action of the rule that the desk wants to try."""
    if topic == "outage" or mood == "angry":
        return "escalate"
    return "answer" if diagnosed else "ask customer"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--tickets", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    simulate(given.tickets, given.seed).to_csv(given.path, index=False)
