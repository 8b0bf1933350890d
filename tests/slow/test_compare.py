"""Several policies on one log: paired differences, from questions and from audit folders."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import butfor as bf
from butfor.audit.audit import Audit
from butfor.audit.compare import compare_audits, replay_of
from butfor.cli.main import app
from butfor.evaluate.compare import COMPARED, compare_policies
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.intervals import LEARNED
from butfor.models.simulate import simulate_model
from tests.builders import small_world


@pytest.fixture(scope="module")
def setting():
    """A log in which every pair was seen, its model and two policies."""
    log = simulate_model(small_world(), np.full((3, 2), 0.5), 150, horizon=4)
    one = np.full((3, 2), [0.7, 0.3])
    return log, bf.fit_mdp(log), one, one[:, ::-1]


def test_a_policy_compared_with_itself_is_no_different(setting):
    log, model, one, _ = setting
    replay = bf.Replay(log, model, one)
    found = compare_policies({"a": replay, "same": replay.ask(target=one)})
    gaps = found[found["policy"] == "same"][["difference", "low", "high"]]
    np.testing.assert_array_equal(gaps, np.zeros((len(COMPARED), 3)))


def test_differences_are_those_of_the_estimates_and_have_the_opposite_sign_reversed(setting):
    log, model, one, other = setting
    replays = {"a": bf.Replay(log, model, one), "b": bf.Replay(log, model, other)}
    found = compare_policies(replays).set_index(["estimator", "policy"])
    back = compare_policies({"b": replays["b"], "a": replays["a"]})
    back = back.set_index(["estimator", "policy"])
    values = {
        name: bf.estimate_values(replay, estimators=COMPARED).set_index("estimator")
        for name, replay in replays.items()
    }
    for name in COMPARED:
        gap = values["b"].loc[name, "value"] - values["a"].loc[name, "value"]
        assert found.loc[(name, "b"), "difference"] == pytest.approx(gap, abs=1e-12)
        low, high = found.loc[(name, "b"), ["low", "high"]]
        assert low < gap < high
        assert back.loc[(name, "a"), ["low", "high"]].tolist() == pytest.approx([-high, -low])


def test_what_both_policies_share_cancels(setting):
    log, model, one, _ = setting
    near = one.copy()
    near[0] = [0.69, 0.31]
    replays = {"a": bf.Replay(log, model, one), "near": bf.Replay(log, model, near)}
    found = compare_policies(replays).set_index(["estimator", "policy"])
    own = bf.estimate_values(replays["near"], estimators=COMPARED).set_index("estimator")
    for name in COMPARED:
        paired = np.diff(found.loc[(name, "near"), ["low", "high"]].to_numpy(float))[0]
        alone = own.loc[name, "high"] - own.loc[name, "low"]
        assert 0 < paired < alone / 5, name


def test_policies_that_cannot_be_paired_are_refused(setting):
    log, model, one, other = setting
    replay = bf.Replay(log, model, one)
    several = [
        ({"a": replay}, "one policy only"),
        ({"a": replay, "b": replay.part(range(9))}, "about different episodes"),
        ({"a": replay, "b": bf.Replay(log, model, other, horizon=2)}, "use the same for both"),
    ]
    for replays, message in several:
        with pytest.raises(ValueError, match=message):
            compare_policies(replays)
    found = compare_policies({"a": replay, "b": replay.ask(target=other)}, learned=["b"])
    assert found["low"].isna().all()
    named = LEARNED.replace("no interval", "no interval, because of b")
    assert set(found["warning"]) == {"", named}


def test_an_audit_folder_holds_its_question(setting, tmp_path):
    log, model, one, _ = setting
    generator = np.random.default_rng(1)
    rows = generator.dirichlet(np.ones(2), len(log.state))
    known = log.with_behavior_probability(generator.uniform(0.2, 0.9, len(log.state)))
    known = known.with_target_probability(rows)
    for target in (one, bf.row_policy(known)):
        replay = bf.Replay(known, model, target, discount=0.9)
        folder = bf.run_audit(replay, draws=0, flags=1).save(
            tmp_path / str(len(set(tmp_path.iterdir())))
        )
        again = replay_of(Audit.load(folder))
        assert again.by_row == replay.by_row
        one_sample, other = EpisodeColumns(replay), EpisodeColumns(again)
        np.testing.assert_array_equal(other.ratio, one_sample.ratio)
        np.testing.assert_allclose(other.columns.base, one_sample.columns.base, atol=1e-12)


STUDY = """
[columns]
episode = "episode"
outcome = "end"
[state.level]
levels = ["low", "high"]
[action.drug]
levels = ["none", "full"]
[outcome.well]
reward = 1.0
[outcome.ill]
reward = 0.0
bad = true
"""


def test_the_command_audits_several_targets_and_compares_them(tmp_path):
    generator = np.random.default_rng(0)
    rows = []
    for episode in range(120):
        drug = generator.choice(["none", "full"])
        end = "well" if generator.random() < (0.8 if drug == "full" else 0.3) else "ill"
        rows.append({"episode": episode, "level": "low", "drug": drug, "end": end})
    pd.DataFrame(rows).to_csv(tmp_path / "log.csv", index=False)
    (tmp_path / "study.toml").write_text(STUDY)
    for drug in ("none", "full"):
        (tmp_path / f"{drug}.csv").write_text(f"level,drug\n*,{drug}\n")
    command = ["audit", tmp_path / "log.csv", "--study", tmp_path / "study.toml", "--models", "0"]
    command += ["--flags", "2", "--review-size", "4", "--intervals", "2"]
    command += ["--target", tmp_path / "none.csv", "--target", tmp_path / "full.csv"]
    done = CliRunner().invoke(app, [*map(str, command), "--out", str(tmp_path / "both")])
    assert done.exit_code == 0, done.output
    assert "How much better than none?" in done.output
    table = pd.read_csv(tmp_path / "both" / "comparison.csv")
    gap = table[(table["policy"] == "full") & (table["estimator"] == "CF")].iloc[0]
    assert gap["low_difference"] < 0.5 < gap["high_difference"]
    assert gap["low_difference"] > 0.2
    folders = [str(tmp_path / "both" / name) for name in ("none", "full")]
    out = tmp_path / "again"
    again = CliRunner().invoke(app, ["compare", *folders, "--out", str(out), "--json"])
    printed = json.loads(again.stdout)
    assert [row["policy"] for row in printed["policies"][:2]] == ["none", "full"]
    pd.testing.assert_frame_equal(pd.read_csv(out / "comparison.csv"), table)
    assert re.search("How much better than none", (out / "comparison.svg").read_text())
    assert compare_audits({name: Audit.load(name) for name in folders})["value"].notna().all()
    for name in ("comparison.csv", "comparison.svg"):
        for other in ("comparison.csv", "comparison.svg"):
            (out / other).unlink(missing_ok=True)
        (out / name).write_text("mine")
        line = ["compare", *folders, "--out", str(out)]
        told = CliRunner().invoke(app, line)
        assert told.exit_code == 2
        assert f"{name} exists" in told.stderr
        assert (out / name).read_text() == "mine"
        assert CliRunner().invoke(app, [*line, "--overwrite"]).exit_code == 0
        assert (out / name).read_text() != "mine"
    line = [*map(str, command), "--out", str(out)]
    assert "comparison.csv exists" in CliRunner().invoke(app, line).stderr
    assert not (out / "none").exists()
    twice = CliRunner().invoke(app, ["compare", folders[0], folders[0]])
    assert "is given twice" in twice.stderr
