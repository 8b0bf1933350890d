"""audit_shards: count, learn, judge and gather, shard by shard."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.audit.audit import AUDIT, write_audit
from butfor.audit.folders import Claim, claimed
from butfor.audit.model import digest_of_shards
from butfor.audit.numbers import Numbers, numbers_of
from butfor.audit.run import describe_audit
from butfor.audit.sampling import most_flags, review_total, sample_size
from butfor.audit.settings import LOG, AuditSettings
from butfor.audit.shards.choose import choose
from butfor.audit.shards.coded import side_types
from butfor.audit.shards.count import Counts, count_shard
from butfor.audit.shards.gather import Gathered, ShardSums
from butfor.audit.shards.judge import judge_shard
from butfor.audit.shards.learn import Tally, fit_of, plan_of, rehearse_tally
from butfor.audit.shards.log import Shard, check_alike, find_shards, list_shard
from butfor.audit.shards.packed import reused_memory
from butfor.audit.shards.parts import Part, Parts
from butfor.audit.shards.refit import cross_fit_folds, group_folds
from butfor.audit.shards.setting import Setting, make_setting
from butfor.audit.shards.stitch import divide_ids, stitch_tables
from butfor.audit.shards.workers import Threads, Workers
from butfor.audit.tables import loss_notes, with_credible
from butfor.evaluate.estimate import estimate_sample
from butfor.evaluate.estimators.table import compared_with
from butfor.evaluate.rehearsal import Rehearsal
from butfor.evaluate.wording import plural
from butfor.log.column_rules import column_rules
from butfor.log.fields import place
from butfor.log.left_out import check_ends, check_left_out
from butfor.log.recorded import given_side
from butfor.log.sections import Study
from butfor.log.variables import project
from butfor.models.fit import check_rules
from butfor.types import Progress, enter_stage

ADDED = 16  # counts that are added together: the more, the less often those so far are sorted
LISTED = 5  # shards whose errors are reported in full
MOST_COMPARED = 5_000_000  # ids compared at a time
PASSES = 3  # over all shards: list, count, judge
SUMMARIZED = (
    "Summary detail: there are no credible intervals, no FQE and no interval of MAGIC; intervals "
    "resample about 1000 groups of episodes; cross-fitting replays episodes in one of its splits; "
    "calibration groups are groups of states; factored models lack the checks calibration by "
    "variable, calibration of ends, residual correlation, log score, learners agree and "
    "extrapolation; medians of influence are to a thousandth. For a complete audit use --detail "
    "full, if the log fits in memory."
)


def audit_shards(
    source: Any,
    study: str | Path,
    out: str | Path,
    settings: AuditSettings | None = None,
    *,
    workers: Workers | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Audit a log in summary detail, file by file, and write the audit's folder.

    After the ids of its episodes are listed, every shard is read twice: it is counted, the counts
    of all shards give the model, and its episodes are evaluated. Only a few shards are in memory at
    a time. The tables do not depend on the shards, the threads or the workers; they are in the
    order of ids.

    Parameters
    ----------
    source
        A folder of Parquet or CSV files, one such file, or a list. Each file is a shard, and each
        episode must be in one file only.
    study, settings
        See `audit_log`; clusters and credible intervals are not available.
    workers : optional
        `Threads` of this process, or a Dask `Cluster`.
    resume
        Continue an interrupted run, whose partial results are beside `out`. Files that have changed
        since are read again, and everything that depends on them is computed again.
    overwrite
        Replace an existing audit; its reviews are kept.
    progress : optional
        Called with (done, total) in each stage; a `Stages` is also told their names.
    """
    chosen = AuditSettings() if settings is None else settings
    work = Threads() if workers is None else workers
    with reused_memory(), claimed(out, AUDIT, overwrite=overwrite) as claim:
        parts = partial(Parts.open, claim.goal, resume=resume, overwrite=overwrite)
        _audit_into(claim, parts, source, study, chosen, work, progress)
    return Path(out)


def _audit_into(
    claim: Claim,
    open_parts: Callable[[], Parts],
    source: Any,
    study: str | Path,
    chosen: AuditSettings,
    workers: Workers,
    progress: Progress | None,
) -> None:
    began = time.perf_counter()
    checked = chosen.read_study(study)
    check_early(chosen, checked)
    shards, types = check_alike(find_shards(source), checked)
    parts = open_parts()
    nouns = plural(checked.words.episode)
    run = _Run(parts, shards, workers, progress, nouns)
    cuts = run.list_ids(checked)
    counts = run.count(checked, chosen.seed, side_types(checked, types))
    enter_stage(progress, "Learning the model")
    tally = Tally(counts, checked)
    setting = make_setting(tally, chosen)
    counted = time.perf_counter()
    gathered = run.judge(setting)
    enter_stage(progress, "Estimating the value of the policy")
    sample = ShardSums(gathered, setting, counts.steps, tally.past())
    stored = run.stored(setting)
    spread = sample.spread
    with claim.whole() as folder, ThreadPoolExecutor(1) as pool:
        # whom to review does not depend on the estimates, which are computed meanwhile
        estimating = pool.submit(_estimate, sample, tally, chosen, setting)
        reviewed = choose(
            stored,
            tally.example(),
            flags=most_flags(chosen.flags, chosen.review_size),
            size=review_total(chosen.flags, chosen.review_size),
            sample=sample_size(counts.episodes, chosen.intervals),
            seed=chosen.seed,
            spread=spread,
        )
        enter_stage(progress, f"Bounds of some {nouns}")
        shown = reviewed.show(setting, chosen.draws)
        judged = time.perf_counter()
        question = setting.question
        lost = loss_notes(gathered.sums["averaged"].values()[0] / counts.steps)
        enter_stage(progress, "Writing the audit")
        stitch_tables(folder, stored, cuts, question, shown.table, reviewed.design, progress)
        numbers, rehearsal = estimating.result()
        meta = describe_audit(
            question,
            numbers,
            log=replace(
                question.log,
                side_variables=tally.side_variables,
                side_given=given_side(tally.study),
            ),
            flags=chosen.flags,
            design=reviewed.design,
            draws=chosen.draws,
            drawn=reviewed.drawn,
            seed=chosen.seed,
            digest=digest_of_shards(counts.digest, question),
            credible=None,
            rehearsal=rehearsal,
            seconds={
                "counting": counted - began,
                "judging": judged - counted,
                "all": time.perf_counter() - began,
            },
            record=chosen.record(
                source,
                checked,
                Path(study).read_text(encoding="utf-8"),
                probability=checked.columns.behavior_probability is not None,
                problems=dict(counts.done),
                warnings=[*tally.warnings(), *lost, SUMMARIZED],
            ),
        )
        tables = {
            "estimates": with_credible(numbers.estimates, None),
            "diagnostics": numbers.diagnostics,
            "decomposition": numbers.decomposition,
            **shown.drawn,
        }
        if rehearsal is not None:
            tables["rehearsal"] = rehearsal.table
        policies = {"behavior": question.behavior_table, "target": question.target_table}
        write_audit(folder, tables, question.model, policies, meta)
    parts.remove()


def _estimate(
    sample: ShardSums, tally: Tally, chosen: AuditSettings, setting: Setting
) -> tuple[Numbers, Rehearsal | None]:
    """Return the numbers about all episodes, and the rehearsal of model and policy."""
    crossed = cross_fit_folds(tally, fit_of(tally, chosen), plan_of(tally, chosen), sample)
    fixed = crossed is None or not crossed.learned
    groups = group_folds(tally, sample) if fixed or setting.continued else None
    estimates = estimate_sample(sample, crossed, groups, seed=chosen.seed)
    found = estimates.set_index("estimator")
    rehearsal = rehearse_tally(
        tally,
        chosen,
        horizon=setting.question.horizon,
        observed=float(found.loc[compared_with(found.index), "value"]),
    )
    told = [] if rehearsal is None else [rehearsal.row()]
    return numbers_of(sample, estimates, [sample.calibration(), *told], crossed), rehearsal


class _Run:
    """The shards of a run, and which of their parts are done."""

    def __init__(
        self,
        parts: Parts,
        shards: Sequence[Shard],
        workers: Workers,
        progress: Progress | None,
        nouns: str,
    ) -> None:
        self.parts, self.workers = parts, workers
        self.progress, self.nouns = progress, nouns
        self.shards = list(shards)
        self.total = PASSES * len(shards)
        self.done = 0
        self.context = ""

    def list_ids(self, study: Study) -> list[Any]:
        """Refuse an episode in two shards; return ids that divide the episodes into ranges."""
        enter_stage(self.progress, f"Listing the {self.nouns} of {len(self.shards)} files")
        named = study.model_dump(mode="json", include={"columns", "source"})
        context = json.dumps(named, sort_keys=True)
        for key, ids in self._finish("ids", list_shard, context, {"study": study}):
            self.parts.write_ids(key, ids)
        keys = [shard.key("ids", context) for shard in self.shards]
        sizes: list[int] = []
        cuts = divide_ids(self._read_ids(keys, sizes))
        self._refuse_split(keys, sum(sizes))
        return cuts

    def _read_ids(self, keys: Sequence[str], sizes: list[int]) -> Iterator[NDArray[Any]]:
        """Yield the ids of each shard, and append their number; refuse text in some shards only."""
        text = None
        for shard, key in zip(self.shards, keys, strict=True):
            ids = self.parts.read_ids(key)
            if text is None and len(ids):
                text = ids.dtype == object
            if len(ids) and text != (ids.dtype == object):
                kind = "whole numbers" if text else "text"
                raise ValueError(
                    f"{shard.path}: the ids of episodes are {kind}, unlike those in the files "
                    'before it; write episode_type = "text" in [columns], or convert them'
                )
            sizes.append(len(ids))
            yield ids

    def _refuse_split(self, keys: Sequence[str], episodes: int) -> None:
        """Refuse a log in which an episode is in two shards."""
        parts = -(-episodes // MOST_COMPARED)
        for part in range(parts):
            hashes, owners = [], []
            for number, key in enumerate(keys):
                hashed = pd.util.hash_array(self.parts.read_ids(key), categorize=False)
                mine = hashed[hashed % np.uint64(parts) == part]
                hashes.append(mine)
                owners.append(np.full(len(mine), number))
            together, owner = np.concatenate(hashes), np.concatenate(owners)
            order = np.argsort(together, kind="stable")
            again = np.flatnonzero(together[order][1:] == together[order][:-1])
            for first in again.tolist():
                one, other = sorted(owner[order[first : first + 2]].tolist())
                ids = [set(self.parts.read_ids(keys[n]).tolist()) for n in (one, other)]
                both = sorted(ids[0] & ids[1])
                if one != other and len(both):
                    names = f"{self.shards[one].name} and {self.shards[other].name}"
                    raise ValueError(
                        f"the episode {both[0]} is in two files, {names}, which share {len(both)} "
                        f"episode{'s' if len(both) > 1 else ''}; write each episode into one file"
                    )

    def count(self, study: Study, seed: int, types: dict[str, Any]) -> Counts:
        """Count the shards that are not yet counted, and add up all counts."""
        enter_stage(self.progress, "Counting transitions")
        named = {name: str(kind) for name, kind in types.items()}
        self.context = json.dumps([study.model_dump(mode="json"), seed, named], sort_keys=True)
        shared = {"study": study, "seed": seed, "types": types}
        keys = [shard.key("count", self.context) for shard in self.shards]
        found: list[Counts] = []
        episodes: dict[str, int] = {}
        for key, counts in self._count(keys, shared):
            episodes[key] = counts.episodes
            found.append(counts)
            if len(found) == ADDED:
                found = [found[0].add(*found[1:])]
        total = found[0].add(*found[1:]) if found else None
        if total is None or total.episodes == 0:
            raise ValueError(
                "no usable episode is left in any file; drop less in [problems] of the study"
            )
        self.shards = [s for s, key in zip(self.shards, keys, strict=True) if episodes[key]]
        name = self.shards[0].path + " and the other files" * (len(self.shards) > 1)
        check_ends(total.done, name)
        return replace(total, done=check_left_out(total.done, study.drop_at_most, name))

    def _count(self, keys: Sequence[str], shared: dict[str, Any]) -> Iterator[tuple[str, Counts]]:
        """Yield the key and the counts of each shard: of those already counted, then of others."""
        for key in [key for key in keys if self.parts.has("count", key)]:
            yield key, self.parts.read_counts(key)
        for key, counted in self._finish("count", count_shard, self.context, shared):
            self.parts.write_counted(key, counted)
            yield key, counted.counts

    def _finish(
        self, kind: str, work: Callable[..., Any], context: str, shared: dict[str, Any]
    ) -> Iterator[tuple[str, Any]]:
        """Process the shards that are not yet done; report the errors of all shards together."""
        wrong: list[tuple[Shard, Exception]] = []
        for shard, result in self._work(kind, work, context, shared):
            if isinstance(result, Exception):
                wrong.append((shard, result))
            else:
                yield shard.key(kind, context), result
        if len(wrong) == 1:
            raise wrong[0][1]
        if wrong:
            wrong.sort(key=lambda pair: pair[0].path)
            listed = [str(error) for _, error in wrong[:LISTED]]
            more = [f"… and {len(wrong) - LISTED} more"] if len(wrong) > LISTED else []
            head = f"{len(wrong)} of {len(self.shards)} files cannot be used:"
            raise ValueError("\n".join([head, *listed, *more]))

    def judge(self, setting: Setting) -> Gathered:
        """Judge the shards that are not yet judged, and add up all results."""
        enter_stage(self.progress, f"Replaying {self.nouns}")
        keys = [shard.key("judge", setting.key) for shard in self.shards]
        gathered = Gathered({}, {})
        for key in keys:
            if self.parts.has("judge", key):
                gathered.add(self.parts.read_judged(key))
        shared = {"setting": setting, "folder": self.parts.folder, "counted": self.context}
        for shard, judged in self._work("judge", judge_shard, setting.key, shared):
            if isinstance(judged, Exception):
                raise judged
            self.parts.write_judged(shard.key("judge", setting.key), judged)
            gathered.add(judged)
        return gathered

    def stored(self, setting: Setting) -> list[Part]:
        """Return the tables of all shards after they were judged."""
        folder, counted = self.parts.folder, self.context
        return [
            Part(folder, shard.key("count", counted), shard.key("judge", setting.key))
            for shard in self.shards
        ]

    def _work(
        self, kind: str, work: Callable[..., Any], context: str, shared: dict[str, Any]
    ) -> Iterator[tuple[Shard, Any]]:
        missing = [s for s in self.shards if not self.parts.has(kind, s.key(kind, context))]
        self._tell(len(self.shards) - len(missing))
        for shard, result in self.workers.run(work, missing, shared):
            yield shard, result
            self._tell(1)

    def _tell(self, more: int) -> None:
        self.done += more
        if self.progress is not None:
            self.progress(self.done, self.total)


def check_early(chosen: AuditSettings, study: Study) -> None:
    """Raise the errors that can be found before any file is read."""
    if study.cluster is not None:
        raise ValueError(
            "[cluster]: clusters are fitted to the whole log at once; use --detail full, or write "
            "the cluster of each row into the log"
        )
    named = study.columns
    if chosen.target == LOG and named.target_action is None and named.target_probability is None:
        raise ValueError(
            "--target log: the study names neither target_action nor target_probability in "
            "[columns]; add one of them"
        )
    if not chosen.learned:
        chosen.check_target()
    check_rules(tuple(study.outcomes().values()), chosen.unseen, chosen.prior)
    numbered = list(study.number_columns())
    if numbered and chosen.classifies(study):
        raise ValueError(
            f"[state] {numbered[0]} number: summary detail keeps counts of levels, but a "
            "classifier learns from the numbers of all decisions; use --detail full, remove "
            'number, or set learner = "counts" in [model]'
        )
    for (_, column), rule in column_rules(study).items():
        if rule.median:
            raise ValueError(
                f"{place('missing', column)} fill: the median is that of the whole log; give a "
                "number or a level, or use --detail full"
            )
    names = chosen.noise(study)
    if names and study.columns.state is None:
        project(study.state_variables(), *names)
