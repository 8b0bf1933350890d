"""Observed is what was recorded; what the model adds to records that stop early is told apart."""

import io
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import butfor as bf
from butfor.audit.audit import Audit
from butfor.cli.summary import audit_as_json, print_audit
from butfor.evaluate.bootstrap import resample_weights
from butfor.evaluate.estimators.table import CONTINUED, OBSERVED, compared_with
from butfor.models.planning import state_values
from butfor.present.report.estimates import estimates_section
from butfor.present.stays import Stays
from butfor.replay.usual import MOSTLY
from tests.slow.test_censored import lose, tabular_case

ADDED = ["usual_return", "recorded_share"]


@cache
def audited(lost=True):
    """An audit of a log of which many episodes are lost, or none, and its question."""
    log = tabular_case()[0]
    log = lose(log) if lost else log
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rewards vary
        model = bf.fit_mdp(log)
    target = bf.policy_iteration(model, discount=0.9)
    replay = bf.Replay(log, model, 0.5 * np.asarray(target) + 0.5 / log.n_actions)
    return bf.run_audit(replay, draws=1), replay


def rows(audit):
    return audit.estimates.set_index("estimator")


def as_before(audit):
    """The audit as version 0.2.0 wrote it: what the model continues went by the name of observed.

    The recorded returns were not kept.
    """
    kept = audit.estimates[audit.estimates["estimator"] != OBSERVED]
    pieces = audit.decomposition
    return replace(
        audit,
        meta=audit.meta.model_copy(update={"usual_chances": None}),
        estimates=kept.assign(estimator=kept["estimator"].replace(CONTINUED, OBSERVED)),
        episodes=audit.episodes.assign(observed_return=audit.episodes["usual_return"]).drop(
            columns=ADDED
        ),
        decomposition=pieces.assign(observed_mean=pieces["usual_mean"]).drop(columns="usual_mean"),
    )


def printed(audit, **options):
    file = io.StringIO()
    print_audit(Console(width=200, file=file), audit, **options)
    return file.getvalue()


def test_observed_is_the_mean_of_what_was_recorded():
    audit, replay = audited()
    found = rows(audit)["value"]
    assert found[OBSERVED] == pytest.approx(replay.log.returns(1.0).mean(), abs=1e-12)
    assert found[CONTINUED] == pytest.approx(replay.usual_return.mean(), abs=1e-12)
    assert abs(found[CONTINUED] - found[OBSERVED]) > 0.1


def test_both_are_told_wherever_one_was():
    audit, _ = audited()
    both = rows(audit).loc[[OBSERVED, CONTINUED], "value"]
    words = [f"{value:.2f}".replace("-", "−") for value in both]
    section = estimates_section(Stays(audit))
    for place in (
        repr(audit),
        audit.conclusion.sentence,
        printed(audit),
        str(section["table"]),
        str(section["spec"]),
    ):
        assert all(word in place or word.replace("−", "-") in place for word in words), place
    for_machines = {row["estimator"]: row["value"] for row in audit_as_json(audit, [])["estimates"]}
    assert [for_machines[name] for name in both.index] == both.tolist()
    assert "dashed line: what happened, continued." in section["caption"].lower()
    assert "the others count it as 0" not in " ".join(audit.meta.warnings)


def test_differences_and_pieces_are_from_what_the_model_continues():
    audit, replay = audited()
    episodes, pieces = audit.episodes, audit.decomposition
    change = episodes["expected_return"] - episodes["usual_return"]
    np.testing.assert_allclose(episodes["difference"], change, rtol=0, atol=1e-12)
    np.testing.assert_allclose(episodes["observed_return"], replay.log.returns(1.0), atol=1e-12)
    whole = pieces[pieces["by"] == "all"].iloc[0]
    means = (episodes["observed_return"].mean(), episodes["usual_return"].mean())
    assert (whole["observed_mean"], whole["usual_mean"]) == pytest.approx(means, abs=1e-12)
    assert whole["difference"] == pytest.approx(change.mean(), abs=1e-12)


def test_the_recorded_share_is_that_of_the_expected_steps():
    audit, replay = audited()
    log, model = replay.log, replay.mdp
    ones = replace(model, reward=np.ones_like(model.reward))  # a step is worth 1
    for row, one in zip(audit.episodes.itertuples(), range(len(log)), strict=True):
        steps, left = float(log.lengths[one]), replay.horizon - int(log.lengths[one])
        if replay.stopped[one] and left:
            last = log.next_state[log.offsets[one + 1] - 1]
            steps += state_values(ones, replay.behavior_table, horizon=left)[last]
        assert row.recorded_share == pytest.approx(log.lengths[one] / steps, abs=1e-9)


def test_where_little_was_recorded_the_row_says_how_much():
    audit, _ = audited()
    known = audit.flagged["recorded_share"].head(10)
    assert (known < MOSTLY).any()
    shown = printed(audit, verbose=True).partition("with the largest change")[2]
    for identifier, share in zip(audit.flagged["id"].head(10), known, strict=True):
        (line,) = (line for line in shown.splitlines() if line.split()[:1] == [str(identifier)])
        assert (f" {100 * share:.0f}%   " in line) == (share < MOSTLY), line
        told = Stays(audit).one(identifier)
        assert ("was recorded for" in told["caveat"]) == (share < MOSTLY)
    assert "of its steps were recorded" in rows(audit).loc[CONTINUED, "warning"]


def test_the_interval_of_the_second_includes_the_learning_of_the_model():
    audit, replay = audited()
    row, n = rows(audit).loc[CONTINUED], len(replay)
    resampled = resample_weights(n, 1000, 0) @ replay.usual_return / n
    low, high = np.quantile(resampled, [0.025, 0.975])
    assert row["low"] < row["value"] < row["high"]
    assert row["high"] - row["low"] > 1.1 * (high - low)


def test_without_lost_episodes_there_is_one_row_and_no_further_column():
    audit, replay = audited(lost=False)
    assert CONTINUED not in rows(audit).index
    assert not set(ADDED) & set(audit.episodes)
    assert "usual_mean" not in audit.decomposition
    assert "ontinue" not in printed(audit, verbose=True)
    assert compared_with(rows(audit).index) == OBSERVED
    np.testing.assert_array_equal(replay.usual_return, replay.observed_return)


def test_outcomes_are_told_although_some_episodes_are_lost():
    audit, replay = audited()
    usual = pd.Series(audit.meta.usual_chances, audit.meta.outcome_names)
    np.testing.assert_allclose(usual, replay.usual.probability.mean(axis=0), atol=1e-12)
    assert usual.sum() == pytest.approx(1.0)
    assert f"instead of {100 * usual['end 1']:.0f}" in audit.conclusion.sentence


@pytest.mark.parametrize("lost", [True, False])
def test_captions_of_lists_say_what_differences_are_from(tmp_path, lost):
    audit, _ = audited(lost)
    page = bf.write_report(audit, tmp_path / "report.html").read_text(encoding="utf-8")
    continued = ", as the model continues it" * lost
    assert f"under the policy minus what happened{continued}. Worst" in page
    assert Stays(audit).compared == f"what happened{continued}"  # which the review's list says


def test_one_lost_episode_of_many_takes_no_outcome_from_the_verdict():
    log = tabular_case()[0]
    some = int(np.flatnonzero(log.lengths > 1)[0])
    log = log.cut(np.where(np.arange(len(log)) == some, 1, log.horizon))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rewards vary
        replay = bf.Replay(log, bf.fit_mdp(log), np.full((4, log.n_actions), 1 / log.n_actions))
    assert replay.stopped.sum() == 1
    sentence = bf.run_audit(replay, draws=1).conclusion.sentence
    assert all(name in sentence for name in ("end 0", "end 1"))
    assert "of 100 episodes" in sentence


def test_an_audit_of_version_0_2_0_has_one_row_by_its_true_name(tmp_path):
    audit, _ = audited()
    old = as_before(audit)
    old.save(tmp_path / "old")
    found = Audit.load(tmp_path / "old")
    assert OBSERVED not in rows(found).index
    assert rows(found).loc[CONTINUED, "value"] == rows(audit).loc[CONTINUED, "value"]
    assert found.episodes["observed_return"].isna().all()
    np.testing.assert_array_equal(found.episodes["usual_return"], audit.episodes["usual_return"])
    assert "Observed, continued" in printed(found)
    assert "the model continues records" in found.conclusion.sentence
    assert (tmp_path / "report.html") == bf.write_report(found, tmp_path / "report.html")
    again = Audit.load(found.save(tmp_path / "again"))
    pd.testing.assert_frame_equal(again.episodes, found.episodes)


def test_who_asks_for_what_was_observed_gets_both(tmp_path):
    _, replay = audited()
    table = bf.estimate_values(replay, estimators=["Observed", "CF"], resamples=5)
    assert table["estimator"].tolist() == [OBSERVED, CONTINUED, "CF"]
    audit = bf.run_audit(replay, estimators=["WIS", "CF"], draws=0, resamples=5)
    again = Audit.load(audit.save(tmp_path / "audit"))
    pd.testing.assert_frame_equal(again.decomposition, audit.decomposition)
