"""Logs of events in the Medical Event Data Standard."""

import json
import re
import tomllib

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from butfor.audit.settings import SUMMARY, AuditSettings
from butfor.audit.shards.count import half_of
from butfor.audit.source import audit_into
from butfor.evaluate.crossfit import cross_fitted, evaluate_half, learn_from, split_halves
from butfor.log.draft import draft
from butfor.log.meds import events
from butfor.log.read import read_log
from butfor.log.study import read_study
from butfor.log.write import write_episodes
from butfor.models.fit import fit_mdp
from butfor.models.planning import policy_iteration
from butfor.random import episode_keys, numbered_keys
from butfor.replay.replay import Replay
from tests.meds_data import STUDY, write_data, write_events
from tests.reference.meds import decisions_of


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("meds") / "data set"
    write_data(folder, subjects=160, shards=3)
    return folder


def example(**changes):
    """Return the study of the example with some sections changed."""
    content = tomllib.loads(STUDY.read_text())
    for key, part in changes.items():
        content[key] = content.get(key, {}) | part
    return content


def levels(log, name):
    """Return the level codes of a state or action variable in each row."""
    if name in (variable.name for variable in log.state_variables):
        return log.codes(log.state)[name].tolist()
    return log.action.tolist()


def test_the_data_set_of_the_example_is_valid_by_the_schema_classes(data):
    meds = pytest.importorskip("meds", reason="the package meds is not installed")
    for path in (data / "data").rglob("*.parquet"):
        meds.DataSchema.validate(pq.read_table(path))
    metadata = data / "metadata"
    meds.SubjectSplitSchema.validate(pq.read_table(metadata / "subject_splits.parquet"))
    meds.CodeMetadataSchema.validate(pq.read_table(metadata / "codes.parquet"))
    meds.DatasetMetadataSchema.validate(json.loads((metadata / "dataset.json").read_text()))


def test_the_names_are_those_of_the_standard():
    meds = pytest.importorskip("meds", reason="the package meds is not installed")
    assert tuple(meds.DataSchema.required_columns()) == events.REQUIRED
    assert set(events.VALUES) == set(meds.DataSchema.optional_columns())
    assert meds.code_metadata_filepath == events.CODES
    assert meds.subject_splits_filepath == events.SPLITS
    assert meds.death_code == events.DEATH


def test_events_are_read_as_by_the_slow_twin(data):
    log = read_log(data, STUDY).episodes
    expected = pd.DataFrame(decisions_of(data))
    assert np.repeat(log.id, log.lengths).tolist() == expected.stay.tolist()
    assert log.time.tolist() == expected.time.tolist()
    for name in ("lactate", "heart_rate", "norepinephrine"):
        assert levels(log, name) == expected[name].tolist(), name
    assert log.side.gender[: len(expected)].tolist() == expected.gender.tolist()
    ends = expected.groupby("stay", sort=False).outcome.first()
    assert [log.outcome_names[end] for end in log.outcome] == ends.tolist()
    assert log.returns().tolist() == ends.map({"died": -1.0, "discharged": 1.0}).tolist()
    assert (ends == "died").any()


# A subject with a stay from hour 1 to 9.5: steps of four hours begin at 1, 5 and 9. The dose at 5
# is in the second step. Pulse 60 at hour 0 is before the stay, 99 at hour 10 after it.
STAY = [
    (7, None, "SEX//F"),
    (7, 0, "PULSE", 60),
    (7, 1, "IN//ICU"),
    (7, 2, "PULSE", 70.1),
    (7, 2, "PULSE", 80),
    (7, 3, "PULSE"),
    (7, 5, "DOSE", 2),
    (7, 6, "RHYTHM", None, "sinus"),
    (7, 9.5, "OUT//HOME"),
    (7, 10, "PULSE", 99),
]
BY_HAND = {
    "source": {
        "format": "meds",
        "start": "IN//*",
        "end": "OUT//*",
        "columns": {"pulse": "PULSE", "dose": "DOSE"},
        "outcomes": {"died": "MEDS_DEATH", "home": "OUT//HOME"},
    },
    "time": {"every": "4h"},
    "state": {"pulse": {"cuts": [70.1, 80]}},
    "action": {"dose": {"cuts": [1]}},
    "outcome": {"died": {"reward": -1.0, "bad": True}, "home": {"reward": 1.0}},
}


def by_hand(**changes):
    """Return the study by hand, with keys of [source] or whole sections changed."""
    source = BY_HAND["source"] | {k: v for k, v in changes.items() if k not in BY_HAND}
    sections = {key: part for key, part in changes.items() if key in BY_HAND}
    return {**BY_HAND, **sections, "source": source | sections.get("source", {})}


def test_a_stay_by_hand(tmp_path):
    reading = read_log(write_events(tmp_path, [*STAY, (8, 0, "MEDS_DEATH")]), by_hand())
    log = reading.episodes
    assert log.id.tolist() == ["7-1"]
    assert log.state.tolist() == [2, 2, 2]  # 80 is the last value of the first step
    assert log.action.tolist() == [0, 1, 0]  # the last step is a decision: nothing was given
    assert log.reward.tolist() == [0, 0, 1]
    assert log.outcome.tolist() == [1]
    assert reading.done["events: outside of every episode, left out"] == 2
    assert reading.done["pulse: events without a numeric value, left out"] == 1


def test_single_precision_does_not_move_a_value_across_a_cut(tmp_path):
    assert float(np.float32(70.1)) < 70.1
    events = [event for event in STAY if event[3:] != (80,)]
    log = read_log(write_events(tmp_path, [*events, (8, 0, "MEDS_DEATH")]), by_hand()).episodes
    assert log.state.tolist() == [1, 1, 1]


def test_an_end_between_steps_and_one_at_a_step(tmp_path):
    for hour, steps in ((8.9, 2), (9, 2), (9.1, 3)):
        events = [e for e in STAY if e[1] is None or e[1] < 9] + [(7, hour, "OUT//HOME")]
        folder = write_events(tmp_path / str(hour), [*events, (8, 0, "MEDS_DEATH")])
        assert read_log(folder, by_hand()).episodes.lengths.tolist() == [steps]


def test_the_first_outcome_listed_counts_also_within_days_of_the_end(tmp_path):
    folder = write_events(tmp_path, [*STAY, (7, 40, "MEDS_DEATH")])
    for within, outcome in ((None, 1), ("30h", 1), ("31h", 0)):
        changes = {} if within is None else {"outcome_within": within}
        log = read_log(folder, by_hand(**changes)).episodes
        assert (log.outcome.tolist(), log.lengths.tolist()) == ([outcome], [3])


def test_a_stay_without_an_end_lasts_to_its_outcome_or_to_the_next(tmp_path):
    events = [
        (7, 0, "IN//ICU"),
        (7, 0, "PULSE", 70),
        (7, 6, "MEDS_DEATH"),
        (7, 7, "PULSE", 90),
        (8, 0, "IN//ICU"),
        (8, 1, "PULSE", 70),
        (8, 9, "PULSE", 90),
        (8, 20, "IN//ICU"),
        (8, 20, "PULSE", 75),
        (8, 22, "OUT//HOME"),
    ]
    reading = read_log(
        write_events(tmp_path, [*events, (9, 0, "DOSE", 0)]),
        by_hand() | {"problems": {"no_outcome": "keep"}},
    )
    log = reading.episodes
    assert log.id.tolist() == ["7-1", "8-1", "8-2"]
    assert log.outcome.tolist() == [0, -1, 1]
    assert log.lengths.tolist() == [2, 2, 1]
    assert log.next_state[log.offsets[2] - 1] == 2  # the last value before the next stay
    assert reading.done["events: episodes without an end code"] == 1


def test_a_subject_is_an_episode_unless_a_start_is_named(tmp_path):
    study = by_hand(start=None, end=None)
    study["source"] = {k: v for k, v in study["source"].items() if v is not None}
    log = read_log(
        write_events(tmp_path, [*STAY, (8, 0, "MEDS_DEATH")]),
        study | {"problems": {"no_transition": "drop", "missing_state": "drop", "drop_at_most": 1}},
    ).episodes
    assert log.id.tolist() == [7]
    assert log.lengths.tolist() == [3]  # from 0 to 9.5, the time of the outcome
    assert log.state.tolist() == [2, 2, 2]


def test_levels_come_from_codes_texts_or_what_the_star_stands_for(tmp_path):
    study = by_hand(
        columns={
            "sex": "SEX//*",
            "rhythm": "RHYTHM",
            "treated": {"yes": ["DOSE", "NOTHING*"], "no": "IN//*"},
            "pulse": "PULSE",
        },
        state={"sex": {"levels": ["M", "F"], "static": True}},
        action={"treated": {"levels": ["no", "yes"]}},
    )
    study["side"] = {"rhythm": {}, "pulse": {"type": "number"}}
    folder = write_events(tmp_path, [*STAY, (8, 0, "MEDS_DEATH"), (8, 1, "NOTHING//AT ALL")])
    log = read_log(folder, study).episodes
    assert log.state.tolist() == [1, 1, 1]
    assert log.action.tolist() == [0, 1, 0]
    assert log.side.rhythm[:3].fillna("").tolist() == ["", "sinus", ""]
    assert log.side.pulse[:2].tolist()[0] == 80


def test_the_splits_to_read_and_those_of_cross_fitting(data):
    kept = read_log(data, example(source={"splits": ["held_out"]})).episodes
    splits = pq.read_table(data / "metadata" / "subject_splits.parquet").to_pandas()
    held = set(splits.subject_id[splits.split == "held_out"])
    assert {int(name.split("-")[0]) for name in kept.id} == held
    log = read_log(data, example(source={"first_half": ["train"]})).episodes
    assert [int(name.split("-")[0]) in held for name in log.id] == log.half.astype(bool).tolist()

    def learn(episodes):
        model = fit_mdp(episodes)
        return model, policy_iteration(model)

    replay = Replay(log, *learn_from(learn, log))
    found = cross_fitted(replay, learn, seed=3)
    parts = [log.select(log.half == half) for half in (0, 1)]
    learned = [learn(part) for part in parts]
    key = int(numbered_keys(3, 1, "crossfit")[0])
    expected = np.array(
        [
            evaluate_half(replay, parts[half], learned[half][0], learned[1 - half][1], key)
            for half in (0, 1)
        ]
    )
    assert found.model_based.tolist() == [expected[:, 0].tolist()]  # one split
    assert found.counterfactual.mean() == pytest.approx(expected[:, 1].mean(), abs=1e-12)


def test_stays_of_a_subject_stay_together_in_random_halves_groups_and_shards(data, tmp_path):
    log = read_log(data, STUDY).episodes
    whose = np.array([int(name.split("-")[0]) for name in log.id])
    assert log.unit.tolist() == whose.tolist()
    assert len(np.unique(whose)) < len(log)
    for key in range(5):
        one, other = split_halves(log, key)
        assert not set(whose[one]) & set(whose[other])
    half = half_of(log, episode_keys(0, log.unit, "shards"))
    assert not set(whose[half == 0]) & set(whose[half == 1])
    assert log.select([3, 1]).subject.tolist() == whose[[3, 1]].tolist()
    write_episodes(log, tmp_path / "log.parquet", tmp_path / "study.toml")
    again = read_log(tmp_path / "log.parquet", tmp_path / "study.toml").episodes
    assert again.unit.tolist() == whose.tolist()


def test_a_table_can_name_subjects_too():
    frame = pd.DataFrame({"stay": [1, 2, 2, 3], "who": ["a", "b", "b", "a"], "s": 0, "a": 0})
    frame["end"] = ["home", None, "home", "home"]
    study = {
        "columns": {"episode": "stay", "subject": "who", "state": "s", "action": "a"},
        "outcome": {"home": {"reward": 1.0}},
    }
    study["columns"]["outcome"] = "end"
    assert read_log(frame, study).episodes.unit.tolist() == ["a", "b", "a"]
    for wrong in (["a", "b", "a", "a"], ["a", "b", None, "a"]):
        with pytest.raises(ValueError, match="subject: an episode has no 'who', or several"):
            read_log(frame.assign(who=wrong), study)


# ------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"end": None, "start": None, "outcome_within": "3d"}, "add end = "),
        ({"outcome_within": 3.0}, 'write "30d"'),
        ({"columns": {"pulse": "PULSE"}}, r"\[source.columns\]: no codes for 'dose'; add dose"),
        (
            {"columns": BY_HAND["source"]["columns"] | {"extra": "X"}},
            r"\[source.columns\] extra: nothing uses it; add one of \[state.extra\]",
        ),
        ({"columns": {"pulse": "PULSE", "dose": 3}}, "dose: 3: expected a code in quotes"),
        ({"columns": {"pulse": "PULSE", "dose": {"x": "DOSE"}}}, "the column holds numbers"),
        ({"outcomes": {"died": "MEDS_DEATH"}}, r"\[source.outcomes\]: no codes for 'home'"),
        (
            {"outcomes": {"died": "MEDS_DEATH", "home": "H", "lost": "L"}},
            "there is no .outcome.lost",
        ),
        ({"format": "fhir"}, "expected 'meds'"),
        ({"splits": ["train"], "first_half": ["train"]}, "nothing is left for the other half"),
    ],
)
def test_mistakes_of_the_section_are_told(changes, message):
    study = by_hand(**changes)
    study["source"] = {k: v for k, v in study["source"].items() if v is not None}
    with pytest.raises(ValueError, match=message):
        read_study(study)


def test_a_grid_is_needed_and_columns_that_events_lack_are_refused():
    study = {key: part for key, part in BY_HAND.items() if key != "time"}
    with pytest.raises(ValueError, match=r"\[time\] every: missing"):
        read_study(study)
    with pytest.raises(ValueError, match=r"\[columns\] reward: events have no such column"):
        read_study(BY_HAND | {"columns": {"reward": "gain"}})


def test_a_folder_without_data_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"there is no data/\*\.parquet; a MEDS data set is"):
        read_log(tmp_path, by_hand())
    with pytest.raises(ValueError, match="give the folder of the data set, not a DataFrame"):
        read_log(pd.DataFrame(), by_hand())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.rename_columns(["patient_id", *t.column_names[1:]]), "missing: subject_id"),
        (lambda t: t.drop_columns("numeric_value"), "no numeric_value, which 'pulse' needs"),
        (
            lambda t: t.set_column(1, "time", t["time"].cast(pa.string())),
            "time has the type string, expected a timestamp",
        ),
        (
            lambda t: pa.concat_tables([t[5:], t[:5]]),
            "row 8, counted from 0: events of another subject come between those of subject 7",
        ),
        (
            lambda t: pa.concat_tables([t[:3], t[4:6], t[3:4], t[6:]]),
            "row 5, counted from 0: an event of subject 7 is earlier than the one before it",
        ),
    ],
)
def test_files_that_are_not_as_the_standard_says_are_refused(tmp_path, change, message):
    events = [*STAY, (8, 0, "MEDS_DEATH"), (8, 1, "PULSE", 60), (8, 2, "PULSE", 61)]
    folder = write_events(tmp_path, [(e[0], e[1], *e[2:]) for e in events])
    path = folder / "data" / "0.parquet"
    pq.write_table(change(pq.read_table(path)), path)
    with pytest.raises(ValueError, match=message):
        read_log(folder, by_hand())


def test_pieces_of_a_file_do_not_matter(data, tmp_path, monkeypatch):
    whole = read_log(data, STUDY).episodes
    monkeypatch.setattr(events, "PIECE", 7)
    pieces = read_log(data, STUDY).episodes
    for name in ("id", "state", "action", "next_state", "outcome", "offsets"):
        assert getattr(pieces, name).tolist() == getattr(whole, name).tolist()
    rows = [(1, 0, "PULSE", 60), *((2, hour, "PULSE", 60) for hour in range(12)), (1, 3, "PULSE")]
    with pytest.raises(ValueError, match=r"row 13, .*come between those of subject 1"):
        events.read_events(write_events(tmp_path / "a", rows) / "data" / "0.parquet", [])
    rows = [*((2, hour, "PULSE", 60) for hour in range(7)), (2, None, "SEX//F"), (2, 3, "PULSE")]
    with pytest.raises(ValueError, match=r"row 8, .*subject 2 is earlier"):
        events.read_events(write_events(tmp_path / "b", rows) / "data" / "0.parquet", [])


def test_codes_that_do_not_occur_are_told_with_similar_ones(tmp_path):
    folder = write_events(tmp_path, [*STAY, (8, 0, "MEDS_DEATH")])
    study = by_hand(columns={"pulse": "PULS", "dose": "DOES//*"})
    with pytest.raises(
        ValueError, match=r"\[source.columns\] pulse: no code is 'PULS'; close: 'PU"
    ):
        read_log(folder, study)
    with pytest.raises(ValueError, match=r"start: no code starts with 'ICU_ADMISSION//'"):
        audit_into(folder, STUDY, tmp_path / "audit", AuditSettings(detail=SUMMARY))


def test_a_subject_in_two_files_is_refused(tmp_path):
    folder = write_events(tmp_path, [*STAY, (8, 0, "MEDS_DEATH")], STAY)
    with pytest.raises(ValueError, match=r"subject 7 is in two files, 0.parquet and 1.parquet"):
        read_log(folder, by_hand())


def test_a_split_that_does_not_exist_or_lacks_a_subject_is_told(tmp_path):
    events = [*STAY, (8, 0, "MEDS_DEATH")]
    folder = write_events(tmp_path, events, splits={8: "train", 9: "held_out"})
    with pytest.raises(ValueError, match=r"no split 'test' in .*there are held_out, train"):
        read_log(folder, by_hand(splits=["test"]))
    with pytest.raises(ValueError, match="subject 7 is in no split"):
        read_log(folder, by_hand(first_half=["train"]))


def test_problems_name_the_stay_and_the_time(tmp_path):
    events = [event for event in STAY if event[2] != "PULSE" or event[1] == 10]
    folder = write_events(tmp_path, [*events, (8, 0, "MEDS_DEATH")])
    with pytest.raises(ValueError, match="episode 7-1 at 2150-01-01 01:00:00"):
        read_log(folder, by_hand())


# --------------------------------------------------------------------------------------- drafts


def test_the_draft_of_the_example_can_be_read_and_asks_to_be_checked(data, tmp_path):
    found = draft(data)
    assert found.undecided == ""
    (tmp_path / "study.toml").write_text(found.text)
    study = read_study(tmp_path / "study.toml")
    assert study.source.start == ["ICU_ADMISSION//*"]
    assert study.source.outcomes["died"] == ["MEDS_DEATH", "ICU_DISCHARGE//DIED"]
    assert list(study.state) == ["heart_rate", "lactate"]
    assert list(study.action) == ["norepinephrine"]
    assert study.side["gender"].static
    assert study.time.every == "4h"
    for head in ("source", "time", "state.lactate", "action.norepinephrine", "outcome.died"):
        assert re.search(rf"# CHECK THIS: .*\n\[{head}\]", found.text), head
    files = (data / "data").rglob("*.parquet")
    largest = pq.read_table(max(files, key=lambda file: file.stat().st_size)).to_pandas()
    lactate = largest.numeric_value[largest.code == "LAB//LACTATE//mmol/L"].astype(float)
    expected = [float(f"{cut:.3g}") for cut in np.quantile(lactate, [1 / 3, 2 / 3])]
    assert study.state["lactate"].cuts == expected
    ours = read_log(data, study).episodes
    assert ours.lengths.tolist() == read_log(data, STUDY).episodes.lengths.tolist()
    roles = {one.column: one.role for one in found.findings}
    assert roles["INFUSION//NOREPINEPHRINE"] == "action norepinephrine"


def test_a_draft_names_columns_by_description_and_drugs_without_dose_by_level(tmp_path):
    events = [
        event
        for subject in (1, 2, 3)
        for event in (
            (subject, 0, "visit//IP"),
            (subject, 1, "LAB//220045//bpm", 60 + subject),
            (subject, 2, "drug_exposure_start//RxNorm//11124"),
            (subject, 30, "LAB//220045//bpm", 70 + subject),
            (subject, 40, "visit_end//IP"),
        )
    ]
    folder = write_events(tmp_path, events)
    listing = {"code": ["LAB//220045//bpm"], "description": ["Heart Rate"]}
    pq.write_table(pa.table(listing), folder / "metadata" / "codes.parquet")
    found = draft(folder)
    study = read_study(tomllib.loads(found.text))
    assert (study.source.start, study.source.end) == (["visit//*"], ["visit_end//*"])
    assert study.source.columns["heart_rate"] == {"": ["LAB//220045//bpm"]}
    assert list(study.source.columns.values())[-1] == {
        "yes": ["drug_exposure_start//RxNorm//11124"]
    }
    assert study.time.every == "1d"
    log = read_log(folder, study).episodes
    assert log.action.tolist() == [1, 0] * 3


def test_a_draft_without_drugs_says_what_is_missing(tmp_path):
    folder = write_events(tmp_path, [e for e in STAY if e[2] != "DOSE"])
    found = draft(folder)
    assert "[action]: no action" in found.undecided
    assert "CHECK THIS: reading 0.parquet with this draft finds" in found.text
