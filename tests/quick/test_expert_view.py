"""The experts' view of an audit: which answers count, returns of outcomes, and its words."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from butfor.audit.experts import (
    Answers,
    NoEstimateError,
    outcome_returns,
    read_everyone,
    view_answers,
)
from butfor.present.experts import experts_view, flags_alone
from tests.audits import sepsis_audit
from tests.review_site import small_audit

AUDIT, LARGER = small_audit(), sepsis_audit(150)
DRAWN = np.flatnonzero((AUDIT.episodes["rank"] > 0) | AUDIT.episodes["control"])


def view(case, chance, needed=1, audit=AUDIT, interval="anytime"):
    answers = Answers(np.array(case), np.array(chance, float).reshape(-1, 3), needed)
    table = read_everyone(audit, None)
    return view_answers(table, audit.meta, answers, interval=interval, confidence=0.95)


def everyone(chance, **options):
    return view(DRAWN, np.tile(chance, (len(DRAWN), 1)), **options)


def test_a_case_counts_once_it_has_its_answers_and_later_ones_do_not_change_it():
    # 7 has two answers third, 5 has them fifth; 3 has one; the third answer about 7 comes too late
    case = np.array([5, 7, 7, 3, 5, 7])
    chance = np.array([[1.0, 0], [0.2, 0.8], [0.4, 0.6], [0, 1], [np.nan, np.nan], [1, 0]])
    cases, means = Answers(case, chance, 2).complete()
    assert cases.tolist() == [7, 5]
    np.testing.assert_allclose(means, [[0.3, 0.7], [1.0, 0.0]])
    assert Answers(case, chance, 4).complete()[0].tolist() == []


def test_returns_are_exact_if_rewards_come_only_at_ends():
    returns, exact = outcome_returns(AUDIT.episodes, AUDIT.meta)
    assert returns.tolist() == [-1, 1, 0]
    assert exact
    parameters = AUDIT.meta.parameters.model_copy(update={"discount": 0.9})
    assert not outcome_returns(
        AUDIT.episodes, AUDIT.meta.model_copy(update={"parameters": parameters})
    )[1]


def test_returns_are_means_if_rewards_come_on_the_way_and_rewards_where_nobody_had_an_outcome():
    table = pd.DataFrame(
        {
            "observed_outcome": ["died", "died", "still in ICU"],
            "observed_return": [-1.5, -1.0, 0.25],
        }
    )
    returns, exact = outcome_returns(table, AUDIT.meta)
    assert returns.tolist() == [-1.25, 1.0, 0.25]
    assert not exact


def test_experts_who_agree_with_the_model_give_its_value():
    model = AUDIT.episodes[["p_died", "p_discharged", "p_none"]].to_numpy()[DRAWN]
    found = view(DRAWN, model, interval="fixed")
    assert found.value == pytest.approx(found.model)
    assert found.chances["value"].tolist() == pytest.approx(found.chances["model"].tolist())
    assert found.complete
    assert found.flagged == 6
    assert found.observed == pytest.approx(AUDIT.episodes["observed_return"].mean())


def test_the_words_of_a_complete_review():
    found = everyone([1, 0, 0], interval="fixed")
    told = experts_view(found, AUDIT)
    model, observed = f"{found.model:+.2f}", f"{found.observed:+.2f}"
    # all answers are the same, but the model's predictions differ within strata
    assert told["sentences"][0].startswith(
        "After 6 patients drawn at random and 6 flagged ones, the reviewers put the policy at −"
    )
    assert f"; the model says {model}; observed {observed}." in told["sentences"][0]
    assert told["sentences"][0].endswith("it does not cover what they misjudge together.")
    assert told["sentences"][1] == "The interval lies below what was observed."
    assert [row[0] for row in told["table"]] == ["Outcome", "died", "discharged", "still in ICU"]
    assert told["table"][1][3] == "over 99.9%"
    assert "The flagged patients had all died; they can only show benefit." in told["notes"]


def test_the_words_of_a_review_that_goes_on():
    flagged = np.flatnonzero(AUDIT.episodes["rank"] > 0)
    told = experts_view(view(flagged, np.tile([0, 0, 1], (6, 1)), needed=1), AUDIT)
    assert "no randomly drawn patient has an answer" in told["sentences"][0]
    assert told["sentences"][1] == "6 patients are still to be read."
    assert told["numbers"]["value"] is None
    controls = np.setdiff1d(DRAWN, flagged)
    told = experts_view(view(controls, np.tile([0, 0, 1], (6, 1)), needed=1), AUDIT)
    assert "no flagged patient has an answer" in told["sentences"][0]
    mixed = np.append(flagged[:1], controls)
    part = view(mixed, np.tile([0.3, 0.6, 0.1], (7, 1)))
    told = experts_view(part, AUDIT)
    assert "and 1 flagged one, the reviewers" in told["sentences"][0]
    assert told["sentences"][1].startswith("The interval includes what was observed.")
    assert told["sentences"][1].endswith("; 5 patients are still to be read.")
    assert "may be watched" in told["notes"][0]


def test_what_nobody_can_tell_is_said():
    chance = np.tile([0.3, 0.6, 0.1], (len(DRAWN), 1))
    chance[-1] = np.nan
    found = view(DRAWN, chance, interval="fixed")
    assert found.widest[0] < found.low or found.widest[1] > found.high
    told = experts_view(found, AUDIT)
    assert "Nobody could tell for 1 patient more." in " ".join(told["notes"])
    assert told["table"][0][-1] == "With “cannot tell”"


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        (["died"] * 6, "The flagged patients had all died; they can only show benefit."),
        (
            ["discharged"] * 6,
            "The flagged patients all had one outcome (discharged); they can only show harm.",
        ),
        (
            ["died"] * 4 + ["still in ICU"] * 2,
            "What happened to the flagged patients: 4 died, 2 still in ICU; they were chosen by "
            "the model and do not represent the others.",
        ),
    ],
)
def test_the_flagged_alone(outcomes, words):
    table = AUDIT.episodes.copy()
    table.loc[table["rank"] > 0, "observed_outcome"] = outcomes
    found = everyone([1, 0, 0])
    assert flags_alone(found, replace(AUDIT, episodes=table), "patients") == words


def test_an_audit_without_a_design_is_refused():
    old = replace(AUDIT, meta=AUDIT.meta.model_copy(update={"design": None}))
    with pytest.raises(NoEstimateError, match="no sampling design"):
        read_everyone(old, None)


# ------------------------------------------------------------------------------- and the verdict


def three(rng, like, seconds):
    """What three reviewers of every case say, who answer by chance or nearly like the model."""
    table = read_everyone(LARGER, None)
    case = np.repeat(np.flatnonzero((table["rank"] > 0) | table["control"]), 3)
    model = table[["p_died", "p_discharged", "p_none"]].to_numpy()[case]
    chance = rng.dirichlet(np.ones(3), len(case))
    chance = 0.95 * model + 0.05 * chance if like else chance
    answers = Answers(case, chance, 3, seconds)
    return view_answers(table, LARGER.meta, answers, interval="anytime", confidence=0.95)


def test_reviewers_who_type_at_random_do_not_enter_the_verdict():
    found = three(np.random.default_rng(0), like=False, seconds=1.0)
    assert found.agreement.low < 0.4
    said = LARGER.conclude(found.reviewed)
    assert "The reviewers do not agree enough to say (intraclass correlation" in said.sentence
    assert f"{found.agreement.low:+.2f}".replace("-", "−") in said.sentence
    assert "median time of a case 1 s)" in said.sentence
    assert "reviewers" not in (*said.checks, said.reason)
    assert (said.light, said.reason) == (LARGER.conclusion.light, LARGER.conclusion.reason)
    assert any(
        "not enough for the verdict" in note for note in experts_view(found, LARGER)["notes"]
    )


@pytest.mark.parametrize(("seconds", "counts"), [(10.0, True), (9.9, False), (np.nan, False)])
def test_reviewers_who_agree_and_take_their_time_enter_it(seconds, counts):
    found = three(np.random.default_rng(0), like=True, seconds=seconds)
    assert found.agreement.low > 0.4
    sentence = LARGER.conclude(found.reviewed).sentence
    assert ("Reviewers expect" in sentence) == counts
    assert ("do not agree enough" in sentence) == (not counts)
    assert any("not enough for" in n for n in experts_view(found, LARGER)["notes"]) == (not counts)


def test_without_a_correlation_they_do_not_enter_it_either():
    found = everyone([0.5, 0.3, 0.2])  # of each case one answer
    assert found.agreement.low is None
    sentence = AUDIT.conclude(found.reviewed).sentence
    assert "(intraclass correlation unknown, median time of a case unknown)" in sentence
