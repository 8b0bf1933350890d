"""Make a small MEDS data set of simulated intensive care: python make_data.py FOLDER.

Patients have one or two stays. In each step of four hours heart rate and lactate are measured at
irregular times, some of them not at all; norepinephrine, once given, lowers lactate. High lactate
leads to death.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

STEPS = 12  # of four hours, at most
MINUTE = np.timedelta64(60, "s")
ZERO = np.datetime64("2150-01-01T00:00:00", "us")
SCHEMA = pa.schema(
    [
        pa.field("subject_id", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us")),
        pa.field("code", pa.string(), nullable=False),
        pa.field("numeric_value", pa.float32()),
        pa.field("text_value", pa.large_string()),
    ]
)


def events_of(subject, random):
    """Return the events of subjects [n]: whose, when, code, number, in no order."""
    found = []

    def add(who, when, code, number=np.nan, text=None):
        frame = {"subject_id": who, "time": when, "code": code, "numeric_value": number}
        found.append(pd.DataFrame(frame | {"text_value": text}))

    count = len(subject)
    never = np.full(count, np.datetime64("NaT", "us"))
    add(subject, never, np.where(random.random(count) < 0.5, "GENDER//F", "GENDER//M"))
    day = np.timedelta64(1, "D")
    begin = ZERO + random.integers(0, 3650, count) * day + random.integers(0, 1440, count) * MINUTE
    add(subject, begin - random.integers(20 * 365, 90 * 365, count) * day, "MEDS_BIRTH")
    alive = np.ones(count, dtype=bool)
    for stay in range(2):
        here = np.flatnonzero(alive & (stay == 0 or random.random(count) < 0.2))
        who, start = subject[here], begin[here] + stay * 30 * day
        add(who, start, "ICU_ADMISSION//MEDICAL")
        lactate, inside = random.gamma(3.0, 1.0, len(here)), np.ones(len(here), dtype=bool)
        for step in range(STEPS):
            at = start + (4 * 60 * step + random.integers(0, 120, len(here))) * MINUTE
            for code, value, often in (
                ("VITAL//HEART_RATE", 70 + 8 * lactate + random.normal(0, 10, len(here)), 0.95),
                ("VITAL//HEART_RATE", 70 + 8 * lactate + random.normal(0, 10, len(here)), 0.5),
                ("LAB//LACTATE//mmol/L", lactate, 1.0 if step == 0 else 0.7),
            ):
                seen = inside & (random.random(len(here)) < often)
                number = np.round(value[seen], 1)
                add(who[seen], at[seen] + random.integers(0, 60, seen.sum()) * MINUTE, code, number)
            given = inside & (random.random(len(here)) < np.where(lactate > 3, 0.7, 0.2))
            dose = np.where(random.random(len(here)) < 0.5, 0.1, 0.4)
            late = at + 60 * MINUTE
            add(who[given], late[given], "INFUSION//NOREPINEPHRINE", np.round(dose[given], 2))
            change = random.normal(0, 0.8, len(here)) - 0.8 * given + 0.2
            lactate = np.clip(lactate + np.where(inside, change, 0), 0.3, 15)
            leave = start + (4 * 60 * step + random.integers(180, 240, len(here))) * MINUTE
            died = inside & (random.random(len(here)) < 0.01 * np.maximum(lactate - 2, 0) ** 1.5)
            home = inside & ~died & (random.random(len(here)) < np.where(lactate < 2, 0.25, 0.02))
            add(who[died], leave[died], "ICU_DISCHARGE//DIED")
            add(who[died], leave[died], "MEDS_DEATH")
            add(who[home], leave[home], "ICU_DISCHARGE//HOME")
            inside &= ~(died | home)
            alive[here[died]] = False
        add(who[inside], start[inside] + 48 * 60 * MINUTE, "ICU_DISCHARGE//WARD")
    return pd.concat(found)


def write_data(folder, subjects=400, shards=4, seed=0):
    """Write a data set with `shards` files, and return the number of its events."""
    random = np.random.default_rng(seed)
    (folder / "metadata").mkdir(parents=True)
    total, codes = 0, set()
    names = [f"train/{n}" for n in range(shards - 1)] + ["held_out/0"]
    splits = []
    for name, subject in zip(
        names, np.array_split(np.arange(1, subjects + 1), shards), strict=True
    ):
        events = events_of(subject, random)
        events = events.sort_values(["subject_id", "time"], kind="stable", na_position="first")
        path = folder / "data" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pandas(events, SCHEMA, preserve_index=False), path)
        total, codes = total + len(events), codes | set(events.code)
        splits.append(pd.DataFrame({"subject_id": subject, "split": name.split("/")[0]}))
    metadata = folder / "metadata"
    text, who = pa.field("split", pa.string(), nullable=False), SCHEMA.field("subject_id")
    table = pa.Table.from_pandas(pd.concat(splits), pa.schema([who, text]), preserve_index=False)
    pq.write_table(table, metadata / "subject_splits.parquet")
    described = {code: code.replace("//", " ").replace("_", " ").lower() for code in sorted(codes)}
    kinds = [SCHEMA.field("code"), ("description", pa.string())]
    parents = pa.array([None] * len(described), pa.list_(pa.string()))
    listing = pa.table([list(described), list(described.values())], schema=pa.schema(kinds))
    pq.write_table(listing.append_column("parent_codes", parents), metadata / "codes.parquet")
    about = {"dataset_name": "simulated intensive care", "meds_version": "0.4.1"}
    (metadata / "dataset.json").write_text(json.dumps(about))
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--subjects", type=int, default=400)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    events = write_data(given.folder, given.subjects, given.shards, given.seed)
    print(f"{events:,} events of {given.subjects:,} subjects in {given.folder}")
