"""MEDS data sets that several test files share."""

import json
import runpy
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

EXAMPLE = Path(__file__).parents[1] / "examples" / "meds"
STUDY = EXAMPLE / "study.toml"
MAKER = runpy.run_path(str(EXAMPLE / "make_data.py"))
write_data = MAKER["write_data"]
SCHEMA = MAKER["SCHEMA"]


def write_events(folder, *shards, splits=None):
    """Write events (subject, hour or None, code, number or None, text or None) as a data set."""
    for number, events in enumerate(shards):
        rows = [(*event, None, None)[:5] for event in events]
        frame = pd.DataFrame(rows, columns=SCHEMA.names)
        frame["time"] = pd.Timestamp("2150-01-01") + pd.to_timedelta(
            frame["time"].astype(float), "h"
        )
        path = folder / "data" / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pandas(frame, SCHEMA, preserve_index=False), path)
    metadata = folder / "metadata"
    metadata.mkdir(exist_ok=True)
    (metadata / "dataset.json").write_text(json.dumps({"dataset_name": "by hand"}))
    if splits is not None:
        table = pa.table({"subject_id": list(splits), "split": list(splits.values())})
        pq.write_table(table, metadata / "subject_splits.parquet")
    return folder
