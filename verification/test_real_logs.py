"""Eight logs that nobody here wrote, from `butfor init` to the report, checked by plain counting.

Each is drafted, edited in at most three places, audited and reported by the commands that a user
would type. The numbers are computed again here from the CSV file and the study file, with pandas
and NumPy alone. `make real-logs` installs the packages that have the logs.
"""

import tomllib
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sparse
from typer.testing import CliRunner

from butfor.audit.audit import Audit
from butfor.cli.main import app
from butfor.log.fields import LOST
from butfor.log.read import read_log
from butfor.log.write import write_toml
from verification.real_logs import LOGS, MissingError, infections

MOST_EDITS = 3


@dataclass(frozen=True)
class Case:
    """What is changed in the draft, by section and key, and how the audit is started."""

    edits: dict[tuple[str, str], object] = field(default_factory=dict)
    options: tuple[str, ...] = ("--model", "tabular")  # which plain counting can check


CASES = {
    "PBC liver trial": Case(
        {
            ("outcome", "1"): {"name": "transplant", "reward": -0.5},
            ("outcome", "2"): {"name": "death", "reward": -1.0, "bad": True},
        }
    ),
    "migraine diary": Case(options=("--model", "tabular", "--unseen", "self-loop")),
    "Open Bandit": Case(),
    "ICU-Sepsis": Case(),
    # stays last up to 84 steps, nine on average; to look so far ahead takes several times as long
    "ICU-Sepsis, 45 noisy labs": Case(
        {("evaluation", "horizon"): 12, ("problems", "beyond_horizon"): "cut"}
    ),
    "permit cases": Case(),
    "FrozenLake": Case(),
    "scikit-learn policy": Case(options=("--model", "tabular", "--target", "log")),
}


@pytest.fixture(scope="module", params=list(LOGS))
def audited(request, tmp_path_factory):
    """A log from its CSV file to the report: the study as edited, the table, and the audit."""
    name, folder = request.param, tmp_path_factory.mktemp("log")
    try:
        LOGS[name]().to_csv(folder / "log.csv", index=False)
    except MissingError as missing:
        pytest.skip(str(missing))
    case = CASES[name]
    run("init", folder / "log.csv", "--out", folder / "study.toml")
    study = tomllib.loads((folder / "study.toml").read_text())
    for (section, key), value in case.edits.items():
        study.setdefault(section, {})[key] = value
    (folder / "study.toml").write_text(write_toml(study))
    run(
        *("audit", folder / "log.csv", "--study", folder / "study.toml", "--models", 0),
        *("--out", folder / "audit", *case.options),
    )
    report = folder / "report.html"
    run("report", folder / "audit", "--out", report)
    table = pd.read_csv(folder / "log.csv", low_memory=False)
    audit = Audit.load(folder / "audit")
    return SimpleNamespace(name=name, case=case, study=study, table=table, audit=audit, page=report)


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_three_edits_are_enough(audited):
    assert len(audited.case.edits) <= MOST_EDITS
    assert audited.page.stat().st_size > 10_000


def test_what_was_read_is_what_the_file_says(audited):
    log, counts = decisions(audited.table, audited.study), audited.audit.meta.counts
    assert counts.episodes == log["episode"].nunique()
    assert counts.steps == len(log)
    ends = log.groupby("episode", sort=False).last()
    short = log.groupby("episode", sort=False).size() < audited.audit.meta.parameters.horizon
    assert counts.censored == int((ends["outcome"].isna() & short).sum())
    sections = audited.study.get("outcome", {})
    names = {value: section.get("name", value) for value, section in sections.items()} | {
        LOST: LOST
    }
    expected = ends["outcome"].map(names).astype(object).fillna(audited.audit.meta.none)
    expected = expected.value_counts().to_dict()
    assert audited.audit.episodes["observed_outcome"].value_counts().to_dict() == expected


def test_every_estimate_that_counts_can_be_counted_again(audited):
    log, audit = decisions(audited.table, audited.study), audited.audit
    found = audit.estimates.set_index("estimator")["value"]
    expected = estimates(log, audited.study, audit)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-9, nan_ok=True), name
    if "chosen" in log:  # the tree decides by more than the state: how much of it is lost is said
        assert "The policy depends on more than the state." in " ".join(audit.meta.warnings)
    counts = audit.meta.counts
    read = f"{counts.episodes} episodes, {counts.censored} censored, {counts.steps} steps"
    print(f"\n{audited.name}: {read}\n{found.round(4).to_dict()}")


def test_a_policy_that_changes_nothing_changes_nobody(audited):
    check = audited.audit.diagnostics.set_index("check").loc["null check"]
    assert check["light"] == "green", check["sentence"]


# The same numbers, by plain counting


STOPS = {
    "columns": {"episode": "id", "time": "tstart", "reward": "infections"},
    "state": {"steroids": {"levels": ["0", "1"], "static": True}, "age": {"cuts": [6, 12, 20]}},
    "action": {"treat": {"levels": ["placebo", "rIFN-g"]}},
}


def test_a_trial_in_the_start_stop_format_keeps_all_patients_or_is_refused():
    """Row after row from one infection to the next; 128 patients with .594 infections each."""
    try:
        table = infections()
    except MissingError as missing:
        pytest.skip(str(missing))
    offered = {"no_transition": "drop", "lost_reward": "drop"}
    with pytest.raises(ValueError, match=r"of 128 episodes .* would be left out") as caught:
        read_log(table, STOPS | {"problems": offered})
    assert 'no_transition = "keep"' in str(caught.value)
    log = read_log(table, STOPS | {"problems": {"no_transition": "keep"}}).episodes
    assert len(log) == table["id"].nunique() == 128
    assert len(log.state) == len(table)
    assert log.returns().mean() == pytest.approx(-76 / 128)


def text(value):
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def decisions(table, study):
    """Return one row per transition: episode, state, action, next state, reward, outcome."""
    columns = study["columns"]
    table = table.rename(columns={"Unnamed: 0": ""})
    episode, time = columns["episode"], columns.get("time")
    if time and pd.api.types.is_string_dtype(table[time]):
        table[time] = pd.to_datetime(table[time], format="ISO8601")
    table = table.sort_values([episode, time] if time else [episode], kind="stable")
    if "time" in study:
        table = put_on_grid(table, episode, time, study)
    known = list(study.get("state", {}) | study.get("missing", {}))
    table[known] = table.groupby(episode, sort=False)[known].ffill()
    rows = pd.DataFrame({"episode": table[episode].to_numpy()})
    for kind in ("state", "action"):
        rows[kind] = codes(table, study, kind)
    follows = rows["episode"].eq(rows["episode"].shift(-1))
    rows["next"] = rows["state"].shift(-1).where(follows, -1).astype(int)
    outcome = table[columns["outcome"]] if "outcome" in columns else pd.Series(None, table.index)
    ends = outcome.map(text, na_action="ignore").where(lambda o: o.isin(study.get("outcome", {})))
    last = ends.groupby(table[episode].to_numpy(), sort=False).transform("last").to_numpy()
    rows["outcome"] = np.where(follows, None, last)
    if study.get("problems", {}).get("no_transition") == "keep":  # here every row has an action
        rows.loc[~follows & rows["outcome"].isna(), "outcome"] = LOST
    rows["reward"] = rewards(table, rows, study)
    if "behavior_probability" in columns:
        rows["propensity"] = table[columns["behavior_probability"]].to_numpy()
    if "target_action" in columns:
        names = next(iter(study["action"].values()))["levels"]
        rows["chosen"] = table[columns["target_action"]].map(names.index).to_numpy()
    rows["final"] = rows["state"].where(~follows).groupby(rows["episode"]).transform("last")
    horizon = study["evaluation"]["horizon"]
    ahead = rows.groupby("episode", sort=False).cumcount() < horizon
    return rows[(follows | rows["outcome"].notna()) & ahead].reset_index(drop=True)


def put_on_grid(table, episode, time, study):
    since = table[time] - table.groupby(episode)[time].transform("first")
    step = np.floor(since / study["time"]["every"] + 1e-9).astype(int)
    merged = table.groupby([table[episode], step.rename("step")], sort=False).last()
    every = [(one, place) for one, last in step.groupby(table[episode]).max().items()
             for place in range(last + 1)]  # fmt: skip
    found = merged.reindex(pd.MultiIndex.from_tuples(every))
    added = ~found.index.isin(merged.index)
    return found.assign(**{episode: [one for one, _ in every]}, added=added).reset_index(drop=True)


def codes(table, study, kind):
    """Number states or actions: their codes, or the levels of all columns taken together."""
    if kind in study["columns"]:
        return table[study["columns"][kind]].to_numpy()
    found, sizes = [], []
    for name, section in study[kind].items():
        if "cuts" in section:
            found.append(np.searchsorted(section["cuts"], table[name], side="right"))
            sizes.append(len(section["cuts"]) + 1)
        else:
            found.append(table[name].map(lambda v, s=section: s["levels"].index(text(v))))
            sizes.append(len(section["levels"]))
    return np.ravel_multi_index(tuple(np.asarray(one, dtype=int) for one in found), sizes)


def rewards(table, rows, study):
    if "reward" in study:
        earned = table[study["columns"]["reward"]].map(study["reward"]["values"]).to_numpy()
        return np.where(table["added"], 0.0, earned) if "added" in table else earned
    if "reward" in study["columns"]:
        return table[study["columns"]["reward"]].to_numpy()
    worth = {value: section["reward"] for value, section in study["outcome"].items()}
    return rows["outcome"].map(worth).fillna(0.0).to_numpy()


def estimates(log, study, audit):
    """Return Observed, also continued if some are lost, and IS, WIS, FQE and MB of the target."""
    states, actions = audit.target.shape
    horizon = audit.meta.parameters.horizon
    pair = (log["state"] * actions + log["action"]).to_numpy()
    count = np.bincount(pair, minlength=states * actions).astype(float)
    seen = count > 0
    table = count.reshape(states, actions)
    behavior = np.divide(table, table.sum(1, keepdims=True), where=table.sum(1, keepdims=True) > 0,
                         out=np.full(table.shape, 1 / actions))  # fmt: skip
    earned = np.bincount(pair, log["reward"], minlength=len(count)) / np.maximum(count, 1)
    goes = log["next"].to_numpy() >= 0
    moves = sparse.csr_array(
        (1 / count[pair[goes]], (pair[goes], log["next"].to_numpy()[goes])),
        (len(count), states),
    )  # fmt: skip
    itself = np.arange(len(count)) // actions

    def values(policy, unseen):
        found = [np.zeros(states)]
        for _ in range(horizon):
            after = earned + moves @ found[-1]
            other = found[-1][itself] if unseen == "self-loop" else unseen
            after = np.where(seen, after, other).reshape(states, actions)
            found.append((policy * after).sum(axis=1))
        return found

    groups = log.groupby("episode", sort=False)
    first, length, total = groups["state"].first(), groups.size(), groups["reward"].sum()
    ended = groups["outcome"].last().notna()
    worst = "self-loop"
    if "outcome" in study:
        last = groups["reward"].last().groupby(groups["outcome"].last()).mean()
        worst = min(s.get("reward", last.get(v)) for v, s in study["outcome"].items())
        worst = min(worst, last.get(LOST, worst))
    usual = values(behavior, worst)
    final, left = groups["final"].last().astype(int), horizon - length
    goes_on = [0.0 if end else usual[n][s] for end, n, s in zip(ended, left, final, strict=True)]
    taken = audit.target[log["state"], log["action"]]
    if "chosen" in log:
        taken = (log["chosen"] == log["action"]).to_numpy().astype(float)
        share = pd.crosstab(log["state"], log["chosen"], normalize="index")
        np.testing.assert_allclose(audit.target[share.index][:, share.columns], share)
    given = log["propensity"] if "propensity" in log else behavior[log["state"], log["action"]]
    weight = pd.Series(taken / np.asarray(given)).groupby(log["episode"], sort=False).prod()
    lost = not (ended | (length >= horizon)).all()
    return {
        "Observed": float(total.mean()),
        **({"Observed, continued": float((total + goes_on).mean())} if lost else {}),
        "IS": float((weight * total).mean()),
        "WIS": float((weight * total).sum() / weight.sum()) if weight.any() else np.nan,
        "FQE": float(values(audit.target, 0.0)[-1][first].mean()),
        "MB": float(values(audit.target, worst)[-1][first].mean()),
    }
