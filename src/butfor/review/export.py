"""Reviews and stays as CSV and JSON lines, each with what the model said about the stay."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from butfor.audit.audit import Audit, load_for_readers
from butfor.audit.spreadsheet import csv_text, guarded, restored
from butfor.evaluate.agreement import Agreement, measure_agreement
from butfor.log.files import check_even, explained, open_text
from butfor.log.whole_files import check_new_file, whole_file
from butfor.review.plan import run_id
from butfor.review.state import Answer, Review, Run
from butfor.review.store import Store, find_reviews, open_copy
from butfor.review.verdicts import Chances

SAID = ("verdict", "variable", "step", "sure", "comment", "seconds", "first_impression")
CIRCUMSTANCES = ("control", "repeat", "informed", "state", "created_at", "withdrawn_at", "observed")
NAMES = ("run_id", "episode_id", "reviewer", *SAID, *CIRCUMSTANCES)
# of the chances given before the model was shown; `chance_…` of each outcome comes first
ANSWERED = (
    "sure_of_chances",
    "cannot_tell",  # why
    "answer_id",  # numbers rise with time; two verdicts on one answer share it
    "answered_at",
    "answer_seconds",
    "answer_informed",
    "answers_needed",  # for each stay
)
MODEL_PREFIXES = ("p_", "low_", "high_")
MODEL_NAMES = ("expected_return", "difference")
EVIDENCE = ("evidence_min", "thin_share")
PSEUDONYM = re.compile(r"Reviewer \d+")


def review_rows(
    store: Store, audit: Audit, *, run: str | None = None, real_names: bool = False
) -> list[dict[str, Any]]:
    """Return one row per verdict on an audit, including withdrawn ones.

    Chances that a reviewer gave are in the row of the verdict that followed, or in a row of their
    own if none did.

    Parameters
    ----------
    run
        An earlier run; the audit says nothing about its stays, so the model's columns are empty.
    real_names
        Whether reviewers are named instead of being called "Reviewer 1", "Reviewer 2" ….
    """
    chosen = store.run(run_id(audit) if run is None else run)
    same = chosen.id == run_id(audit)
    stays = {stay.episode: stay for stay in store.stays(chosen.id)}
    columns = model_columns(audit)
    table = audit.episodes.set_index(audit.episodes["id"].map(str))
    model = table.loc[list(stays)].to_dict("index") if same else {}
    names = {} if real_names else store.pseudonyms()
    rows = []
    for given, answer in _pairs(store.reviews(chosen.id), store.answers(chosen.id)):
        known = asdict(stays[given.episode]) | asdict(given)
        known |= {"run_id": chosen.id, "episode_id": given.episode}
        known["reviewer"] = names.get(given.reviewer, given.reviewer)
        said = model.get(given.episode, {})
        known["observed"] = said.get("observed_outcome")
        if isinstance(given, Answer):  # no verdict followed
            known |= dict.fromkeys(("sure", "seconds", "informed", "created_at"))
        row = {name: known.get(name) for name in NAMES} | answer_columns(chosen, answer)
        row |= {name: plain_value(said.get(name)) for name in columns}
        rows.append(row | {"butfor_version": audit.meta.butfor if same else None})
    return rows


def _pairs(
    reviews: Sequence[Review], answers: Sequence[Answer]
) -> list[tuple[Review | Answer, Answer | None]]:
    """Return each verdict with the answer before it, then the answers without a verdict."""
    by_place = {(a.reviewer, a.episode, a.repeat): a for a in answers}
    pairs: list[tuple[Review | Answer, Answer | None]] = [
        (review, by_place.get((review.reviewer, review.episode, review.repeat)))
        for review in reviews
    ]
    judged = {answer.id for _, answer in pairs if answer is not None}
    return [*pairs, *((answer, answer) for answer in answers if answer.id not in judged)]


def answer_columns(run: Run, answer: Answer | None) -> dict[str, Any]:
    """Return what a row says about the chances; nothing if the run asked for verdicts only."""
    if not run.outcomes:
        return {}
    names = answer_names(run)
    if answer is None:
        return dict.fromkeys(names) | {"answers_needed": run.settings.needed}
    numbers = answer.out_of_ten or (None,) * len(run.outcomes)
    about = (answer.sure, answer.reason, answer.id, answer.created_at, answer.seconds)
    values = (*numbers, *about, answer.informed, run.settings.needed)
    return dict(zip(names, values, strict=True))


def answer_names(run: Run) -> list[str]:
    """Return the columns about chances; none if the run asked for verdicts only."""
    return [*(f"chance_{name}" for name in run.outcomes), *ANSWERED] if run.outcomes else []


def model_columns(audit: Audit) -> list[str]:
    """Return the columns of the table of episodes that go into an export."""
    names = [str(name) for name in audit.episodes]
    said = [name for name in names if name.startswith(MODEL_PREFIXES) or name in MODEL_NAMES]
    return [*said, *EVIDENCE]


def reviews_text(store: Store, audit: Audit, kind: str, *, real_names: bool = False) -> str:
    """Return the reviews of an audit as "csv", or as "jsonl" with the history of each stay.

    Reviewers are called the same throughout, by pseudonym unless `real_names` are asked for.

    In CSV, text that starts like a formula is prefixed with an apostrophe, as is text that already
    looks so prefixed, so that `read_reviews_csv` restores what was written.
    """
    rows = review_rows(store, audit, real_names=real_names)
    if kind == "csv":
        said = answer_names(store.run(run_id(audit)))
        return csv_text(rows, [*NAMES, *said, *model_columns(audit), "butfor_version"])
    pseudonyms = store.pseudonyms()
    history: dict[str, list[dict[str, Any]]] = {}
    for event in store.events(run=run_id(audit)):
        known = event.plain()
        if not real_names:
            # a guessed name could be checked against the hash, which covers it
            del known["hash"], known["prev_hash"]
            known["reviewer"] = pseudonyms.get(event.reviewer, "")
        history.setdefault(event.episode, []).append(known)
    return _to_jsonl(row | {"history": history[row["episode_id"]]} for row in rows)


def episodes_text(store: Store, audit: Audit, kind: str) -> str:
    """Return one row per stay of an audit, under review or not, as "csv" or "jsonl"."""
    run = run_id(audit)
    stays = {stay.episode: stay for stay in store.stays(run)}
    columns = ["length", *model_columns(audit)]
    rows = []
    for row in audit.episodes.to_dict("records"):
        stay = stays.get(str(row["id"]))
        known = {
            "run_id": run,
            "episode_id": str(row["id"]),
            "state": stay.state if stay else "",
            "final": stay.final if stay else None,
            "observed": row["observed_outcome"],
        }
        rows.append(known | {name: plain_value(row.get(name)) for name in columns})
    names = ["run_id", "episode_id", "state", "final", "observed", *columns]
    return csv_text(rows, names) if kind == "csv" else _to_jsonl(rows)


def export_reviews(
    folder: str | Path, path: Path, *, real_names: bool = False, overwrite: bool = False
) -> Path:
    """Write the reviews of an audit folder to a .csv or .jsonl file.

    The file is written whole, and over an existing one only with `overwrite`. Reviews that are not
    what was recorded are refused, as by everything that reads them.
    """
    if path.suffix not in (".csv", ".jsonl"):
        raise ValueError(f"{path}: give a name that ends in .csv or .jsonl")
    reviews = find_reviews(folder)
    check_new_file(path, overwrite=overwrite)
    audit = load_for_readers(folder)
    with open_copy(reviews) as store:
        text = reviews_text(store, audit, path.suffix[1:], real_names=real_names)
    with whole_file(path, overwrite=overwrite) as new:
        new.write_text(text, encoding="utf-8", newline="")
    return path


def read_reviews_csv(path: str | Path) -> list[dict[str, str]]:
    """Read a CSV of reviews as `reviews_text` wrote it, all cells as text."""
    file = Path(path)
    with explained(file), open_text(file) as text:
        reader = csv.DictReader(text, strict=True)
        rows = list(reader)
    _check_columns(reader.fieldnames or (), str(path))
    check_even(file, len(reader.fieldnames or ()))
    return [{key: restored(cell) for key, cell in row.items()} for row in rows]


def read_reviews_frame(frame: pd.DataFrame) -> list[dict[str, str]]:
    """Return the rows of an export in a data frame, all cells as text, like `read_reviews_csv`."""
    _check_columns(frame.columns, "the data frame")
    words = frame.astype(object).where(frame.notna(), "").to_dict("records")
    return [{str(key): restored(_text(cell)) for key, cell in row.items()} for row in words]


def _check_columns(names: Iterable[Any], source: str) -> None:
    missing = {"run_id", "episode_id", "reviewer", "verdict"} - set(names)
    if missing:
        raise ValueError(
            f"{source} has no column {', '.join(sorted(missing))}: is it an export of reviews?"
        )


def _text(cell: Any) -> str:
    """Return a cell as a CSV file has it; whole numbers beside missing ones became floats."""
    if isinstance(cell, bool):
        return str(guarded(cell))
    return str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell)


def read_row_answers(rows: Iterable[Mapping[str, str]], outcomes: Sequence[str]) -> list[Answer]:
    """Return the chances in the rows of an export, in the order in which they were given."""
    found: dict[int, Answer] = {}
    for row in rows:
        if not row.get("answer_id"):
            continue
        numbers = [row[f"chance_{name}"] for name in outcomes]
        number = int(row["answer_id"])
        try:
            given = Chances(
                out_of_ten=tuple(map(int, numbers)) if any(numbers) else None,
                sure=row.get("sure_of_chances", ""),
                reason=row.get("cannot_tell", ""),
            )
        except ValueError as error:
            raise ValueError(f"answer {number}: {error}") from None
        found[number] = Answer(
            id=number,
            run=row["run_id"],
            reviewer=row["reviewer"],
            episode=row["episode_id"],
            repeat=row.get("repeat") == "true",
            **vars(given),
            seconds=float(row.get("answer_seconds") or 0),
            created_at=row.get("answered_at", ""),
            informed=row.get("answer_informed") == "true",
        )
    return [found[number] for number in sorted(found)]


def agreement_of_export(
    path: str | Path, *, resamples: int = 2000, seed: int = 0
) -> dict[str, Agreement]:
    """Measure agreement from an exported CSV, separately for each run.

    Withdrawn verdicts, repeats and verdicts given after seeing those of others do not count.
    """
    given: dict[str, list[tuple[str, str, int]]] = {}
    for line, row in enumerate(read_reviews_csv(path), start=1):
        if row.get("answer_id") and not row["verdict"]:
            continue  # chances without a verdict
        if row.get("withdrawn_at") or "true" in (row.get("repeat"), row.get("informed")):
            continue
        if not row["verdict"].isdecimal():
            raise ValueError(f"{path}, review {line}: verdict {row['verdict']!r} is not a number")
        entry = (row["episode_id"], row["reviewer"], int(row["verdict"]))
        given.setdefault(row["run_id"], []).append(entry)
    for entries in given.values():
        _check_names(path, {reviewer for _, reviewer, _ in entries})
    return {
        run: measure_agreement(entries, resamples=resamples, seed=seed)
        for run, entries in given.items()
    }


def _check_names(path: str | Path, names: set[str]) -> None:
    """Raise if an export, as earlier versions did, may call one reviewer by two names."""
    numbered = {name for name in names if PSEUDONYM.fullmatch(name)}
    if numbered and numbered != names:
        raise ValueError(
            f"{path} has both pseudonyms ({min(numbered)}) and names ({min(names - numbered)}), so "
            "one reviewer may count as two; export the reviews again"
        )


def _to_jsonl(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def plain_value(value: Any) -> Any:
    """Return a value of a data frame as JSON has it; None if it is missing."""
    plain = value.item() if hasattr(value, "item") else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain
