"""Factored models: their rows, what is learned of a log, and what is refused."""

import itertools

import numpy as np
import pytest

from butfor import Episodes, Outcome, Variable, fit_factored
from butfor.models.backoff import STRENGTHS, backoff_table
from butfor.models.factored import END, Factor
from butfor.models.fit_factored import learn_factored
from butfor.models.fixed import fixed_factors
from butfor.models.transitions import count_distinct, merge_transitions
from tests.builders import DEATH, HOME, patient_log, random_log
from tests.reference import backoff as slow
from tests.reference import factored_rows as slow_model

PULSE = Variable("pulse", ("low", "high"))
DRUG = Variable("drug", ("off", "on"))
GIVEN = Variable("given", ("off", "on"))


def ward(seed=0, episodes=200, *, longest=6, states=(PULSE, DRUG), actions=(GIVEN,), **changes):
    """Patients whose pulse falls if the drug is given; the flag `drug` copies the action.

    A patient whose pulse is low without drug goes home; one with a high pulse dies with
    probability .1. State 2 pulse + drug.
    """
    rng = np.random.default_rng(seed)
    state, action, reached, lengths, outcome = [], [], [], [], []
    for _ in range(episodes):
        now, end = (1, 0), -1
        for step in itertools.count(1):
            chosen = int(rng.integers(2))
            pulse = int(rng.random() < (0.2 if chosen else 0.7 if now[0] else 0.4))
            state.append(2 * now[0] + now[1])
            action.append(chosen)
            now = pulse, chosen
            reached.append(2 * pulse + chosen)
            end = 1 if now == (0, 0) else 0 if pulse and rng.random() < 0.1 else -1
            if end >= 0 or step == longest:
                break
        lengths.append(step)
        outcome.append(end)
    given = {
        "state": state,
        "action": action,
        "next_state": reached,
        "offsets": np.concatenate([[0], np.cumsum(lengths)]),
        "states": states,
        "actions": actions,
        "outcome": outcome,
        "outcomes": [DEATH, HOME],
    }
    return Episodes.from_arrays(**{**given, **changes})


def without_finals(log):
    """The same log, where the state in which an episode ended was not recorded."""
    reached = log.next_state.copy()
    reached[log.offsets[1:][log.outcome >= 0] - 1] = -1
    return Episodes.from_arrays(
        log.state, log.action, reached, offsets=log.offsets, states=log.state_variables,
        actions=log.action_variables, outcome=log.outcome, outcomes=log.outcomes,
    )  # fmt: skip


# what is found rather than learned


def test_a_variable_that_takes_the_level_of_an_action_is_found():
    drug = fit_factored(ward()).factor("drug")
    assert (drug.source, drug.parents) == ("copies action.given", ("action.given",))
    np.testing.assert_array_equal(drug.table, np.eye(2))
    assert not drug.learned


def test_levels_correspond_by_name_before_position():
    # the flag lists its levels in another order: state 2 pulse + drug, drug 0 is now "on"
    turned = np.array([1, 0, 3, 2])
    log = ward()
    named = ward(
        state=turned[log.state],
        next_state=turned[log.next_state],
        states=(PULSE, Variable("drug", ("on", "off"))),
    )
    drug = fit_factored(named).factor("drug")
    np.testing.assert_array_equal(drug.table, [[0, 1], [1, 0]])
    other = fit_factored(ward(states=(PULSE, Variable("drug", ("no", "yes"))))).factor("drug")
    np.testing.assert_array_equal(other.table, np.eye(2))


def test_an_action_that_was_never_varied_shows_no_copy():
    log = Episodes.from_arrays(
        [1, 1, 1], [0, 0, 0], [0, 0, 0], offsets=[0, 1, 2, 3], states=[DRUG], actions=[GIVEN],
        outcome=[0, -1, 0], outcomes=[DEATH],
    )  # fmt: skip
    assert fit_factored(log).factor("drug").source == "counts"


def test_a_variable_that_never_changes_is_found_whether_declared_or_not():
    states = (PULSE, Variable("sex", ("female", "male")))
    log = ward(0, 50)
    sex = np.repeat(np.arange(50) % 2, log.lengths)
    plain = ward(
        0, 50, states=states, state=log.state // 2 * 2 + sex,
        next_state=log.next_state // 2 * 2 + sex,
    )  # fmt: skip
    model = fit_factored(plain)
    assert model.factor("sex").source == "static"
    np.testing.assert_array_equal(model.factor("sex").table, np.eye(2))
    assert fit_factored(patient_log()).factor("sex").source == "static"


def test_a_declared_static_variable_that_changes_is_refused():
    with pytest.raises(ValueError, match=r"'pulse' is declared static but changes in \d+"):
        fit_factored(ward(states=(Variable("pulse", ("low", "high"), static=True), DRUG)))


def test_a_variable_with_one_level_is_static():
    log = ward(states=(PULSE, Variable("ward", ("a",)), DRUG))
    assert fit_factored(log).factor("ward").source == "static"


def test_fixed_factors_of_the_whole_log_hold_in_its_parts():
    # in a part of the log the drug was given every time: by itself it would be learned otherwise
    log = ward()
    fixed = fixed_factors(count_distinct(log))
    always = log.select(np.add.reduceat(log.action, log.offsets[:-1]) == log.lengths)
    assert fit_factored(always).factor("drug").source == "counts"
    assert fit_factored(always, known=fixed).factor("drug").source == "copies action.given"


# what is learned by counting


def test_parents_are_found():
    model = fit_factored(ward(1, 2000))
    assert set(model.factor("pulse").parents) >= {"action.given", "pulse"}
    # that nobody with a low pulse without drug stays is a matter of the state reached
    assert set(model.end.parents) == {"next.pulse", "action.given"}


def test_a_table_is_that_of_the_counts_of_its_parents():
    log = ward()
    pulse = fit_factored(log, parents={"pulse": ["action.given"]}).factor("pulse")
    counts = np.zeros((2, 2))
    np.add.at(counts, (log.action, log.next_state // 2), 1)
    np.testing.assert_array_equal(pulse.counts, counts)
    np.testing.assert_array_equal(pulse.table, backoff_table(counts, pulse.strength))


def test_the_end_looks_at_the_state_before_only_if_the_state_reached_is_unknown():
    log = ward(1, 2000)
    before = {"pulse", "drug", "action.given"}
    assert any(parent.startswith("next.") for parent in fit_factored(log).end.parents)
    assert set(fit_factored(without_finals(log)).end.parents) <= before


def test_without_final_states_variables_are_learned_from_transitions_that_did_not_end():
    log = ward(1, 500)
    model = fit_factored(without_finals(log))
    ended = np.zeros(len(log.state), bool)
    ended[log.offsets[1:][log.outcome >= 0] - 1] = True
    assert model.factor("pulse").counts.sum() == (~ended).sum()
    assert model.end.counts.sum() == len(ended)


def test_some_unknown_final_states_change_nothing_about_those_that_are_known():
    # whether an end's final state was logged must not matter: the end does not depend on it
    log = ward(1, 500)
    none = without_finals(log)
    reached = none.next_state.copy()
    last = log.offsets[1:][log.outcome == 1] - 1
    reached[last] = log.next_state[last]
    some = ward(1, 500, next_state=reached)
    np.testing.assert_array_equal(
        fit_factored(some).factor("pulse").table, fit_factored(none).factor("pulse").table
    )


def test_next_step_parents_need_an_order():
    # the second variable copies the first one of the same moment
    rng = np.random.default_rng(0)
    pulse = rng.integers(2, size=401)
    states = (PULSE, Variable("pressure", ("low", "high")))
    noisy = np.where(rng.random(401) < 0.9, pulse, 1 - pulse)
    code = 2 * pulse + noisy
    log = Episodes.from_arrays(
        code[:-1], rng.integers(2, size=400), code[1:], offsets=[0, 400], states=states,
        actions=[GIVEN], outcome=[0], outcomes=[DEATH],
    )  # fmt: skip
    assert fit_factored(log).factor("pressure").parents == ()
    ordered = fit_factored(log, order=["pulse", "pressure"])
    assert ordered.factor("pressure").parents == ("next.pulse",)
    assert [factor.variable for factor in ordered.factors] == ["pulse", "pressure", END]
    turned = fit_factored(log, order=["pressure", "pulse"])
    assert turned.factor("pulse").parents == ("next.pressure",)
    assert [factor.variable for factor in turned.factors] == ["pressure", "pulse", END]


def test_a_log_in_parts_teaches_the_same_model():
    log = ward()
    parts = [count_distinct(log.select(np.arange(i, 200, 3))) for i in range(3)]
    whole, merged = fit_factored(log), learn_factored(merge_transitions(parts))
    assert whole.describe().equals(merged.describe())
    for one, other in zip(whole.factors, merged.factors, strict=True):
        np.testing.assert_array_equal(one.table, other.table)
    np.testing.assert_array_equal(whole.initial, merged.initial)
    np.testing.assert_array_equal(whole.counts, merged.counts)


def test_long_logs_are_counted_in_blocks(monkeypatch):
    log = ward()
    whole = count_distinct(log)
    monkeypatch.setattr("butfor.models.transitions.BLOCK", 7)
    blocks = count_distinct(log)
    for name in ("state", "action", "next_state", "end", "weight", "lowest", "highest", "first"):
        np.testing.assert_array_equal(getattr(blocks, name), getattr(whole, name))


def test_the_end_is_named_as_it_is_printed():
    log = ward()
    printed = fit_factored(log).describe()["variable"].iloc[-1]
    model = fit_factored(log, {printed: "counts"}, parents={printed: ["pulse"]})
    assert model.factor(printed).parents == ("pulse",)
    assert model.end is model.factor(printed)
    for options in ({"parents": {"edn": []}}, {"learner": {"edn": "counts"}}):
        with pytest.raises(ValueError, match=r"there are pulse, drug, \(end\)$"):
            fit_factored(log, **options)
    with pytest.raises(ValueError, match=r"'\(end\)'; give ends= for it"):
        fit_factored(log, known={printed: ([], [1.0])})


def test_a_description_has_one_row_per_factor():
    table = fit_factored(ward()).describe()
    assert list(table["variable"]) == ["pulse", "drug", "(end)"]
    assert list(table["source"]) == ["counts", "copies action.given", "counts"]
    assert table["strength"].isin(STRENGTHS).sum() == 2
    assert table["drops"].isin(["last", "each"]).tolist() == [True, False, True]
    assert list(table["cases"]) == [len(ward().state), 0, len(ward().state)]
    assert (table["log_score"].dropna() < 0).all()


# rows of states


def assert_rows_are_products(model):
    table = model.tabular()
    for state, action in itertools.product(range(model.n_states), range(model.n_actions)):
        expected = slow_model.row(model, state, action)
        row = table.row(state, action)
        assert row == pytest.approx({key: p for key, (p, _) in expected.items()}, abs=1e-14)
        entries = slice(*table.start[state * model.n_actions + action :][:2])
        for reached, earned in zip(table.next_state[entries], table.reward[entries], strict=True):
            assert earned == pytest.approx(expected[int(reached)][1], abs=1e-12)


def test_rows_are_products_of_the_factors():
    assert_rows_are_products(fit_factored(ward()))
    log = random_log(np.random.default_rng(0), episodes=100)
    assert_rows_are_products(
        fit_factored(
            log,
            order=["sugar", "pulse"],
            parents={"pulse": ["next.sugar", "sex", "pulse"], END: ["next.pulse", "sugar"]},
        )
    )


# rewards


def test_rewards_that_follow_from_the_end_have_no_parents():
    rewards = fit_factored(ward()).rewards
    assert rewards.parents == ()
    np.testing.assert_array_equal(rewards.table, [-1, 1, 0])


def test_an_end_that_was_never_logged_earns_what_its_outcome_does():
    log = ward(outcomes=[DEATH, HOME, Outcome("transfer", 0.5)])
    np.testing.assert_array_equal(fit_factored(log).rewards.table, [-1, 1, 0.5, 0])


def test_rewards_are_learned_by_what_they_depend_on():
    log = ward()
    costly = ward(reward=log.reward - 0.25 * log.action)
    rewards = fit_factored(costly).rewards
    assert rewards.parents == ("action.given",)
    expected = np.array([[-1, 1, 0], [-1.25, 0.75, -0.25]])
    # nobody went home with the drug: that mean is backed off to the one of going home without
    seen = np.array([[True, True, True], [True, False, True]])
    np.testing.assert_allclose(rewards.table[seen], expected[seen], atol=1e-3)
    assert rewards.table[1, 1] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("parents", [(), (0,), (1, 0)])
@pytest.mark.parametrize("strength", [1e-6, 3.0])
def test_errors_of_rewards_equal_those_of_means_taken_anew_without_each(parents, strength):
    from butfor.models import rewards  # noqa: PLC0415  the private search

    rng = np.random.default_rng(2)
    log = ward(0, 60, reward=rng.normal(size=len(ward(0, 60).state)))
    rows = count_distinct(log)
    columns = [rows.codes["pulse"], rows.codes["action.given"]]
    values = np.array([-1.0, 1.0, 0.0])
    search = rewards._Search(rows, columns, [2, 2], values, strength)
    for parent in parents:
        search.parents.append(parent)
        search.cell, search.left = search._with(parent)
    end = np.full(len(log.state), 2)
    end[log.offsets[1:] - 1] = np.where(log.outcome >= 0, log.outcome, 2)
    cases = [
        ((pulse, given), int(o), float(r))
        for pulse, given, o, r in zip(log.state // 2, log.action, end, log.reward, strict=True)
    ]
    expected = slow.reward_error(cases, parents, values, strength)
    assert search.error == pytest.approx(expected, rel=1e-9)


def test_rewards_that_vary_for_the_same_transition_give_a_warning():
    reward = np.random.default_rng(0).normal(size=len(ward().state))
    with pytest.warns(UserWarning, match="varies for the same state, action and next state"):
        fit_factored(ward(reward=reward))


# what is given


def test_known_tables_are_taken_as_they_are():
    table = np.array([[0.5, 0.5], [0.9, 0.1]])
    model = fit_factored(ward(), known={"pulse": (["action.given"], table)})
    assert model.factor("pulse").source == "given"
    np.testing.assert_array_equal(model.factor("pulse").table, table)
    same = fit_factored(ward(), known={"pulse": model.factor("pulse")})
    assert same.factor("pulse") is model.factor("pulse")


def test_a_known_function_of_a_variable_becomes_a_table():
    def falls(codes):
        high = np.where(codes["action.given"] == 1, 0.1, 0.5 + 0.4 * codes["pulse"])
        return np.stack([1 - high, high], axis=1)

    pulse = fit_factored(ward(), known={"pulse": falls}).factor("pulse")
    assert (pulse.parents, pulse.source) == (("pulse", "drug", "action.given"), "given")
    np.testing.assert_allclose(pulse.table[1, :, 0, 1], 0.9)
    np.testing.assert_allclose(pulse.table[:, :, 1, 1], 0.1)
    own = ["action.given", "pulse"]
    fewer = fit_factored(ward(), known={"pulse": falls}, parents={"pulse": own}).factor("pulse")
    assert fewer.parents == tuple(own)
    assert fewer.table.shape == (2, 2, 2)
    with pytest.raises(ValueError, match=r"known\['pulse'\]: the function asks for 'pulse', but"):
        fit_factored(ward(), known={"pulse": falls}, parents={"pulse": ["action.given"]})
    with pytest.raises(ValueError, match=r"known\['pulse'\]: .* one column per level"):
        fit_factored(ward(), known={"pulse": lambda codes: np.ones((8, 3)) / 3})


def test_a_known_rule_of_ends_becomes_a_table():
    def rule(codes):
        well = (codes["next.pulse"] == 0) & (codes["next.drug"] == 0)
        return np.stack([np.zeros(len(well)), well, ~well], axis=1)

    end = fit_factored(ward(), ends=rule).end
    assert (end.parents, end.source) == (("next.pulse", "next.drug"), "given")
    np.testing.assert_array_equal(end.table[0, 0], [0, 1, 0])
    np.testing.assert_array_equal(end.table[1, 0], [0, 0, 1])


def test_a_rule_of_ends_may_look_at_other_parents():
    def rule(codes):
        given = codes["action.given"].astype(float)
        return np.stack([0.2 * given, 0 * given, 1 - 0.2 * given], axis=1)

    end = fit_factored(ward(), ends=rule, parents={END: ["action.given"]}).end
    np.testing.assert_allclose(end.table, [[0, 0, 1], [0.2, 0, 0.8]])
    with pytest.raises(ValueError, match=r"asks for 'action\.given', but its parents are next\."):
        fit_factored(ward(), ends=rule)


# what is refused


class Silent:
    """A classifier that says what is likeliest, but not how likely."""

    def fit(self, features, level):
        return self

    def get_params(self, deep=True):
        return {}


NOT_ROWS = {"ends": lambda codes: np.zeros((1, 3))}
REFUSED = [
    ({"learner": "boosting"}, "give 'counts' or a classifier"),
    ({"learner": Silent()}, "learner of 'pulse': Silent has no predict_proba"),
    ({"learner": Silent}, "Silent is a class; give Silent"),
    ({"learner": {"END": "counts"}}, "learner: no state variable 'END'; there are pulse, drug"),
    ({"parents": {"pulse": ["age"]}}, "no parent 'age'; there are pulse, drug, action.given"),
    ({"parents": {"age": ["pulse"]}}, "parents: no state variable 'age'"),
    ({"parents": {"pulse": "pulse"}}, "'pulse' is text; give a list"),
    ({"parents": {"pulse": ["drug", "drug"]}}, "'drug' appears twice"),
    ({"parents": {"pulse": ["next.pulse"]}}, "next-step parents of 'pulse' depend on each other"),
    (
        {"parents": {"pulse": ["next.drug"], "drug": ["next.pulse"]}},
        "next-step parents of 'pulse', 'drug' depend on each other",
    ),
    ({"order": ["pulse", "age"]}, "order: no state variable 'age'"),
    ({"order": ["pulse", "pulse"]}, "order: 'pulse' appears twice"),
    (
        {"order": ["pulse", "drug"], "parents": {"pulse": ["next.drug"]}},
        "'next.drug' does not come earlier in the order pulse, drug",
    ),
    ({"known": {"age": ([], [1.0])}}, "known: no state variable 'age'"),
    ({"known": {END: ([], [0.0, 0.0, 1.0])}}, r"no state variable '\(end\)'; give ends= for it"),
    ({"known": {"pulse": ([], [1.0, 1.0])}}, "the table of 'pulse'.*sums to 2"),
    ({"known": {"pulse": (["drug"], [0.5, 0.5])}}, r"shape \(2,\), expected \(2, 2\)"),
    (
        {"known": {"pulse": Factor("drug", (), np.ones(2) / 2, np.zeros(2), "given")}},
        "the factor given for 'pulse' is of 'drug'",
    ),
    (NOT_ROWS, r"returns shape \(1, 3\), expected \(4, 3\)"),
    ({"ends": lambda codes: np.ones((4, 3))}, "ends: row 0 sums to 3"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_bad_input_is_refused_with_a_remedy(options, message):
    with pytest.raises(ValueError, match=message):
        fit_factored(ward(), **options)


def test_an_end_cannot_depend_on_final_states_that_are_not_logged():
    with pytest.raises(ValueError, match=r"the end depends on next.pulse, but \d+ episodes end in"):
        fit_factored(without_finals(ward()), parents={END: ["next.pulse"]})


def test_a_log_without_any_next_state_is_refused():
    log = Episodes.from_arrays(
        [0], [0], [-1], offsets=[0, 1], states=[PULSE], actions=[GIVEN], outcome=[0],
        outcomes=[DEATH],
    )  # fmt: skip
    with pytest.raises(ValueError, match="no transition has a known next state"):
        fit_factored(log)


def test_names_that_look_like_other_parents_are_refused():
    with pytest.raises(ValueError, match=r"state variable 'next\.x': rename it"):
        fit_factored(ward(states=(PULSE, Variable("next.x", ("off", "on")))))


def test_given_parents_with_too_many_configurations_are_refused(monkeypatch):
    monkeypatch.setattr("butfor.models.fit_factored.MOST_CELLS", 10)
    with pytest.raises(ValueError, match="3 parents have 8 configurations, too many"):
        fit_factored(ward(), parents={"pulse": ["pulse", "drug", "action.given"]})
