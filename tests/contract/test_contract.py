"""The contract of every audit: each table, check and estimate answers the question that was asked.

Over all mechanisms, action noises and kinds of model, the tables of an audit are compared with a
`Replay` of the same question that the audit never saw; and the same log in memory, in one file or
in many gives the same bytes. To add a mechanism, add it to MECHANISMS; a kind of model, to `ask`.
"""

import json
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest

import butfor as bf
import butfor.audit.run
from butfor.audit.files import SCHEMAS
from butfor.audit.flags import first_changes
from butfor.audit.learning import factored_learner
from butfor.audit.settings import MECHANISMS as NAMED
from butfor.audit.settings import AuditSettings
from butfor.audit.source import audit_into
from butfor.evaluate.crossfit import cross_fitted, split_halves
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.table import CROSS_FITTED, ESTIMATORS, compared_with
from butfor.mechanisms.protocol import Compiled
from butfor.random import numbered_keys
from butfor.replay.replay import Replay, as_replay
from tests.builders import DEATH, HOME
from tests.grids import each_value, few
from tests.hidden import random_pomdp

EPISODES, DRAWS, SEED = 40, 2, 3
SPLITS = 3  # into halves; not 10, which takes longer and shows the same
NOISES = ("shared", "fresh")
KINDS = ("tabular", "labels", "factored", "hidden")
PARENTS = {"pulse": ["pulse", "action.dose"], "": ["next.pulse", "action.dose"]}
OPTIONS = ("behavior", "mechanism", "action_noise", "horizon", "discount", "censored")
SAME = ("steps", "draws", "courses", "course_steps")  # tables that both details have in full


@dataclass(frozen=True)
class HalfAndHalf:
    """A mechanism without a kernel: half coupled maximally, half not at all."""

    def counterfactual_rows(self, factual, counterfactual, observed):
        coupled = bf.MaximalCoupling().counterfactual_rows(factual, counterfactual, observed)
        return (coupled + counterfactual) / 2


MECHANISMS = (
    bf.GumbelMax(),
    bf.InverseCDF(),
    bf.MaximalCoupling(),
    bf.Independent(),
    HalfAndHalf(),
)

COMBINATIONS = [
    (mechanism, kind, noise)
    for noise in NOISES
    for mechanism in MECHANISMS
    for kind in KINDS
    if kind != "hidden" or isinstance(mechanism, Compiled)
]


@pytest.fixture(autouse=True)
def few_splits(monkeypatch):
    monkeypatch.setattr("butfor.evaluate.crossfit.SPLITS", SPLITS)


@pytest.fixture(scope="module")
def patients():
    """A log whose state is the pulse and the dose given last; some pairs were never seen.

    A last dose of 2 sends most patients home.
    """
    rng = np.random.default_rng(7)
    lengths = rng.integers(1, 6, EPISODES)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    dose, pulse = rng.integers(3, size=offsets[-1]), rng.integers(5, size=offsets[-1] + EPISODES)
    state, following = [], []
    for i, (start, stop) in enumerate(pairwise(offsets.tolist())):
        given = [0, *dose[start:stop]]  # nothing was given before the first decision
        visits = pulse[start + i : stop + i + 1] * 3 + given
        state.extend(visits[:-1].tolist())
        following.extend(visits[1:].tolist())
    home = rng.random(EPISODES) < np.where(dose[offsets[1:] - 1] == 2, 0.85, 0.2)
    return bf.Episodes.from_arrays(
        state,
        dose,
        following,
        offsets=offsets,
        states=(bf.Variable("pulse", tuple("abcde")), bf.Variable("dose", ("0", "1", "2"))),
        actions=(bf.Variable("dose", ("0", "1", "2")),),
        outcome=np.where(rng.random(EPISODES) < 0.25, -1, home),
        outcomes=(DEATH, HOME),
    )


def learn(log, labels=None):
    model = bf.fit_mdp(log, labels=labels)
    return model, bf.soften(bf.policy_iteration(model.with_labels(None)), 0.4)


def learner(log, kind):
    """Return what learns model and target; with labels noise belongs to the pulse."""
    if kind == "factored":
        plan = factored_learner(log, discount=0.99, parents=PARENTS)
        return lambda part: (lambda model, best: (model, bf.soften(best, 0.05)))(*plan(part))
    labels = log.state_labels("pulse") if kind == "labels" else None
    return lambda part: learn(part, labels)


def ask(patients, kind):
    """Return log, model, target, a behavior other than the estimated one, and what learns."""
    if kind == "hidden":
        model = random_pomdp(np.random.default_rng(3))
        log = bf.hidden.simulate_pomdp(model, np.full((2, 2), 0.5), EPISODES, horizon=5, seed=1)
        target = np.array([[0.9, 0.1], [0.2, 0.8]])
        return log, model, target, np.array([[0.6, 0.4], [0.3, 0.7]]), None
    teach = learner(patients, kind)
    behavior = bf.soften(bf.estimate_behavior(patients), 0.5)
    return patients, *teach(patients), behavior, teach


def options_of(mechanism, action_noise, behavior):
    """A question none of whose options is the default, but for Gumbel-Max and shared noise."""
    return {
        "behavior": behavior,
        "mechanism": mechanism,
        "action_noise": action_noise,
        "horizon": 4,
        "discount": 0.8,
    }


def audit_of(log, model, target, teach, options):
    return bf.run_audit(
        log,
        model,
        target,
        **options,
        learn=teach,
        flags=5,
        review_size=12,
        draws=DRAWS,
        seed=SEED,
        resamples=3,
    )


# ------------------------------------------------------------------- what an audit has to honor


def check_contract(audit, log, model, target, teach, options):
    """Compare an audit with the question, asked without it."""
    replay = Replay(log, model, target, **options).compute()
    check_parameters(audit, options)
    check_episodes(audit, replay)
    check_numbers(audit, replay)
    check_shown(audit, log, model, target, options, replay.counts)
    if teach is not None:
        check_cross_fitted(audit, log, teach, options)


def check_parameters(audit, options):
    told = audit.meta.parameters
    assert told.mechanism == repr(options["mechanism"])
    for name in ("action_noise", "horizon", "discount"):
        assert getattr(told, name) == options[name]
    np.testing.assert_allclose(audit.behavior, options["behavior"], rtol=1e-15)


def check_episodes(audit, replay):
    table, outcomes, steps = audit.episodes, replay.outcomes(), replay.steps()
    expected = {
        "expected_return": outcomes.expected_return,
        "observed_return": outcomes.observed_return,
        "p_death": outcomes.probability[:, 0],
        "p_none": outcomes.probability[:, -1],
        "unsupported": replay.support(),
        "influence": steps.share_about,
        "influence_ends": steps.dies_at,
        "evidence_min": steps.evidence_min,
        "thin_share": steps.thin_share,
        "first_change": first_changes(replay.log, replay.repeats()),
        "low_any": replay.bounds().expected_return[0, :, 0],
        "high_stable": replay.bounds().expected_return[1, :, 1],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(table[name], values, rtol=0, atol=1e-12, err_msg=name)


def check_numbers(audit, replay):
    """The estimates and checks are about the very episodes of the table."""
    table = audit.episodes
    checks = audit.diagnostics.set_index("check")["value"]
    assert checks["influence"] == table["influence"].median()
    if not replay.hidden:
        assert checks["unsupported mass"] == pytest.approx(table["unsupported"].mean(), abs=1e-15)
    values = audit.estimates.set_index("estimator")["value"]
    assert values["CF"] == pytest.approx(table["expected_return"].mean(), abs=1e-12)
    sample = EpisodeColumns(replay, SEED)
    for name in values.index.difference(CROSS_FITTED):
        alone = ESTIMATORS[name](sample, np.ones((1, len(sample))))[0]
        assert values[name] == pytest.approx(alone, abs=1e-12, nan_ok=True), name
    pieces = audit.decomposition.groupby("by")["contribution"].sum()
    gap = values["CF"] - values[compared_with(values.index)]
    np.testing.assert_allclose(pieces, gap, atol=1e-12)


def check_shown(audit, log, model, target, options, counts):
    """Draws, courses and reasons of the episodes to be read are those of the question, alone."""
    shown = ((audit.episodes["rank"] > 0) | audit.episodes["control"]).to_numpy()
    assert 0 < shown.sum() < len(log)
    given = {} if audit.meta.parameters.hidden else {"counts": counts}
    replay = Replay(log.select(np.flatnonzero(shown)), model, target, **options, **given)
    check_draws(audit.draws, replay)
    check_courses(audit.courses, replay)
    walked = replay.steps(probability=True)
    episode, step = np.nonzero(walked.mass > 0)
    assert audit.course_steps["id"].tolist() == replay.log.id[episode].tolist()
    if not replay.hidden:  # there similar past cases come from the episodes asked about
        for name in ("mass", "influence", "evidence", "thin"):
            values = getattr(walked, name)[episode, step]
            np.testing.assert_allclose(audit.course_steps[name], values, atol=1e-14, err_msg=name)
    parts = np.split(replay.contributions(), replay.log.offsets[1:-1])
    weight = replay.discount ** np.arange(replay.horizon)
    for row, part in zip(audit.episodes[shown].itertuples(), parts, strict=True):
        heaviest = int(np.abs(part / weight[: len(part)]).argmax())
        assert row.step_that_matters == (heaviest if row.rank else -1)


def check_draws(table, replay):
    drawn = replay.draws(DRAWS, seed=SEED)
    episode, draw, step = np.nonzero(drawn.state >= 0)
    assert table["id"].tolist() == replay.log.id[episode].tolist()
    assert table["state"].tolist() == drawn.state[episode, draw, step].tolist()
    decided = (table["action"] >= 0).to_numpy()
    at = episode[decided], draw[decided], step[decided]
    assert table["action"][decided].tolist() == drawn.action[at].tolist()
    np.testing.assert_array_equal(table["reward"][decided], drawn.reward[at])


def check_courses(table, replay):
    """At each step every outcome has the probability of having come by then."""
    log, place = replay.log, replay.steps(probability=True).probability
    ends = table[(table["variable"] == "") & (table["world"] == "target")]
    for o, outcome in enumerate(log.outcomes):
        mine = ends[ends["level"] == outcome.name].set_index(["id", "step"])["probability"]
        episode, step = np.nonzero(place[..., log.n_states + o] > 0)
        assert mine.index.tolist() == list(zip(log.id[episode], step, strict=True))
        expected = place[episode, step, log.n_states + o]
        np.testing.assert_allclose(mine, expected, atol=1e-14)
    first = log.state_variables[0]
    seen = table[(table["variable"] == first.name) & (table["world"] == "target")]
    total = seen.groupby(["id", "step"])["probability"].sum()
    mass = pd.Series(
        place[..., : log.n_states].sum(axis=2).ravel(),
        pd.MultiIndex.from_product([log.id, range(place.shape[1])]),
    )
    np.testing.assert_allclose(total, mass[total.index], atol=1e-12)


def check_cross_fitted(audit, log, teach, options):
    """Learn on each half, by hand, and ask the question of the other half."""
    values = []
    keys = numbered_keys(SEED, SPLITS, "crossfit").tolist()
    for key in keys:
        halves = split_halves(log, key)
        learned = [teach(log.select(half)) for half in halves]
        for mine, other in ((0, 1), (1, 0)):
            model, target = learned[mine][0], learned[other][1]
            half = Replay(log.select(halves[mine]), model, target, **options)
            both = half.engine.first_values(), half.outcomes().expected_return
            values.append([number.mean() for number in both])
    values = np.array(values)
    # replays count in the first split only: what they add there is added to the mean of all
    values[:, 1] = values[:, 0] + (values[:2, 1] - values[:2, 0]).mean()
    found = audit.estimates.set_index("estimator")["value"]
    for name, expected in zip(CROSS_FITTED, np.mean(values, axis=0), strict=True):
        assert found[name] == pytest.approx(expected, abs=1e-12), name


@pytest.mark.parametrize(("mechanism", "kind", "action_noise"), each_value(COMBINATIONS), ids=repr)
def test_every_audit_answers_the_question_asked(patients, mechanism, action_noise, kind):
    log, model, target, behavior, teach = ask(patients, kind)
    options = options_of(mechanism, action_noise, behavior)
    audit = audit_of(log, model, target, teach, options)
    check_contract(audit, log, model, target, teach, options)


def test_with_a_hidden_state_a_mechanism_without_a_kernel_is_refused(patients):
    log, model, target, behavior, teach = ask(patients, "hidden")
    options = options_of(HalfAndHalf(), "shared", behavior)
    with pytest.raises(
        ValueError, match=r"HalfAndHalf\(\): a model with a hidden state needs .* `coupling`"
    ):
        audit_of(log, model, target, teach, options)


def test_cross_fitted_estimates_are_means_over_episodes(patients):
    log, model, target, behavior, teach = ask(patients, "tabular")
    options = options_of(bf.InverseCDF(), "fresh", behavior)
    values = audit_of(log, model, target, teach, options).estimates.set_index("estimator")["value"]
    found = cross_fitted(Replay(log, model, target, **options), teach, seed=SEED)
    assert values["MB (cross-fitted)"] == pytest.approx(found.model_based.mean(), abs=1e-14)
    assert values["CF (cross-fitted)"] == pytest.approx(found.counterfactual.mean(), abs=1e-14)


def test_the_influence_check_is_about_the_mechanism_of_the_audit(patients):
    # nothing of an episode survives independent noise but where the policy does what was done
    log, model, target, _, _ = ask(patients, "tabular")
    medians = {}
    for mechanism in (bf.Independent(), bf.GumbelMax()):
        audit = bf.run_audit(
            log, model, target, mechanism=mechanism, flags=0, resamples=2, intervals=0
        )
        light = audit.diagnostics.set_index("check")["value"]["influence"]
        assert light == audit.episodes["influence"].median()
        medians[type(mechanism).__name__] = light
    assert medians["Independent"] < medians["GumbelMax"]


def test_an_estimated_behavior_is_that_of_the_whole_log_everywhere(patients):
    log, model, target, _, teach = ask(patients, "tabular")
    known = options_of(bf.GumbelMax(), "shared", bf.estimate_behavior(log))
    unknown = {name: value for name, value in known.items() if name != "behavior"}
    audit = audit_of(log, model, target, teach, unknown)
    check_contract(audit, log, model, target, teach, known)


# ------------------------------------------------------------- an option that is dropped is found


def forget(option):
    """Return a method `ask` that forgets one option of the question."""
    complete = Replay.ask

    def ask_without(self, **changes):
        asked = complete(self, **changes)
        kept = {name: getattr(asked, name) for name in OPTIONS if name != option}
        return Replay(asked.episodes, asked.model, asked.target, **kept)

    return ask_without


def forget_at_first(option):
    """Return a function `as_replay` that forgets one option of the question."""
    return lambda *question, **given: as_replay(
        *question, **{name: value for name, value in given.items() if name != option}
    )


@pytest.mark.parametrize(
    ("option", "place"), each_value(product(OPTIONS, ["a part of it", "the audit"]))
)
def test_an_option_that_is_dropped_breaks_the_contract(patients, option, place, monkeypatch):
    log, model, target, behavior, teach = ask(patients, "tabular")
    noise = "shared" if option == "behavior" else "fresh"  # fresh noise needs no behavior
    options = options_of(bf.Independent(), noise, behavior) | {"censored": "cut"}
    if place == "the audit":
        monkeypatch.setattr(butfor.audit.run, "as_replay", forget_at_first(option))
    else:
        monkeypatch.setattr(Replay, "ask", forget(option))
    audit = audit_of(log, model, target, teach, options)
    monkeypatch.undo()
    with pytest.raises(AssertionError):
        check_contract(audit, log, model, target, teach, options)
    if place == "a part of it":  # what is about all episodes never went through the part
        check_episodes(audit, Replay(log, model, target, **options).compute())


# ----------------------------------------------------------------- memory, one file, many files


@pytest.fixture(scope="module")
def sources(patients, tmp_path_factory):
    """The same log as one Parquet file, as four, and as CSV."""
    place = tmp_path_factory.mktemp("logs")
    study, many = place / "study.toml", place / "many"
    many.mkdir()
    bf.write_episodes(patients, place / "one.parquet", study)
    bf.write_episodes(patients, place / "log.csv", study)
    for number, group in enumerate(np.array_split(np.arange(EPISODES), 4)):
        bf.write_episodes(patients.select(group), many / f"{number}.parquet", study)
    text = study.read_text().replace("[evaluation]", "[evaluation]\ndiscount = 0.9")
    study.write_text(text)
    return study, {"one": place / "one.parquet", "many": many, "csv": place / "log.csv"}


def files_of(folder):
    """Return the bytes of every table and of the model."""
    names = [*sorted(path.name for path in folder.glob("*.parquet")), "model.npz"]
    assert {f"{name}.parquet" for name in SCHEMAS} <= set(names)
    return {name: (folder / name).read_bytes() for name in names}


def audit_everywhere(sources, names, place, *, models=None, **chosen):
    """Audit a log in several places; return the bytes of each audit, and what it says of itself."""
    study, logs = sources
    written, metas = {}, {}
    for detail in ("full", "summary"):
        settings = AuditSettings(
            detail=detail,
            flags=5,
            review_size=14,
            draws=DRAWS,
            models=models if detail == "full" else None,
            **chosen,
        )
        for name in names:
            out = place / f"{detail} {name}"
            audit_into(logs[name], study, out, settings)
            written[detail, name] = files_of(out)
            metas[detail, name] = json.loads((out / "meta.json").read_text())
            assert written[detail, name] == written[detail, names[0]], (detail, name)
    return written, metas


# shared noise, the default, is that of the test below
@pytest.mark.parametrize(("mechanism", "action_noise"), few(product(NAMED, reversed(NOISES)), 1))
def test_the_bytes_do_not_depend_on_where_the_log_is(
    sources, mechanism, action_noise, tmp_path, monkeypatch
):
    monkeypatch.setattr("butfor.evaluate.estimate.RESAMPLES", 10)
    chosen = {"mechanism": mechanism, "action_noise": action_noise, "rehearsal": False}
    written, metas = audit_everywhere(sources, ("one", "many"), tmp_path, models=3, **chosen)
    for name in SAME:
        full, summary = (
            pd.read_parquet(tmp_path / f"{detail} one" / f"{name}.parquet")
            for detail in ("full", "summary")
        )
        pd.testing.assert_frame_equal(full, summary, rtol=0, atol=1e-12)
    assert written["full", "one"]["model.npz"] == written["summary", "one"]["model.npz"]
    designs = [meta["design"] for meta in metas.values()]
    assert all(design == designs[0] for design in designs)
    assert sum(stratum["drawn"] for stratum in designs[0]["strata"]) == 14


def test_nor_do_those_of_the_rehearsal_nor_on_the_format(sources, tmp_path, monkeypatch):
    """Neither asks for a mechanism, so that one is enough."""
    monkeypatch.setattr("butfor.evaluate.estimate.RESAMPLES", 10)
    everywhere = ("one", "many", "csv")
    written, metas = audit_everywhere(sources, everywhere, tmp_path, models=0, intervals=5)
    rehearsals = {place: meta["rehearsal"] for place, meta in metas.items()}
    for detail in ("full", "summary"):
        assert "rehearsal.parquet" in written[detail, "one"]
        for name in ("many", "csv"):
            assert rehearsals[detail, name] == rehearsals[detail, "one"]
    observed = [rehearsals[detail, "one"]["observed"] for detail in ("full", "summary")]
    assert observed[0] == pytest.approx(observed[1], abs=1e-12)
