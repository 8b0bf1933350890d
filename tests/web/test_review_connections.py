"""The review under many connections, or slow ones: what is left to the server, as it is set up."""

import logging
import os
import socket
import time
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from butfor.review.serve import LINE_SECONDS, LINES, FewLines
from tests.review_site import server, small_audit

FEW = 20  # connections
LIMITED = f"import butfor.review.serve as serve; serve.MOST_CONNECTIONS = {FEW}"
FEW_FILES = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))"
HALF = b"GET / HTTP/1.1\r\nHost: "
ATTEMPT = (
    "POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    'Content-Type: application/json\r\nContent-Length: 18\r\n\r\n{{"reviewer":"ann"}}'
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_audit(flags=5).save(tmp_path_factory.mktemp("review") / "audit")


@contextmanager
def small_server(folder, log, *arguments, before):
    with (
        log.open("w") as stderr,
        server(folder, *arguments, before=before, stderr=stderr) as (_, base),
    ):
        yield base, int(base.rsplit(":", 1)[1])


def wait_for(status, base):
    """Ask until the answer has this status: connections open and close in their own time."""
    end = time.monotonic() + 15
    while httpx.get(base, timeout=15, verify=False).status_code != status:
        assert time.monotonic() < end, status
        time.sleep(0.1)


def half_open(stack, port, count, said=HALF):
    for _ in range(count):
        made = socket.create_connection(("127.0.0.1", port))
        stack.enter_context(made).sendall(said)


def test_requests_beyond_the_limit_are_refused_until_connections_close(folder, tmp_path):
    with small_server(folder, tmp_path / "log", before=LIMITED) as (base, port):
        with ExitStack() as stack:
            half_open(stack, port, FEW - 2)  # that of the next request is one, too
            wait_for(303, base)
            half_open(stack, port, 1)
            wait_for(503, base)
        wait_for(303, base)


def test_attempts_that_wait_after_wrong_tokens_keep_nobody_out(folder, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("ann 3f9c1e7ab2d84605c1f7e9a03b5d2864")
    tokens.chmod(0o600)
    wait = "import butfor.review.routes.sessions as s; s.FREE_FAILURES = 1; s.FIRST_DELAY = 60.0"
    with small_server(folder, tmp_path / "log", "--token-file", tokens, before=wait) as (
        base,
        port,
    ):
        assert httpx.post(f"{base}/api/v1/session", json={"reviewer": "ann"}).status_code == 401
        with ExitStack() as stack:
            half_open(stack, port, 100, said=ATTEMPT.format(port=port).encode())
            time.sleep(0.5)  # until they have been read
            assert httpx.get(base, timeout=15, verify=False).status_code == 303


@pytest.mark.skipif(os.name != "posix", reason="limits of files are those of POSIX")
def test_connections_beyond_the_files_fill_no_log_and_let_others_in_once_they_close(
    folder, tmp_path
):
    log = tmp_path / "log"
    with small_server(folder, log, before=FEW_FILES) as (base, port):
        with ExitStack() as stack:
            half_open(stack, port, 300)
            time.sleep(2)
        wait_for(303, base)
    assert 0 < len(log.read_text().splitlines()) < 20 * LINES  # each with a traceback


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
