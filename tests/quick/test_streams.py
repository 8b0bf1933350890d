import subprocess
import sys
import threading
import time
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from butfor.random import check_seed, episode_keys, numbered_keys
from butfor.threads import in_blocks
from tests.support import PROPERTY

# keys


def test_keys_are_64_bit_numbers_one_per_episode():
    for keys in (episode_keys(0, np.arange(5), "draws"), numbered_keys(0, 5, "draws")):
        assert keys.dtype == np.uint64
        assert keys.shape == (5,)


@PROPERTY
@given(st.integers(0, 2**63 - 1))
def test_the_same_seed_gives_the_same_keys(seed):
    ids = np.array(["a", "b"])
    assert episode_keys(seed, ids, "draws").tolist() == episode_keys(seed, ids, "draws").tolist()
    assert numbered_keys(seed, 9, "draws").tolist() == numbered_keys(seed, 9, "draws").tolist()


def test_keys_do_not_depend_on_the_process():
    # the built-in hash of a string is another one in each process; a key is not
    code = (
        "import numpy as np; from butfor.random import episode_keys, numbered_keys;"
        "print(episode_keys(3, np.array(['a', 'b']), 'draws').tolist(),"
        "numbered_keys(3, 2, 'draws').tolist())"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    here = episode_keys(3, np.array(["a", "b"]), "draws"), numbered_keys(3, 2, "draws")
    assert printed.split("\n")[0] == f"{here[0].tolist()} {here[1].tolist()}"


def splitmix64(state):
    """Return the generator's next output in plain whole numbers (Steele, Lea and Flood 2014)."""
    mask = 2**64 - 1
    mixed = (state + 0x9E3779B97F4A7C15) & mask
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & mask
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
    return mixed ^ (mixed >> 31)


def test_the_slow_twin_gives_the_published_first_output():
    assert splitmix64(0) == 0xE220A8397B1DCDAF


def test_numbered_keys_are_splitmix64_from_a_digest_of_purpose_and_seed():
    start = int.from_bytes(blake2b(b"draws\x0011", digest_size=8).digest(), "little")
    expected = [splitmix64(start + number * 0x9E3779B97F4A7C15) for number in range(50)]
    assert numbered_keys(11, 50, "draws").tolist() == expected


def test_episode_keys_are_a_digest_of_purpose_seed_and_identifier():
    digest = blake2b(b"draws\x0011\x00stay 4", digest_size=8).digest()
    keys = episode_keys(11, np.array(["stay 4"]), "draws")
    assert keys.tolist() == [int.from_bytes(digest, "little")]


@pytest.mark.parametrize("other", [{"seed": 1}, {"purpose": "simulate"}])
def test_another_seed_or_purpose_gives_other_keys(other):
    def keys(seed=0, purpose="draws"):
        by_id = episode_keys(seed, np.arange(100), purpose)
        return np.concatenate([by_id, numbered_keys(seed, 100, purpose)])

    assert not np.intersect1d(keys(), keys(**other)).size


def test_the_key_of_an_episode_depends_on_no_other_episode():
    ids = np.array(["x", "y", "z"])
    every = episode_keys(5, ids, "draws")
    assert episode_keys(5, ids[[2, 0]], "draws").tolist() == every[[2, 0]].tolist()
    assert numbered_keys(5, 3, "draws").tolist() == numbered_keys(5, 99, "draws")[:3].tolist()


def test_keys_of_many_episodes_are_distinct():
    # by luck two of 10^5 among 2^64 agree w.p. 3e-10; numbered keys never do
    assert len(np.unique(episode_keys(0, np.arange(100_000), "draws"))) == 100_000
    assert len(np.unique(numbered_keys(0, 200_000, "draws"))) == 200_000


def test_purpose_seed_and_identifier_cannot_run_into_one_another():
    # "draws1" + 2 and "draws" + 12
    assert episode_keys(2, np.array(["a"]), "draws1") != episode_keys(12, np.array(["a"]), "draws")
    assert episode_keys(1, np.array(["2"]), "draws") != episode_keys(12, np.array([""]), "draws")


def test_a_numpy_seed_is_the_plain_one():
    assert check_seed(np.int64(7)) == 7
    assert numbered_keys(np.int32(7), 3, "draws").tolist() == numbered_keys(7, 3, "draws").tolist()


# blocks


@PROPERTY
@given(st.integers(0, 500), st.integers(1, 5), st.integers(1, 60))
def test_blocks_cover_every_index_once(count, threads, largest):
    touched = np.zeros(count, dtype=int)

    def work(start, stop):
        assert 0 <= start < stop <= count
        assert stop - start <= largest
        touched[start:stop] += 1

    in_blocks(work, count, threads=threads, largest=largest)
    assert touched.tolist() == [1] * count


@PROPERTY
@given(st.integers(1, 500), st.integers(1, 5), st.integers(1, 60))
def test_only_the_last_block_may_be_small(count, threads, smallest):
    sizes = {}

    def work(start, stop):
        sizes[start] = stop - start

    in_blocks(work, count, threads=threads, smallest=smallest)
    *others, last = (sizes[start] for start in sorted(sizes))
    assert sum(others) + last == count
    assert all(size >= smallest for size in others)


@PROPERTY
@given(st.integers(1, 500), st.integers(1, 5))
def test_progress_rises_and_reaches_the_total(count, threads):
    calls = []
    in_blocks(
        lambda start, stop: None,
        count,
        threads=threads,
        progress=lambda done, total: calls.append((done, total)),
    )
    done = [call[0] for call in calls]
    assert done == sorted(set(done))
    assert done[-1] == count
    assert {call[1] for call in calls} == {count}


def test_progress_is_reported_from_the_calling_thread():
    threads = set()
    in_blocks(
        lambda start, stop: None,
        100,
        threads=2,
        progress=lambda done, total: threads.add(threading.get_ident()),
    )
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("progress", [None, lambda done, total: None])
def test_a_single_thread_is_that_of_the_caller(progress):
    threads = set()
    in_blocks(
        lambda start, stop: threads.add(threading.get_ident()), 100, threads=1, progress=progress
    )
    assert threads == {threading.get_ident()}


def test_by_default_every_core_takes_part():
    touched = np.zeros(1000, dtype=int)

    def work(start, stop):
        touched[start:stop] += 1

    in_blocks(work, 1000)
    assert touched.tolist() == [1] * 1000


def test_nothing_to_do_is_done():
    in_blocks(lambda start, stop: pytest.fail("called"), 0)


@pytest.mark.parametrize("threads", [1, 4])
def test_an_exception_in_a_block_is_raised(threads):
    def work(start, stop):
        if start <= 57 < stop:
            raise KeyError("block of 57")

    with pytest.raises(KeyError, match="block of 57"):
        in_blocks(work, 100, threads=threads, largest=1)


def test_after_an_exception_no_block_is_started_or_still_running():
    started, running = [], []

    def work(start, stop):
        if start == 0:
            raise KeyError("first")
        started.append(start)
        running.append(start)
        time.sleep(0.005)
        running.remove(start)

    with pytest.raises(KeyError):
        in_blocks(work, 1000, threads=2, largest=1)
    assert running == []
    assert len(started) < 500  # all 1000 would take 2.5 s, the first fails at once


@pytest.mark.parametrize("problem", [RuntimeError, KeyboardInterrupt])
def test_an_exception_outside_the_blocks_is_raised_at_once(problem):
    # as when the user presses Ctrl-C, or a progress bar fails: in a thread, since it may hang
    raised = []

    def progress(done, total):
        raise problem("stop")

    def run():
        try:
            in_blocks(lambda start, stop: time.sleep(0.01), 200, threads=2, progress=progress)
        except problem as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout=3)  # all 200 would take some 0.2 s
    assert not thread.is_alive()
    assert len(raised) == 1


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_a_thread_count_that_is_no_count_is_refused(threads):
    with pytest.raises(ValueError, match=r"threads .*at least 1"):
        in_blocks(lambda start, stop: None, 1000, threads=threads)
