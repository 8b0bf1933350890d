"""The claims of an episode's story, one row of the audit's tables at a time."""

import re

NUMBER = r"(\d+(?:\.\d+)?)"


def chance_by(rows, outcome, step):
    """Probability that an outcome has come by a step; rows are (step, variable, level, chance)."""
    latest, found = -1, 0.0
    for at, variable, level, chance in rows:
        if variable == "" and level == outcome and latest < at <= step:
            latest, found = at, chance
    return found


def first_time(rows, outcome, part, horizon):
    """First step by which a part of all that ever ends in this outcome has done so."""
    for step in range(horizon + 1):
        if chance_by(rows, outcome, step) >= part * chance_by(rows, outcome, horizon) - 1e-12:
            return step
    raise AssertionError("the horizon itself must do")


def spoken(words):
    """Smallest and largest probability that a fraction in words may stand for."""
    if words == "nearly all":
        return 0.95, 1.0
    about, words = words.startswith("about "), words.removeprefix("about ")
    part, whole = (1, 2) if words == "half" else map(int, words.split(" of "))
    room = 0.051 if about else 0.0201  # half the widest gap between fractions; or two percent
    return part / whole - room, part / whole + room


def read_claims(story, names, unit):
    """What a story says of each outcome: (name, when, fraction), and when it happens otherwise."""
    text = story.split("expects: ")[1]
    listed = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    fraction = r"(nearly all|(?:about )?(?:half|\d+ of \d+))"
    when = rf"(?: (?:by|at) {re.escape(unit)} {NUMBER})?"
    claims = re.findall(rf"(?:^|, )({listed}){when} in {fraction}", text)
    late = re.findall(rf"otherwise by {re.escape(unit)} {NUMBER}", text)
    return claims, late


def cases_at(rows, least, most):
    """Fewest and most similar cases at steps that this share of replays still reaches.

    Rows are (step, mass, evidence).
    """
    counted = []
    for _, mass, evidence in rows:
        if least <= mass < most and evidence == evidence:
            counted.append(evidence)
    return (min(counted), max(counted)) if counted else None
