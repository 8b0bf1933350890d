"""Episodes of MEDS events, slowly: one subject after another, event by event, step by step."""

import math
from datetime import timedelta

import pyarrow.parquet as pq


def read_subjects(folder):
    """Return the events of each subject as dictionaries, in the order of the files."""
    subjects = {}
    for path in sorted((folder / "data").rglob("*.parquet")):
        for event in pq.read_table(path).to_pylist():
            subjects.setdefault(event["subject_id"], []).append(event)
    return subjects


def stays_of(events, start, end):
    """Return (start, end) of each stay of a subject; each has an end."""
    times = [event["time"] for event in events if event["code"].startswith(start)]
    ends = [event["time"] for event in events if event["code"].startswith(end)]
    return [(time, min(one for one in ends if one > time)) for time in times]


def steps_of(events, start, stop, every, codes):
    """Return for each step the values of each column: {column: [values]}, and those at the end."""
    count = math.ceil((stop - start) / every)
    steps = [{name: [] for name in codes} for _ in range(count + 1)]
    for event in events:
        for name, code in codes.items():
            if event["time"] is None or event["code"] != code:
                continue
            if start <= event["time"] <= stop and event["numeric_value"] is not None:
                number = round(event["numeric_value"], 4)  # as it was before single precision
                steps[(event["time"] - start) // every][name].append(number)
    return steps


def decisions_of(folder):
    """Return one dictionary per decision of the data set of examples/meds, as its study says."""
    codes = {
        "heart_rate": "VITAL//HEART_RATE",
        "lactate": "LAB//LACTATE//mmol/L",
        "norepinephrine": "INFUSION//NOREPINEPHRINE",
    }
    found = []
    for subject, events in read_subjects(folder).items():
        gender = next(e["code"][-1] for e in events if e["code"].startswith("GENDER//"))
        deaths = [event["time"] for event in events if event["code"] == "MEDS_DEATH"]
        for number, (start, stop) in enumerate(stays_of(events, "ICU_ADMISSION", "ICU_DISCHARGE")):
            outcome = "died" if any(start < one <= stop for one in deaths) else "discharged"
            steps = steps_of(events, start, stop, timedelta(hours=4), codes)
            rate, lactate = 80.0, None
            for time, step in enumerate(steps[:-1]):
                rate = max(step["heart_rate"], default=rate if time else 80.0)
                lactate = step["lactate"][-1] if step["lactate"] else lactate
                dose = step["norepinephrine"][-1] if step["norepinephrine"] else 0.0
                found.append(
                    {
                        "stay": f"{subject}-{number + 1}",
                        "time": time,
                        "lactate": (lactate >= 2) + (lactate >= 4),
                        "heart_rate": (rate >= 90) + (rate >= 110),
                        "norepinephrine": (dose >= 0.05) + (dose >= 0.2),
                        "gender": gender,
                        "outcome": outcome,
                    }
                )
    return found
