"""Processes that tests start and kill, forked from one that has imported what they need.

    with start(CODE, folder, name) as process:
        process.stdout.readline()
        process.kill()
    assert process.returncode == -signal.SIGKILL

A test would start Python and import all of it each time. The process of the tests itself is not
forked, since it has threads: this module, run as a program, is.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

MOST = 1 << 20  # bytes of a request
IMPORTED = ("butfor.cli.review", "butfor.review.store", "butfor.cli.audit")
PIPES = 4  # stdin, stdout, stderr, and one for the process id and the exit code


class Process:
    """A forked process, used as one of `subprocess`."""

    def __init__(self, pid, stdin, stdout, stderr, status):
        self.pid, self.returncode = pid, None
        self.stdin, self.stdout, self.stderr, self._status = stdin, stdout, stderr, status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stdin.close()
        self.wait()
        for file in (self.stdout, self.stderr, self._status):
            if file is not None:
                file.close()

    def poll(self):
        """Return the exit code, None while it runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.returncode = int(self._status.readline())
        return self.returncode

    def wait(self, timeout=60):
        """Wait for its end and return the exit code."""
        if self.returncode is None and not select.select([self._status], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("forked process", timeout)
        return self.poll()

    def send_signal(self, number):
        """Send a signal unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self):
        """End it at once."""
        self.send_signal(signal.SIGKILL)


@dataclass
class Forks:
    """The process from which others are forked; it starts when it is first needed."""

    process: subprocess.Popen | None = None
    channel: socket.socket | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, code, *arguments, stderr=None):
        """Run Python code with arguments in a process of its own.

        stdin and stdout are pipes, and stderr, unless a file is given for it.
        """
        with self.lock:
            self._ready()
            theirs, ours = zip(*(_pipe(number == 0) for number in range(PIPES)), strict=True)
            sent = list(theirs)
            if stderr is not None:
                sent[2] = stderr.fileno()
            request = json.dumps([code, *map(str, arguments)]).encode()
            socket.send_fds(self.channel, [request], sent)
            for end in theirs:
                os.close(end)
        stdin, stdout, errors, status = (
            os.fdopen(end, "w" if number == 0 else "r") for number, end in enumerate(ours)
        )
        return Process(int(status.readline()), stdin, stdout, errors, status)

    def _ready(self):
        if self.process is None:
            self.channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with other:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "tests.processes", str(other.fileno())],
                    pass_fds=[other.fileno()],
                    cwd=Path(__file__).parents[1],
                )

    def stop(self):
        """End it, if it runs."""
        if self.process is not None:
            self.channel.close()
            self.process.wait(timeout=20)
            self.process = None


def _pipe(writes):
    """Return the other's end of a new pipe, and ours, with which we write or read."""
    read, write = os.pipe()
    return (read, write) if writes else (write, read)


FORKS = Forks()
start = FORKS.start


def start_fresh(code, *arguments, stderr=None):
    """Run Python code in a process that imports everything itself."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if stderr is None else stderr,
        text=True,
    )


# ------------------------------------------------------------------------------- the other program


def serve(channel):
    """Fork a process for each request until the tests have ended."""
    for name in IMPORTED:
        import_module(name)
    watching = []
    while True:
        request, files, *_ = socket.recv_fds(channel, MOST, PIPES)
        if not request:
            break
        made = os.fork()
        if made == 0:
            channel.close()
            _watch(json.loads(request), files)
        watching.append(made)
        for file in files:
            os.close(file)
    for process in watching:
        os.waitpid(process, 0)


def _watch(request, files):
    """Run code in a child; write its process id at once, and its exit code when it ends."""
    *pipes, status = files
    child = os.fork()
    if child == 0:
        os.close(status)
        for place, file in enumerate(pipes):
            os.dup2(file, place)
            os.close(file)
        # those of the server remember what kind of files they had
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        os._exit(_run(*request))
    os.write(status, f"{child}\n".encode())
    for file in pipes:
        os.close(file)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(status, f"{code}\n".encode())
    os._exit(0)


def _run(code, *arguments):
    sys.argv = ["-c", *arguments]
    try:
        exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})
        ended = 0
    except SystemExit as error:
        ended = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        ended = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return ended


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as tests:
        serve(tests)
