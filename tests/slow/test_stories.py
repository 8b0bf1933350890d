"""Stories of every kind of audit say what its tables say, read one row at a time."""

import re
from functools import cache

import pytest

import butfor as bf
from butfor.audit.settings import AuditSettings
from butfor.audit.source import audit_into
from butfor.evaluate.wording import percent
from butfor.present import Stays
from tests import wide
from tests.audits import _patients, hidden_audit, sepsis_audit, trade_audit
from tests.reference.story import cases_at, chance_by, first_time, read_claims, spoken

RESTS_ON = re.compile(
    r"this rests on ([\d.]+)(?: to ([\d.]+))? similar past cases?"
    r"(?: \(([\d.]+)(?: to ([\d.]+))? where)?"
)


def counted(cases):
    """A number of cases as it is told: whole from ten on."""
    return f"{cases:.0f}" if cases >= 10 else f"{round(cases, 1):g}"


@cache
def factored():
    log = _patients(50)
    replay = bf.Replay(log, bf.fit_factored(log), bf.policy_iteration(bf.fit_mdp(log)).table)
    sure = bf.credible_intervals(replay, models=3, seed=0)
    return bf.run_audit(replay, flags=8, draws=0, resamples=20, credible=sure)


def many_variables(folder):
    log = wide.simulate(0, 60, horizon=3).log
    parents = {variable.name: [variable.name, "action.drug"] for variable in wide.VARIABLES}
    model = bf.fit_factored(log, parents=parents)  # choosing them takes longer than all the rest
    return bf.run_audit(log, model, wide.always, flags=5, draws=0, resamples=20)


def summary(folder):
    bf.write_episodes(_patients(80), folder / "log.csv", folder / "study.toml")
    settings = AuditSettings(flags=8, detail="summary", draws=0, intervals=0, rehearsal=False)
    return audit_into(folder / "log.csv", folder / "study.toml", folder / "audit", settings)


KINDS = {
    "tabular": lambda folder: sepsis_audit(150),
    "one treatment, censored": lambda folder: trade_audit(),
    "hidden state": lambda folder: hidden_audit(),
    "factored": lambda folder: factored(),
    "wide": many_variables,
    "summary": summary,
}


def rows_of(table, identifier, *columns):
    if "world" in table:
        table = table[table["world"] == "target"]
    mine = table[table["id"] == identifier]
    return list(mine[list(columns)].itertuples(index=False, name=None))


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_story_claims_is_what_the_tables_say(kind, tmp_path):
    audit = KINDS[kind](tmp_path)
    stays, horizon = Stays(audit), audit.meta.parameters.horizon
    checked = 0
    for row in audit.episodes.sort_values("rank", ascending=False).head(40).itertuples():
        story = stays.one(row.id)["story"]
        assert re.fullmatch(r"[A-Z].*?[.)]\.? (So the|The) model .*[^ .]\.", story), story
        assert not re.search(r"\bnan\b|None|  |, ,|: ;", story), story
        if "So the model expects what happened" in story:
            chance = audit.episodes.set_index("id").loc[row.id]
            name = "none" if row.observed_outcome == audit.meta.none else row.observed_outcome
            assert row.first_change < 0
            assert chance[f"p_{name}"] > 0.999
            continue
        courses = rows_of(audit.courses, row.id, "step", "variable", "level", "probability")
        claims, late = read_claims(story, stays.names, "step")
        assert claims, story
        told = audit.episodes.set_index("id").loc[row.id]
        for name, when, words in claims:
            low, high = spoken(words)
            none = name == audit.meta.none
            chance = told["p_none" if none else f"p_{name}"]
            if none:
                assert int(when) == horizon
            elif not courses:
                assert when == ""
            elif late:
                assert int(when) == first_time(courses, name, 0.75, horizon)
                assert int(late[0]) == first_time(courses, name, 0.95, horizon)
                chance = chance_by(courses, name, int(when))
            else:
                assert int(when) == first_time(courses, name, 0.95, horizon)
            assert low <= chance <= high, (story, chance)
            checked += 1
        steps = rows_of(audit.course_steps, row.id, "step", "mass", "evidence")
        found = cases_at(steps, 0.05, 2)
        if steps and found:
            low, high = map(counted, found)
            span = low if low == high else f"{low} to {high}"
            assert f"; this rests on {span} similar past case" in story
    assert checked >= 10, kind


@pytest.mark.parametrize("kind", KINDS)
def test_its_similar_past_cases_are_those_of_the_chart_and_of_the_table_under_it(kind, tmp_path):
    audit = KINDS[kind](tmp_path)
    stays, compared = Stays(audit), 0
    for identifier in audit.episodes["id"]:
        shown = stays.one(identifier)
        drawn = [row["cases"] for row in shown["datasets"]["evidence"]]
        told = RESTS_ON.search(shown["story"])
        if not (drawn and told):
            continue
        numbers = [float(number) for number in told.groups() if number]
        assert (min(numbers), max(numbers)) == (min(drawn), max(drawn)), shown["story"]
        column = shown["table"][0].index("Similar past cases")
        listed = [float(line[column]) for line in shown["table"][1:] if line[column]]
        assert listed == drawn
        assert "imilar past cases" not in shown["first"]  # which counts another thing
        compared += 1
    assert compared


def test_intervals_of_outcomes_are_told_where_they_were_computed():
    audit = factored()
    stays = Stays(audit)
    identifier = audit.flagged["id"].iloc[0]
    row = audit.flagged.iloc[0]
    said = stays.one(identifier)
    high = row["p_died_high_credible"]
    assert f"the chance of “died” could be as high as {percent(high)}." in said["risk"]
    assert said["range"].startswith("95% credible intervals: died ")
    assert "credible" not in Stays(sepsis_audit(150)).one(identifier)["range"]
