"""Whom to review: strata, how many controls each has, and who they are."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, hypergeom

import butfor as bf
from butfor.audit.audit import Audit
from butfor.audit.drawing import drawing_order, log_digest
from butfor.audit.run import run_audit
from butfor.audit.sampling import (
    Others,
    cells_of,
    count_sizes,
    draw_controls,
    find_thirds,
    most_flags,
    review_total,
)
from butfor.audit.settings import AuditSettings
from butfor.random import episode_keys, scramble

NAMES = ["died", "discharged", "in ICU"]
CUTS = (0.5, 1.0)


def others_of(cell, keys, place=None):
    cell = np.asarray(cell, dtype=np.int64)
    places = np.arange(len(cell)) if place is None else place
    return Others(np.bincount(cell, minlength=9), places, cell, np.asarray(keys, dtype=np.uint64))


def draw(cell, keys, flagged=(0, 0, 0), size=40):
    counts = np.array(flagged, dtype=np.int64)
    return draw_controls(others_of(cell, keys), counts, names=NAMES, cuts=CUTS, size=size, seed=0)


def numbers(design):
    return [(s.outcome, s.third, s.episodes, s.drawn) for s in design.strata]


@pytest.fixture(scope="module")
def problem():
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy("icml2019"), 300, seed=0)
    log = log.hide("glucose", "diabetes")
    model = bf.fit_mdp(log)
    return log, model, bf.policy_iteration(model).table


@pytest.fixture(scope="module")
def audit(problem):
    return run_audit(*problem, draws=1, seed=1, estimators=["Observed"])


def test_by_default_at_least_forty_controls_and_as_many_as_flags():
    assert [review_total(flags, None) for flags in (0, 5, 40, 60)] == [40, 45, 80, 120]
    assert [most_flags(flags, None) for flags in (0, 5, 40, 60)] == [0, 5, 40, 60]


def test_at_most_half_of_the_review_is_flagged_but_at_least_one():
    assert [most_flags(40, size) for size in (0, 1, 2, 7, 80, 200)] == [0, 1, 1, 3, 40, 40]
    assert most_flags(0, 1) == 0


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "Nothing is flagged: no episode is to be reviewed"),
        (1, "The only episode to review is flagged"),
        (9, "4 of the 9 episodes to review are flagged"),
        (80, ""),
        (None, ""),
    ],
)
def test_the_audit_says_that_the_size_of_the_review_limits_flags(problem, size, words):
    found = run_audit(*problem, draws=0, review_size=size, estimators=["Observed"])
    told = [note for note in found.meta.warnings if "--review-size" in note]
    assert len(told) == bool(words)
    assert all(note.startswith(words) for note in told)


def test_two_of_each_stratum_and_the_rest_in_proportion():
    """60, 30 and 9 episodes, and one alone: 2 + 2 + 2 + 1, and 13 more, in proportion.

    Quotients size / (2 drawn + 1) from (2, 2, 2, 1) on: 12, 6, 1.8 and nothing left of the last. 60
    gets all with a quotient above that of the 20th control: 60/5, 60/7, … and 30 gets 30/5, …. Of
    20 - 2 - 1 = 17, shares of 60 : 30 are 11.3 and 5.7, so 11 and 6.
    """
    cell = np.repeat([0, 1, 3, 8], [60, 30, 9, 1])
    design, drawn = draw(cell, np.arange(100), size=20)
    assert numbers(design) == [
        (None, None, 0, 0),
        ("died", 1, 60, 11),
        ("died", 2, 30, 6),
        ("discharged", 1, 9, 2),
        ("in ICU", 3, 1, 1),
    ]
    # the lowest keys of each stratum
    assert sorted(drawn) == [*range(11), *range(60, 66), 90, 91, 99]


def test_some_controls_are_like_the_flagged():
    """30 of 40 flagged died: at least 8 controls did, though only 20 of 1020 others died."""
    cell = np.repeat([2, 3], [20, 1000])
    design, _ = draw(cell, np.arange(1020), flagged=(30, 10, 0), size=80)
    assert numbers(design) == [
        (None, None, 40, 40),
        ("died", 3, 20, 8),
        ("discharged", 1, 1000, 32),
    ]
    alone, _ = draw(cell, np.arange(1020), size=40)
    assert numbers(alone)[1] == ("died", 3, 20, 2)


@pytest.mark.parametrize(
    ("size", "strata"),
    [(18, 9), (17, 3), (6, 3), (5, 1), (2, 1), (1, 1), (0, 1)],
)
def test_strata_are_coarser_where_two_controls_each_would_be_too_many(size, strata):
    design, drawn = draw(np.repeat(np.arange(9), 10), np.arange(90), size=size)
    assert len(design.strata) == strata + 1
    assert sum(s.drawn for s in design.strata) == len(drawn) == size
    assert sum(s.episodes for s in design.strata) == 90


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40), min_size=9, max_size=9),
    flagged=st.lists(st.integers(0, 30), min_size=3, max_size=3),
    extra=st.integers(0, 60),
)
def test_every_stratum_has_enough_and_none_has_more_than_it_has(sizes, flagged, extra):
    cell = np.repeat(np.arange(9), sizes)
    design, drawn = draw(cell, episode_keys(0, np.arange(len(cell)), "t"), flagged, 90 + extra)
    first, *strata = design.strata
    assert (first.episodes, first.drawn) == (sum(flagged), sum(flagged))
    assert len(drawn) == len(set(drawn.tolist())) == min(90 + extra - sum(flagged), sum(sizes))
    free = len(drawn)
    for stratum in strata:
        assert min(2, stratum.episodes, free) <= stratum.drawn <= stratum.episodes
        assert stratum.probability == stratum.drawn / stratum.episodes
    found = Counter(cell[drawn].tolist())
    listed = [(NAMES.index(s.outcome) * 3 + s.third - 1, s.drawn) for s in strata if s.third]
    for number, count in listed:
        assert found[number] == count


@settings(deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0.0, 1e-9, 0.3, 0.30001, 1.0, 2.0, 1e30]), min_size=1),
)
def test_thirds_are_those_of_the_sorted_sizes(sizes):
    """The slow twin: the size at the end of each third, and every larger bin after it."""
    cuts = find_thirds(count_sizes(np.array(sizes)))
    ordered = sorted(sizes)
    for number, cut in enumerate(cuts, start=1):
        end = ordered[-(-len(sizes) * number // 3) - 1]
        assert end < cut <= max(end * 1.001, 1e-9)


def test_thirds_count_alike_in_pieces():
    sizes = np.random.default_rng(0).exponential(size=1000)
    pieces = np.split(sizes, [1, 500])
    assert find_thirds(sum(map(count_sizes, pieces))) == find_thirds(count_sizes(sizes))
    third = np.searchsorted(find_thirds(count_sizes(sizes)), sizes, side="right")
    assert np.bincount(third).tolist() == pytest.approx([333, 333, 333], abs=2)


def test_controls_are_the_same_whatever_the_pieces():
    rng = np.random.default_rng(1)
    cell, keys = rng.integers(0, 9, 500), rng.permutation(500)
    whole = draw(cell, keys, (10, 0, 3), 60)
    joined = others_of(cell[:0], keys[:0])
    for mine in np.split(rng.permutation(500), [7, 90, 300]):
        joined = joined.join(others_of(cell[mine], keys[mine], mine)).keep(60)
    assert len(joined.place) <= 9 * 60
    flagged = np.array([10, 0, 3])
    found = draw_controls(joined, flagged, names=NAMES, cuts=CUTS, size=60, seed=0)
    assert found[0] == whole[0]
    assert set(found[1].tolist()) == set(whole[1].tolist())


def too_rare(times, seeds, probability):
    """Whether numbers of draws contradict a probability, false alarm 1e-6 for all together."""
    level = 1e-6 / len(times) / 2
    low, high = binom.ppf(level, seeds, probability), binom.isf(level, seeds, probability)
    return bool((times < low).any() or (times > high).any())


def test_each_episode_is_drawn_as_often_as_its_probability_says():
    cell, flagged, seeds = np.repeat([0, 4], [30, 10]), (0, 24, 0), 2000
    times = np.zeros(40)
    for seed in range(seeds):
        keys = drawing_order(np.arange(40), np.zeros(2, dtype=np.uint64), seed)
        design, drawn = draw(cell, keys, flagged, size=36)
        times[drawn] += 1
    probability = np.repeat([s.probability for s in design.strata[1:]], [30, 10])
    assert not too_rare(times, seeds, probability)
    assert probability[[0, -1]].tolist() == [6 / 30, 6 / 10]
    assert too_rare(times, seeds, np.full(40, 12 / 40))  # as if there were no strata


def hits(audit, order):
    """How many controls somebody finds who knows the strata, and how probable so many are."""
    table, found, chances = audit.episodes.assign(order=order), 0, np.ones(1)
    for number, stratum in enumerate(audit.meta.design.strata[1:], start=1):
        mine = table[(table["stratum"] == number)].sort_values("order")
        found += int(mine["control"].head(stratum.drawn).sum())
        counts = np.arange(stratum.drawn + 1)
        same = hypergeom.pmf(counts, stratum.episodes, stratum.drawn, stratum.drawn)
        chances = np.convolve(chances, same)
    return found, float(chances[found:].sum())


def test_who_is_a_control_does_not_follow_from_what_reviewers_know(problem, audit):
    """They know ids, seed and source, and the episodes that they review, but not the others."""
    log, controls = problem[0], int(audit.episodes["control"].sum())
    order = drawing_order(log.id, log_digest(log, 1), 1)
    assert hits(audit, order) == (controls, pytest.approx(0, abs=1e-6))  # who has the log knows
    unread = np.flatnonzero((audit.episodes["rank"] == 0) & ~audit.episodes["control"])
    reward = log.reward.copy()
    reward[log.offsets[unread[0] + 1] - 1] += 1e-6
    guesses = [
        scramble(episode_keys(1, log.id, "shards")),  # as earlier versions drew
        drawing_order(log.id, np.zeros(2, dtype=np.uint64), 1),
        drawing_order(log.id, log_digest(replace(log, reward=reward), 1), 1),
    ]
    for guess in guesses:
        found, probability = hits(audit, guess)
        assert found < controls / 2
        assert probability > 1e-6


def test_an_audit_says_who_is_reviewed_and_how_probable_that_was(audit):
    table, design = audit.episodes, audit.meta.design
    assert (design.review_size, design.seed) == (80, 1)
    flagged = (table["rank"] > 0).to_numpy()
    assert 0 < flagged.sum() <= 40
    assert (flagged | table["control"]).sum() == 80
    assert (table.loc[flagged, "stratum"] == 0).all()
    assert (table.loc[~flagged, "stratum"] > 0).all()
    for number, stratum in enumerate(design.strata):
        mine = table[table["stratum"] == number]
        assert len(mine) == stratum.episodes
        assert (mine["probability"] == stratum.drawn / stratum.episodes).all()
        if number:
            assert mine["control"].sum() == stratum.drawn
            assert set(mine["observed_outcome"]) == {stratum.outcome}
            sizes = mine["difference"].abs().round(9)
            edges = (0.0, *design.cuts, np.inf)
            assert sizes.between(*edges[stratum.third - 1 :][:2], inclusive="left").all()
    # weights 1 / probability of those reviewed add up to all episodes, stratum by stratum
    read = table[flagged | table["control"]]
    assert (1 / read["probability"]).sum() == pytest.approx(len(table), rel=1e-12)


def test_controls_like_the_flagged_are_a_fifth_of_the_review_of_each_outcome(audit):
    table = audit.episodes
    for outcome in table.loc[table["rank"] > 0, "observed_outcome"].unique():
        mine = table[table["observed_outcome"] == outcome]
        flagged, unflagged = (mine["rank"] > 0).sum(), (mine["rank"] == 0).sum()
        assert mine["control"].sum() >= min(flagged / 4, unflagged)


def test_the_order_of_a_log_does_not_matter(problem):
    """There are no flags, because among equal differences the earlier episode is flagged."""
    log, model, target = problem
    turned = log.select(np.arange(len(log))[::-1])
    one, other = (
        run_audit(each, model, target, flags=0, draws=0, estimators=["Observed"])
        for each in (log, turned)
    )
    assert one.meta.design == other.meta.design
    for column in ("control", "stratum", "probability"):
        ours, theirs = (a.episodes.set_index("id")[column].sort_index() for a in (one, other))
        assert (ours == theirs).all(), column


def test_another_seed_draws_others(problem, audit):
    again = run_audit(*problem, draws=0, seed=2, estimators=["Observed"])
    assert (again.episodes["rank"] == audit.episodes["rank"]).all()
    assert (again.episodes["control"] != audit.episodes["control"]).any()


@pytest.mark.parametrize(
    ("size", "flagged", "drawn"), [(0, 0, 0), (1, 1, 0), (9, 4, 5), (1000, 40, 260)]
)
def test_a_review_has_the_size_asked_for(problem, size, flagged, drawn):
    found = run_audit(*problem, draws=1, review_size=size, estimators=["Observed"])
    assert (found.episodes["rank"] > 0).sum() == found.meta.counts.flagged == flagged
    assert found.episodes["control"].sum() == drawn
    assert found.draws["id"].nunique() == flagged + drawn
    assert found.episodes["probability"].between(0, 1).all()


def test_a_review_size_below_zero_is_refused(problem):
    with pytest.raises(ValueError, match="review_size"):
        run_audit(*problem, review_size=-1)
    with pytest.raises(ValueError, match="review_size"):
        AuditSettings(review_size=-1)


def test_strata_and_design_are_saved(audit, tmp_path):
    loaded = Audit.load(audit.save(tmp_path / "audit"))
    assert loaded.meta.design == audit.meta.design
    for column in ("stratum", "probability"):
        assert (loaded.episodes[column] == audit.episodes[column]).all()


def test_a_log_without_outcomes_has_strata_of_thirds():
    cell = np.repeat(np.arange(3), 10)
    others = Others(np.bincount(cell), np.arange(30), cell, np.arange(30, dtype=np.uint64))
    none = np.zeros(1, dtype=np.int64)
    design, _ = draw_controls(others, none, names=["none"], cuts=CUTS, size=9, seed=0)
    assert numbers(design)[1:] == [("none", third, 10, 3) for third in (1, 2, 3)]


def test_cells_are_outcomes_by_thirds():
    sizes = np.array([0.0, 0.5, 0.99, 1.0, 7.0])
    assert cells_of(np.array([0, 0, 1, 1, 2]), sizes, CUTS).tolist() == [0, 1, 4, 5, 8]
