"""A first draft of a study file for a MEDS data set, guessed from its codes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from butfor.log.coding import listed, text_of
from butfor.log.fields import place
from butfor.log.files import event_files, explained
from butfor.log.guess.findings import CHECK, Finding
from butfor.log.guess.words import meaning, parts, sounds
from butfor.log.meds.events import CODES, DEATH, check_file, root_of
from butfor.log.meds.section import ANY, MEDS
from butfor.log.read import read_log
from butfor.log.sources import PIECE, opened
from butfor.log.study import read_study
from butfor.log.write import comment_lines, write_toml

ROWS = 500_000  # events that are looked at, all of one file
STATES, ACTIONS, SIDES = 4, 1, 4  # columns that a draft has of each kind, at most
SEPARATOR = "//"
GIVEN = (
    "medication",
    "medications",
    "infusion",
    "drug",
    "rx",
    "rxnorm",
    "administered",
    "procedure",
)
STEPS = ((1.0, "1h"), (4.0, "4h"), (12.0, "12h"), (24.0, "1d"))  # the longest of typical gaps
PROBLEMS = {"no_outcome": "keep", "no_transition": "keep", "missing_state": "drop"}


@dataclass
class _Draft:
    """Sections, comments and findings, as they are guessed."""

    codes: pd.DataFrame  # by code: events, subjects, numbers, static
    descriptions: dict[str, str]
    sections: dict[str, Any] = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)
    found: dict[str, Finding] = field(default_factory=dict)  # by code or pattern

    def take(self, pattern: str, role: str, why: str) -> None:
        """Give a code a role; a discharge may have two: the end of a stay, and its outcome."""
        before = self.found.get(pattern)
        self.found[pattern] = Finding(
            pattern, f"{before.role}, {role}" if before else role, before.why if before else why
        )

    def check(self, head: str, text: str) -> None:
        self.comments[head] = f"{CHECK} {text}"

    def name(self, code: str) -> str:
        """Return a column name for a code: its description, or its own most telling part."""
        pieces = code.removesuffix(ANY).strip("/").split(SEPARATOR)
        telling = [one for one in pieces[1:] if not re.fullmatch(r"[\d.]*", one)]
        own = telling[0] if telling and not pieces[1].isdigit() else ""
        words = parts(own or self.descriptions.get(code) or " ".join(pieces)) or ["column"]
        taken, wanted = self.sections["source.columns"], "_".join(words[:4])
        numbered = (f"{wanted}_{number}" for number in range(2, len(taken) + 3))
        return next(name for name in (wanted, *numbered) if name not in (*taken, "time", "outcome"))


def is_data_set(source: Any) -> bool:
    """Whether a source is the folder of a MEDS data set."""
    given = source[0] if isinstance(source, list | tuple) and len(source) == 1 else source
    return isinstance(given, str | Path) and bool(event_files(Path(given)))


def draft_events(source: Any) -> tuple[str, tuple[Finding, ...], str]:
    """Return the text of a draft, what codes were taken for, and what is still to be decided."""
    root = Path(source[0] if isinstance(source, list | tuple) else source)
    path = max(event_files(root), key=lambda file: file.stat().st_size)
    events = _first_events(path)
    draft = _Draft(_count(events), _descriptions(path))
    draft.sections |= {"source": {"format": MEDS}, "source.columns": {}}
    _episodes(draft)
    _outcomes(draft)
    _static(draft)
    _actions(draft, events)
    _states(draft, events)
    draft.sections["problems"] = PROBLEMS
    draft.check("[problems]", "what to do with episodes that lack an outcome, a step or a value")
    wrong = _try(draft, path)
    sections = {key: part for key, part in draft.sections.items() if part}
    about = (
        f"A draft of a study file for {root}, guessed from {len(events):,} events of {path.name}."
    )
    text = f"{comment_lines(about)}\n# Check every section, first the lines with {CHECK}\n\n"
    text += write_toml(sections, draft.comments)
    if wrong:
        text += f"\n# {CHECK} reading {path.name} with this draft finds:\n{comment_lines(wrong)}\n"
    return text, tuple(draft.found.values()), wrong


def _first_events(path: Path) -> pd.DataFrame:
    """Return the first events of a file, of whole subjects."""
    columns = [name for name in check_file(path, ()) if name != "text_value"]
    batches, rows = [], 0
    with opened(path) as (file, _):
        total = file.metadata.num_rows
        for batch in file.iter_batches(PIECE, columns=columns):
            batches.append(batch)
            rows += len(batch)
            if rows >= ROWS:
                break
    events = pa.Table.from_batches(batches).to_pandas()
    if rows < total:
        events = events[events.subject_id != events.subject_id.iloc[-1]]
    events["code"] = events.code.astype(str)
    if "numeric_value" not in events:
        events["numeric_value"] = np.nan
    return events


def _count(events: pd.DataFrame) -> pd.DataFrame:
    """Count events and subjects by code; the most frequent code first."""
    by = events.groupby("code", sort=True)
    counted = pd.DataFrame(
        {
            "events": by.size(),
            "subjects": by.subject_id.nunique(),
            "numbers": by.numeric_value.count(),
            "times": by.time.count(),
        }
    )
    return counted.sort_values(["subjects", "events"], ascending=False, kind="stable")


def _descriptions(path: Path) -> dict[str, str]:
    listing = root_of(path) / CODES
    if not listing.exists():
        return {}
    with explained(listing):
        table = pq.read_table(listing)
    if "description" not in table.column_names:
        return {}
    pairs = zip(table["code"].to_pylist(), table["description"].to_pylist(), strict=True)
    return {code: text for code, text in pairs if text}


def _patterns(draft: _Draft, word: str, others: list[str]) -> list[str]:
    """Return patterns of the codes whose first part has a word, the most frequent first.

    Without any, of those whose first part has the other words and no more.
    """
    said = {code: parts(code.split(SEPARATOR)[0]) for code in draft.codes.index}
    named = [code for code, words in said.items() if word in words]
    named = named or [code for code, words in said.items() if words == others]
    heads = [
        code.split(SEPARATOR)[0] + SEPARATOR + ANY if SEPARATOR in code else code for code in named
    ]
    return list(dict.fromkeys(heads))


def _episodes(draft: _Draft) -> None:
    """Name the codes of admission and discharge; those of intensive care if there are any."""
    source = draft.sections["source"]
    starts = _patterns(draft, "admission", ["visit"])
    ends = _patterns(draft, "discharge", ["visit", "end"])
    for start in sorted(starts, key=lambda one: "icu" not in parts(one)):
        same = [end for end in ends if parts(end)[0] == parts(start)[0]] or ends[:1]
        if same:
            source["start"], source["end"] = start, same[0]
            draft.take(start, "start", "an admission begins an episode")
            draft.take(same[0], "end", "its discharge ends it")
            others = [one for one in starts if one != start]
            more = f"; other admissions: {listed(others)}" if others else ""
            draft.check("[source]", f"an episode is a stay from {start} to {same[0]}{more}")
            draft.sections["words"] = {"episode": "stay"}
            return
    draft.check("[source]", "no codes of admission and discharge: an episode is a whole subject")
    draft.sections["words"] = {"episode": "patient"}


def _outcomes(draft: _Draft) -> None:
    """Take death and discharge for outcomes, death first."""
    known = draft.codes.index
    died = [code for code in known if code == DEATH]
    end = draft.sections["source"].get("end", "").removesuffix(ANY)
    left = [code for code in known if end and code.startswith(end)]
    died += [code for code in left if meaning(code.removeprefix(end)) < 0]
    left = [code for code in left if code not in died]
    outcomes, sections = {}, {}
    for name, codes, reward in (("died", died, -1.0), ("discharged", left, 1.0)):
        if codes:
            outcomes[name] = codes
            sections[name] = {"reward": reward} | ({"bad": True} if reward < 0 else {})
            draft.check(place("outcome", name), "the reward is a guess")
    for name, codes in outcomes.items():
        for code in codes:
            draft.take(code, f"outcome {name}", "by its name")
    draft.sections["source.outcomes"] = outcomes
    draft.check("[source.outcomes]", "if an episode has several, the first listed here counts")
    draft.sections["outcome"] = sections


def _static(draft: _Draft) -> None:
    """Show what has no time: it was always known."""
    codes = draft.codes
    fixed = codes[(codes.times == 0) & (codes.numbers == 0)].index
    heads = dict.fromkeys(
        code.split(SEPARATOR)[0] + SEPARATOR + ANY for code in fixed if SEPARATOR in code
    )
    sections = {}
    for pattern in list(heads)[:SIDES]:
        name = _slug(draft, pattern)
        draft.sections["source.columns"][name] = pattern
        sections[name] = {"static": True}
        draft.take(pattern, f"side {name}", "it has no time, so it never changes")
    draft.sections["side"] = sections


def _slug(draft: _Draft, pattern: str) -> str:
    return draft.name(pattern.removesuffix(ANY).removesuffix(SEPARATOR))


def _actions(draft: _Draft, events: pd.DataFrame) -> None:
    """Take the drug that most subjects get for the action."""
    free = [code for code in draft.codes.index if code not in draft.found]
    drugs = [c for c in free if sounds(c, "drug") or set(GIVEN) & set(parts(c))]
    sections = {}
    for code in drugs[:ACTIONS]:
        name, row = draft.name(code), draft.codes.loc[code]
        numbers = _values(events, code)
        positive = numbers[numbers > 0]
        if row.numbers > row.events / 2 and len(positive):
            draft.sections["source.columns"][name] = code
            cuts = sorted(
                {_rounded(float(positive.min()) / 2), _rounded(float(np.median(positive)))}
            )
            names = ["none", "low", "high"] if len(cuts) == 2 else ["none", "some"]
            sections[name] = {"cuts": cuts, "names": names}
        else:
            draft.sections[f"source.columns.{name}"] = {"yes": [code]}
            sections[name] = {"levels": ["no", "yes"]}
        others = f"; others: {listed(drugs[ACTIONS:])}" if drugs[ACTIONS:] else ""
        draft.take(code, f"action {name}", f"sounds like a drug; {row.subjects} subjects have it")
        draft.check(place("action", name), f"taken for the action by its name{others}")
    draft.sections["action"] = sections


def _states(draft: _Draft, events: pd.DataFrame) -> None:
    """Take the numbers that most subjects have for the state."""
    codes = draft.codes
    free = codes[(codes.numbers > codes.events / 2) & (codes.times > 0)].index
    free = [code for code in free if code not in draft.found]
    states, missing, gaps = {}, {}, []
    for code in free[:STATES]:
        numbers = _values(events, code)
        cuts = sorted({_rounded(float(cut)) for cut in np.quantile(numbers, [1 / 3, 2 / 3])})
        name = draft.name(code)
        draft.sections["source.columns"][name] = code
        states[name] = {"cuts": cuts}
        missing[name] = {"fill": _rounded(float(np.median(numbers)))}
        row = codes.loc[code]
        draft.take(code, f"state {name}", f"a number that {row.subjects} subjects have")
        draft.check(place("state", name), "the cuts are thirds of the events; normal is missing")
        draft.check(place("missing", name), "the median, where there is no value yet")
        gaps.append(_gap(events, code))
    left = free[STATES:]
    if left:
        draft.check("[source.columns]", f"numbers that were left out: {listed(left)}")
    hours = float(np.median(gaps)) if gaps else 4.0
    every = next((step for longest, step in STEPS if hours <= longest), STEPS[-1][1])
    draft.sections["time"] = {"every": every}
    draft.check("[time]", f"values of the state are typically {text_of(round(hours, 1))}h apart")
    draft.sections["state"], draft.sections["missing"] = states, missing


def _values(events: pd.DataFrame, code: str) -> Any:
    numbers = events.numeric_value[events.code == code].to_numpy(np.float64)
    return numbers[np.isfinite(numbers)]


def _gap(events: pd.DataFrame, code: str) -> float:
    """Return the median time between two events with a code of one subject, in hours."""
    mine = events[(events.code == code) & events.time.notna()]
    apart = mine.groupby("subject_id").time.diff().dt.total_seconds() / 3600
    apart = apart[apart > 0]
    return float(apart.median()) if len(apart) else 4.0


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")


def _try(draft: _Draft, path: Path) -> str:
    """Read the file with the draft, and add the horizon; return what is wrong."""
    content = {"columns": {}} | draft.sections
    columns = {name: part for name, part in content.items() if name.startswith("source.columns.")}
    source = content["source"] | {"outcomes": content["source.outcomes"]}
    source["columns"] = content["source.columns"] | {
        name.split(".")[2]: part for name, part in columns.items()
    }
    kept = {key: part for key, part in content.items() if part and "." not in key}
    try:
        horizon = read_log(path, read_study(kept | {"source": source})).episodes.horizon
    except ValueError as error:
        return str(error)
    draft.sections["evaluation"] = {"horizon": horizon, "discount": 1.0, "planning_discount": 0.99}
    draft.check("[evaluation]", f"the longest episode of {path.name} has {horizon} steps")
    return ""
