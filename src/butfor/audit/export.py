"""An audit's results as CSV files, for spreadsheets and other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pandas as pd

from butfor.audit.audit import Audit, load_for_readers
from butfor.audit.folders import Kind, whole_folder
from butfor.audit.reading import unrecorded
from butfor.audit.spreadsheet import write_csv
from butfor.evaluate.wording import counted, in_words
from butfor.log.sources import read_pieces
from butfor.types import Progress

README = "README.txt"
EXPORT = Kind(README, rb"\Abutfor \d.*, run [0-9a-f]{64}", (README, "*.csv"))
Table = Callable[[Audit], pd.DataFrame | None]  # None: this audit has no such table
TABLES: Mapping[str, tuple[str, Table]] = {
    "estimates": ("the value of the policy by each estimator", lambda a: a.estimates),
    "checks": ("the result of each check", lambda a: a.diagnostics),
    "outcomes": (
        "episodes by what happened (rows) and by the likeliest outcome under the policy",
        lambda a: a.outcome_table().reset_index(),
    ),
    "outcomes-expected": (
        "the same, by the model's probabilities",
        lambda a: a.outcome_table(expected=True).reset_index(),
    ),
    "decomposition": ("pieces that add up to the difference", lambda a: a.decomposition),
    "policy": ("what the policy does in each state of the log", lambda a: a.policy_table()),
    "policy-by-variable": ("the same by variable", lambda a: a.policy_table("variable")),
    "policy-by-action": ("the same by action", lambda a: a.policy_table("action")),
    "clusters": (
        "the typical values of each cluster",
        lambda a: None if a.clusters is None else a.clusters.table(),
    ),
    "rehearsal": (
        "what would have been promised with one variable less",
        lambda a: None if a.rehearsal is None else a.rehearsal.table,
    ),
}
LARGE = {  # of a folder, copied piece by piece
    "episodes": "one row per episode",
    "steps": "one row per decision, and one per final state",
}


def export_audit(
    audit: Audit | str | Path,
    folder: str | Path,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> list[Path]:
    """Write an audit's results as CSV files into a new folder, and return their paths.

    The folder is written completely or not at all, and an existing one is replaced only with
    `overwrite` and if it is an export. Text that a spreadsheet would take for a formula gets an
    apostrophe in front. `README.txt` says what each file holds; columns are those of the audit's
    tables (docs/audit.md).

    Parameters
    ----------
    audit
        The audit, or the folder in which it was saved, whatever its size.
    progress : optional
        Called with (done, total), in files.
    """
    known = audit if isinstance(audit, Audit) else load_for_readers(audit)
    if isinstance(audit, Audit) and known.partial:
        raise ValueError("only some of the episodes were loaded; give the folder of the audit")
    about = {name: words for name, (words, _) in TABLES.items()} | LARGE
    with whole_folder(folder, EXPORT, overwrite=overwrite) as new:
        lines = [f"butfor {known.meta.butfor}, run {known.meta.digest}", ""]
        for number, (name, words) in enumerate(about.items(), start=1):
            pieces = _pieces(audit, known, name)
            if pieces is not None:
                rows = write_csv(new / f"{name}.csv", pieces)
                lines.append(f"{name}.csv: {in_words(words, known.noun)} ({counted(rows, 'row')})")
            if progress is not None:
                progress(number, len(about))
        (new / README).write_text("\n".join([*lines, ""]), encoding="utf-8")
    return sorted(Path(folder).iterdir())


def _pieces(source: Audit | str | Path, audit: Audit, name: str) -> Iterable[pd.DataFrame] | None:
    """Return a table, a large one of a folder in pieces; None if the audit does not have it."""
    if name not in LARGE:
        table = TABLES[name][1](audit)
        return None if table is None else [table]
    if isinstance(source, Audit):
        return [getattr(source, name)]
    pieces = read_pieces(Path(source) / f"{name}.parquet")
    continued = name == "episodes" and "usual_return" in audit.episodes
    return map(unrecorded, pieces) if continued else pieces
