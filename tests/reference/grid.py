"""Rows on a grid of time and missing values filled in, slowly: one episode, row by row."""

import math


def merge_step(rows, takes, normals):
    """Return the values of one step from its rows, in the order of time; None is missing."""
    merged = {}
    for name, take in takes.items():
        known = [row[name] for row in rows if row[name] is not None]
        if not known:
            merged[name] = None
        elif take == "last":
            merged[name] = known[-1]
        elif take == "mean":
            merged[name] = math.fsum(known) / len(known)
        elif take == "sum":
            merged[name] = math.fsum(known)
        elif take in ("min", "max"):
            merged[name] = min(known) if take == "min" else max(known)
        elif take == "any":
            given = [value for value in known if value != 0]
            merged[name] = given[-1] if given else 0
        elif take == "worst":
            low, high = normals[name]
            far = [max(low - value, value - high, 0) for value in known]
            merged[name] = [v for v, d in zip(known, far, strict=True) if d == max(far)][-1]
    return merged


def put_on_grid(rows, every, takes, normals, action):
    """Return one dictionary per step, with its reward; rows are sorted by time."""
    first = rows[0]["time"]
    steps = [math.floor((row["time"] - first) / every + 1e-9) for row in rows]
    same = [row for row, step in zip(rows, steps, strict=True) if step == steps[-1]]
    final = rows[-1][action] is None
    if final and any(row[action] is not None for row in same):
        steps[-1] += 1
    found = []
    for step in range(steps[-1] + 1):
        mine = [row for row, at in zip(rows, steps, strict=True) if at == step]
        merged = merge_step(mine, takes, normals)
        merged["reward"] = math.fsum(row["reward"] for row in mine)
        found.append(merged)
    return found


def fill_column(steps, name, limit, fill, last_too=True):
    """Carry values forward by at most `limit` steps and fill in the others; count both.

    Without `last_too` the last step stays as it is.
    """
    carried = filled = 0
    age, value = math.inf, None
    for number, step in enumerate(steps):
        age += 1
        if step[name] is not None:
            age, value = 0, step[name]
        elif number == len(steps) - 1 and not last_too:
            continue
        elif value is not None and age <= limit:
            step[name] = value
            carried += 1
        elif fill is not None:
            step[name] = fill
            filled += 1
    return carried, filled
