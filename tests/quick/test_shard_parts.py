"""What is kept of a shard comes back, and nothing is waited for or replayed twice."""

import threading
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pytest

import butfor as bf
from butfor.audit.shards import Threads, packed, stitch
from butfor.audit.shards.coded import code_episodes, code_steps, decode_log, stored_log
from butfor.audit.shards.judge import find_twins
from butfor.audit.shards.packed import (
    PackedTable,
    pack_arrays,
    pack_table,
    table_file,
    unpack_arrays,
)


@pytest.fixture(scope="module")
def log():
    physician = bf.sepsis.behavior_policy("corrected")
    full = bf.sepsis.simulate(physician, 400, seed=5, version="corrected")
    return full.hide("glucose", "diabetes")


def store(folder, key, **tables):
    for name, table in tables.items():
        table_file(folder, name, key).write_bytes(pack_table(table))


def known_by_row(log):
    """The same log with all that may be known of its rows and episodes, and awkward ids."""
    ends = log.offsets[1:] - 1
    unknown = log.outcome >= 0
    following = log.next_state.copy()
    following[ends[unknown]] = -1  # a final state that was not logged
    generator = np.random.default_rng(0)
    chances = generator.dirichlet(np.ones(log.n_actions), len(log.state))
    names = np.array([f"Bett {number % 7}\n{number}" for number in range(len(log))], dtype=object)
    named = replace(
        log, next_state=following, id=names, subject=names[::-1].copy(), half=np.arange(400) % 2
    )
    taken = generator.uniform(0.1, 1, len(log.state))
    return named.with_behavior_probability(taken).with_target_probability(chances)


@pytest.mark.parametrize("known", [False, True])
def test_the_log_of_a_shard_comes_back(known, log, tmp_path):
    logged = known_by_row(log) if known else log
    store(tmp_path, "key", log=code_episodes(logged), rows=code_steps(logged, {}))
    again = stored_log(tmp_path, "key", replace(log.select([0]), side=None, recorded=None))
    for field in fields(logged):
        if field.name in ("side", "recorded"):  # for readers only
            continue
        one, other = getattr(logged, field.name), getattr(again, field.name)
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype, field.name
            np.testing.assert_array_equal(one, other, field.name)
        else:
            assert one == other, field.name
    assert stored_log(tmp_path, "another", log) is None


def test_a_column_for_readers_is_no_policy_whatever_its_name(log):
    named = log.side.rename(columns={log.side.columns[0]: "target_probability.0"})
    logged = replace(log, side=named)
    again = decode_log(code_episodes(logged), code_steps(logged, {}), log)
    assert again.target_probability is None


def test_some_rows_and_columns_of_a_table_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "BATCH", 10)
    table = pa.table({"a": np.arange(35), "b": [str(number) for number in range(35)]})
    store(tmp_path, "key", rows=table)
    stored = PackedTable(tmp_path, "rows", "key")
    assert stored.all().equals(table)
    for low, high in ((0, 35), (0, 10), (9, 11), (10, 20), (34, 35), (13, 32)):
        assert stored.rows(low, high).equals(table.slice(low, high - low)), (low, high)
    only = PackedTable(tmp_path, "rows", "key", ("b",).__contains__)
    assert only.rows(5, 25).equals(table.select(["b"]).slice(5, 20))


def test_arrays_come_back(tmp_path):
    arrays = {
        "limbs": np.arange(24).reshape(2, 3, 4),
        "none": np.empty(0),
        "names": np.array(["ä", "none"]),
    }
    (tmp_path / "part.npz").write_bytes(pack_arrays(arrays))
    again = unpack_arrays(tmp_path / "part.npz")
    assert again.keys() == arrays.keys()
    for name, array in arrays.items():
        assert again[name].dtype == array.dtype
        np.testing.assert_array_equal(again[name], array)


def courses(log):
    """Return the course of each episode as a tuple: the slow twin of `find_twins`."""
    return [
        (
            *zip(
                *(part[rows].tolist() for part in (log.state, log.action, log.reward)), strict=True
            ),
            int(log.next_state[rows][-1]),
            int(log.outcome[episode]),
        )
        for episode, rows in enumerate(
            slice(*ends) for ends in zip(log.offsets[:-1], log.offsets[1:], strict=True)
        )
    ]


def test_twins_are_the_episodes_of_equal_courses(log):
    first, course = find_twins(log)
    known = courses(log)
    assert 1 < len(first) < len(log)  # there are some
    assert [known.index(one) for one in known] == first[course].tolist()


def test_another_reward_makes_another_course(log):
    twins = log.select(np.repeat(np.arange(5), 2))
    assert len(find_twins(twins)[0]) == 5
    reward = twins.reward.copy()
    reward[twins.offsets[1]] += 1.0  # of the second episode
    assert len(find_twins(replace(twins, reward=reward))[0]) == 6


def test_an_end_or_an_unknown_state_makes_another_course():
    log = bf.Episodes.from_arrays(
        state=[0, 1, 0, 1, 0, 1, 0],
        action=[0, 0, 0, 0, 0, 0, 0],
        next_state=[1, 0, 1, -1, 1, 0, 1],
        offsets=[0, 2, 4, 6, 7],
        outcome=[0, 0, 1, -1],
        outcomes=[bf.Outcome("died", -1.0), bf.Outcome("left", 0.0)],
        states=2,
        actions=1,
    )
    assert find_twins(log)[0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("fit", [bf.fit_mdp, bf.fit_factored])
def test_twins_are_replayed_once_bit_for_bit(fit, log):
    model = fit(log)
    replay = bf.Replay(log, model, bf.policy_iteration(model).table)
    first, course = find_twins(log)
    some = replay.part(first).compute()
    again = replay.ask(behavior=replay.behavior).compute_as(some, course)
    replay.compute()
    assert again.outcomes().frame().equals(replay.outcomes().frame())
    np.testing.assert_array_equal(again.support(), replay.support())
    for name in ("influence", "mass", "earned", "evidence", "thin", "other", "apart"):
        ours, theirs = getattr(some.steps(), name), getattr(replay.steps(), name)
        np.testing.assert_array_equal(ours[course], theirs, name)


def test_ranges_of_ids_begin_with_shards_where_these_follow_each_other(monkeypatch):
    monkeypatch.setattr(stitch, "RANGE", 128)
    # 100 ids in each shard: of 128, 256 and 384, the nearest beginnings are 100, 300 and 400
    shards = np.split(np.arange(500), 5)
    assert stitch.divide_ids(shards) == [100, 300, 400]
    assert stitch.divide_ids(shards[::-1]) == [100, 300, 400]
    # a shard of 500 has no beginning nearby, and scattered ids none at all
    for other in ([np.arange(500)], [np.arange(500)[n::5] for n in range(5)]):
        cuts = stitch.divide_ids(other)
        assert cuts == sorted(set(cuts))
        assert len(cuts) >= 3
        assert not {100, 300, 400} & set(cuts)
    assert stitch.divide_ids([np.empty(0, np.int64), np.arange(100)]) == []


def test_the_next_shard_starts_before_a_result_is_kept():
    started = threading.Event()

    def work(shard, threads):
        if shard == "second":
            started.set()
        return threads

    for _ in Threads(1).run(work, ["first", "second"], {}):
        assert started.wait(timeout=30)
