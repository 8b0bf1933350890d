"""The review under connections that send nothing, or slowly, in a process with few files."""

import logging
import os
import shlex
import shutil
import socket
import ssl
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from butfor.review.connections import LINE_SECONDS, LINES, FewLines
from tests.review_site import server, small_audit

FILES = 256
SECONDS = 1.0  # for headers
FEW_FILES = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))"
QUICKLY = f"import butfor.review.connections as limits; limits.HEADER_SECONDS = {SECONDS}"
HALF = b"GET / HTTP/1.1\r\nHost: "
LONG = 30_000_000  # bytes of an answer, more than buffers of sockets hold
LONG_ANSWERS = (
    f"import butfor.review.routes.pages as pages; pages._read_file = lambda name: bytes({LONG})"
)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="limits of files are those of POSIX")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_audit(flags=5).save(tmp_path_factory.mktemp("review") / "audit")


@pytest.fixture(scope="module")
def patient(folder, tmp_path_factory):
    """A server with few files; yields its address and port."""
    with small_server(folder, tmp_path_factory.mktemp("patient") / "log") as (_, base, port):
        yield base, port


@pytest.fixture(scope="module")
def quick(folder, tmp_path_factory):
    """One that does not wait long for headers; yields its process, address, port and log."""
    log = tmp_path_factory.mktemp("quick") / "log"
    before = f"{FEW_FILES}\n{QUICKLY}\n{LONG_ANSWERS}"
    with small_server(folder, log, before=before) as (process, base, port):
        yield process, base, port, log


@contextmanager
def small_server(folder, log, *arguments, before=FEW_FILES):
    with (
        log.open("w") as stderr,
        server(folder, *arguments, before=before, stderr=stderr) as (process, base),
    ):
        yield process, base, int(base.rsplit(":", 1)[1])


def half_open(stack, port, count, address="127.0.0.1", said=HALF):
    for _ in range(count):
        made = socket.create_connection(("127.0.0.1", port), source_address=(address, 0))
        stack.enter_context(made).sendall(said)


def closed_after(connection):
    """Return how long it takes until the other side closes a connection."""
    began = time.monotonic()
    connection.settimeout(20)
    with suppress(ConnectionResetError):
        assert connection.recv(1) == b""
    return time.monotonic() - began


def test_half_open_requests_keep_nobody_out_and_fill_no_log(quick):
    process, base, port, log = quick
    with ExitStack() as stack:
        half_open(stack, port, 300)
        assert httpx.get(base, timeout=15, verify=False).status_code == 303
        files = f"/proc/{process.pid}/fd"
        if Path(files).is_dir():  # of Linux
            assert len(os.listdir(files)) < FILES // 2 + 40
            end = time.monotonic() + SECONDS + 20
            while len(os.listdir(files)) >= 40:  # until all of them were given up
                assert time.monotonic() < end
                time.sleep(0.05)
    assert len(log.read_text().splitlines()) < 3 * LINES


def test_handshakes_that_never_end_keep_nobody_out(folder, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate")
    key, certificate, log = (tmp_path / name for name in ("key", "certificate", "log"))
    make = f"openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=x -keyout {key} -out {certificate}"
    subprocess.run(shlex.split(make), check=True, capture_output=True)
    key.chmod(0o600)
    given = ("--certificate", certificate, "--key", key)
    trusting = ssl._create_unverified_context()
    with (
        small_server(folder, log, *given, before=f"{FEW_FILES}\n{QUICKLY}") as (_, base, port),
        ExitStack() as stack,
    ):
        half_open(stack, port, 300, said=b"\x16")  # the first byte of a handshake
        answer = httpx.get(base, timeout=15, verify=trusting)
        assert answer.status_code == 303
        assert answer.headers["strict-transport-security"]
        with socket.create_connection(("127.0.0.1", port)) as silent:
            assert closed_after(silent) < SECONDS + 2
    assert len(log.read_text().splitlines()) < 3 * LINES


def test_headers_have_to_come_in_time_but_bodies_and_pauses_may_take_longer(quick):
    _, base, port, _ = quick
    with (
        socket.create_connection(("127.0.0.1", port)) as slow,
        socket.create_connection(("127.0.0.1", port)) as steady,
        httpx.Client(base_url=base, verify=False) as client,
    ):
        body = b'{"reviewer": "ann"}'
        head = f"POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        steady.sendall(head.encode())
        began = time.monotonic()
        with suppress(ConnectionError):
            for letter in HALF * 5:  # each byte in time, but never the end
                slow.sendall(bytes([letter]))
                time.sleep(SECONDS / 10)
        assert time.monotonic() - began < len(HALF) * SECONDS / 4
        steady.sendall(body)
        assert steady.recv(12) == b"HTTP/1.1 200"
        while not steady.recv(2**16).endswith(b"}"):
            pass
        steady.sendall(HALF)  # the next request has to come in time, too
        assert closed_after(steady) < SECONDS + 2
        assert client.get("/").status_code == 303
        for _ in range(2):  # on one connection, which is kept while it is used
            time.sleep(0.6 * SECONDS)
            assert client.get("/").status_code == 303


SLOW_BODY = (
    "POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
)
ATTEMPT = (
    "POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    'Content-Type: application/json\r\nContent-Length: 18\r\n\r\n{{"reviewer":"ann"}}'
)
LONG_GET = "GET /static/vega.js HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"


def test_slow_bodies_keep_nobody_out(patient):
    base, port = patient
    with ExitStack() as stack:
        for _ in range(FILES // 4 + 6):  # more than one address may have
            half_open(stack, port, 1, said=SLOW_BODY.format(port=port).encode())
            time.sleep(0.02)  # until the headers have been read
        assert httpx.get(base, timeout=15, verify=False).status_code == 303


def test_attempts_that_wait_after_wrong_tokens_keep_nobody_out(folder, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("ann 3f9c1e7ab2d84605c1f7e9a03b5d2864")
    tokens.chmod(0o600)
    wait = "import butfor.review.routes.sessions as s; s.FREE_FAILURES = 1; s.FIRST_DELAY = 60.0"
    with small_server(
        folder, tmp_path / "log", "--token-file", tokens, before=f"{FEW_FILES}\n{wait}"
    ) as (_, base, port):
        assert httpx.post(f"{base}/api/v1/session", json={"reviewer": "ann"}).status_code == 401
        with ExitStack() as stack:
            half_open(stack, port, FILES, said=ATTEMPT.format(port=port).encode())
            time.sleep(0.5)  # until they have been read
            assert httpx.get(base, timeout=15, verify=False).status_code == 303


def test_a_long_answer_may_be_read_for_longer_than_headers_may_take(quick):
    _, _, port, _ = quick
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(LONG_GET.format(port=port).encode())
        time.sleep(SECONDS + 1)
        read = 0
        while read < LONG and (part := slow.recv(2**20)):
            read += len(part)
        assert read >= LONG


def test_an_address_has_room_whatever_others_do(patient):
    _, port = patient
    with (
        ExitStack() as stack,
        socket.create_connection(("127.0.0.1", port)) as mine,
    ):
        mine.sendall(HALF)
        half_open(stack, port, 300, "127.0.0.2")
        mine.sendall(f"127.0.0.1:{port}\r\n\r\n".encode())
        mine.settimeout(5)
        assert mine.recv(12) == b"HTTP/1.1 303"


def test_a_place_in_the_code_logs_a_few_lines_and_later_how_many_were_left_out():
    now = [0.0]
    few = FewLines(lambda: now[0])

    def logged(line, text):
        record = logging.LogRecord("x", logging.ERROR, "file.py", line, text, ("a",), None)
        return record.getMessage() if few.filter(record) else None

    assert [logged(1, "%s") for _ in range(1000)] == ["a"] * LINES + [None] * (1000 - LINES)
    assert logged(2, "%s") == "a"
    now[0] = LINE_SECONDS
    assert logged(1, "%s") == f"a ({1000 - LINES} like it were not logged)"
    assert logged(1, "%s") == "a"
