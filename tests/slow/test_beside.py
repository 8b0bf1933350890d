"""The second process of the demonstration."""

import os
import signal
import subprocess
import sys

import pytest

from butfor.cli import beside
from butfor.cli.beside import second_process

ENDED = 30  # seconds, in which processes that should end do so on any machine


def test_it_is_another_process_and_ends_with_the_block():
    with second_process() as executor:
        number = executor.submit(os.getpid).result()
    assert number != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_an_error_is_that_of_the_work():
    with pytest.raises(ValueError, match="invalid literal"), second_process() as executor:
        executor.submit(int, "one").result()


def test_if_it_is_killed_the_message_says_so():
    with pytest.raises(OSError, match="second process was killed"), second_process() as executor:
        executor.submit(os._exit, 1).result()


@pytest.mark.parametrize("why", ["one core", "no semaphores"])
def test_where_it_cannot_help_a_thread_does_the_work(why, monkeypatch):
    def forbidden(*_, **__):
        raise PermissionError("semaphores")

    if why == "one core":
        monkeypatch.setattr(beside, "count_cores", lambda: 1)
    else:
        monkeypatch.setattr(beside, "ProcessPoolExecutor", forbidden)
    with second_process() as executor:
        assert executor.submit(os.getpid).result() == os.getpid()


def test_it_ends_when_the_first_is_killed():
    code = """
import os, time
from butfor.cli.beside import second_process
if __name__ == "__main__":
    with second_process() as executor:
        print(executor.submit(os.getpid).result(), flush=True)
        executor.submit(time.sleep, 600).result()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as first:
        assert int(first.stdout.readline()) != first.pid
        first.kill()
        # both write to this pipe, so it is at its end when both have ended
        assert first.communicate(timeout=ENDED)[0] == b""


def test_control_c_is_for_the_first_alone_from_the_start():
    code = """
import os, signal, time
from butfor.cli.beside import second_process
if __name__ == "__main__":
    try:
        with second_process() as executor:
            os.killpg(0, signal.SIGINT)
            time.sleep(60)
    except KeyboardInterrupt:
        print("stopped")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, start_new_session=True, timeout=ENDED
    )
    assert (done.stdout, done.stderr) == (b"stopped\n", b"")


def test_control_c_during_the_demonstration_is_quiet_and_leaves_nothing(tmp_path):
    command = [sys.executable, "-m", "butfor", "demo", "--episodes", "60"]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as demo:
        assert demo.stderr.readline().startswith("Replaying")
        os.killpg(demo.pid, signal.SIGINT)  # as terminals do: to both processes
        said = demo.communicate(timeout=ENDED)[1]
    assert demo.returncode == 130
    assert "Stopped; nothing was left half-written." in said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())
