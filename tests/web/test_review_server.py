"""The review as a separate process: killed while writing, and where it may listen."""

import asyncio
import socket
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import pytest

from butfor.review.serve import Address, listen
from butfor.review.store import Store
from tests.grids import few
from tests.processes import start
from tests.review_site import server, small_audit


@pytest.fixture
def folder(tmp_path):
    return small_audit(flags=20).save(tmp_path / "audit")


@contextmanager
def sign_in(base, name):
    # without TLS, and so without certificates, which take a while to read
    with httpx.Client(base_url=base, timeout=30, verify=False) as client:
        token = client.post("/api/v1/session", json={"reviewer": name}).json()["csrf"]
        client.headers["x-csrf-token"] = token
        yield client


def check_what_survives_a_kill(folder, least):
    """Kill a server in which eight reviewers were told that so many verdicts are kept."""
    said, answered = [], []
    lock = threading.Lock()
    chances = {"chances": {"died": 3, "discharged": 7, "still in ICU": 0}}

    def review_until_it_dies(client, stays):
        try:
            for turn in range(10_000):
                stay = stays[turn % len(stays)]
                if turn < len(stays):
                    given = client.post(f"/api/v1/episodes/{stay}/answer", json=chances)
                    if given.status_code == 201:
                        with lock:
                            answered.append(given.json()["version"])
                comment = f"{client.headers['x-csrf-token'][:8]} {turn}"
                body = {"verdict": 1 + turn % 5, "comment": comment, "variable": "x"}
                given = client.post(f"/api/v1/episodes/{stay}/reviews", json=body)
                if given.status_code == 201:
                    with lock:
                        said.append((given.json()["review"], comment))
                    path = f"/api/v1/reviews/{given.json()['review']}/withdraw"
                    client.post(path, json={})
        except httpx.TransportError:
            return

    with server(folder) as (process, base), ExitStack() as open_ones:
        clients = [open_ones.enter_context(sign_in(base, f"reviewer {i}")) for i in range(8)]
        stays = [item["slug"] for item in clients[0].get("/api/v1/queue").json()["items"]]
        with ThreadPoolExecutor(len(clients)) as pool:
            done = [pool.submit(review_until_it_dies, client, stays) for client in clients]
            while len(said) < least and not all(future.done() for future in done):
                threading.Event().wait(0.02)
            process.kill()
        for future in done:
            future.result()
    with Store(folder) as store:
        assert store.verify().ok
        run = store.runs()[0].id
        kept = {review.id: review.comment for review in store.reviews(run)}
        assert set(answered) <= {answer.id for answer in store.answers(run)}
    assert len(said) >= least  # and as many withdrawals
    assert [pair for pair in said if kept.get(pair[0]) != pair[1]] == []
    with server(folder) as (_, base), sign_in(base, "reviewer 0") as again:
        assert again.get("/api/v1/queue").status_code == 200
        following = again.get("/api/v1/queue/next").json()["next"]["slug"]
        again.post(f"/api/v1/episodes/{following}/answer", json=chances)
        body = {"verdict": 1}
        assert again.post(f"/api/v1/episodes/{following}/reviews", json=body).status_code == 201
    with Store(folder) as store:
        assert store.verify().ok


@pytest.mark.parametrize("verdicts", few([12, 40], 1))
def test_what_was_acknowledged_survives_a_kill(folder, verdicts):
    check_what_survives_a_kill(folder, verdicts)


def test_answers_go_out_at_once():
    """A connection of `listen` gets TCP_NODELAY from asyncio, which looks at its protocol."""
    nodelay = []

    async def serve_one():
        with listen(Address()) as listening:

            def take(reader, writer):
                made = writer.get_extra_info("socket")
                nodelay.append(made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
                writer.close()

            async with await asyncio.start_server(take, sock=listening):
                port = listening.getsockname()[1]
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                await reader.read()
                writer.close()

    asyncio.run(serve_one())
    assert nodelay == [1]


def test_it_stops_when_told_to_and_checks_the_host_on_the_wire(folder):
    with server(folder, fresh=True) as (process, base):
        assert httpx.get(base, headers={"host": "evil.example"}).status_code == 421
        answer = httpx.get(base)
        assert answer.status_code == 303
        assert "server" not in answer.headers
        process.terminate()
        assert process.wait(timeout=20) == 0
        told = process.stdout.read()
    with Store(folder) as store:  # whoever notes the head can find out what is lost later
        last = f"{store.verify().events} events; head {store.verify().head}"
    assert told.endswith(f"Stopped. {last}\nAll verdicts are kept.\n")


@pytest.mark.parametrize("name", ["event", "head", "sqlite_autoindex_claim_1"])
def test_it_tells_when_it_stops_of_damage_since_it_started(name, folder):
    """A file that was damaged under the server, whose memory may still have it as it was."""
    with Store(folder) as store:
        store.open_run(small_audit(flags=20))
    path = folder / "reviews.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        root = f"SELECT rootpage FROM sqlite_schema WHERE name = '{name}'"
        page = connection.execute(root).fetchone()[0] - 1
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    with server(folder) as (process, base):
        assert httpx.get(base).status_code == 303
        with path.open("rb+") as file:
            file.seek(page * size)
            file.write(b"\xff" * size)
        process.terminate()
        assert process.wait(timeout=20) == 1
        told, wrong = process.stdout.read(), process.stderr.read()
    assert "All verdicts are kept" not in told
    assert "Stopped. " in told
    assert "BROKEN: " in told, wrong


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    path.write_text("ann 3f9c1e7ab2d84605c1f7e9a03b5d2864\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"host": "0.0.0.0"}, "--token-file"),
        ({"host": "0.0.0.0", "token_file": True}, "--certificate"),
        ({"host": "0.0.0.0", "token_file": True, "behind_tls": True}, "--name"),
        ({"host": "192.168.1.5", "token_file": True}, "--behind-tls"),
        ({"certificate": True}, "--key"),
        ({"behind_tls": True}, "--token-file"),
        ({"host": "somewhere.example"}, "--token-file"),
        ({"token_file": Path("nowhere")}, "no file"),
    ],
)
def test_it_refuses_to_listen_where_strangers_can_come_in(tokens, options, words):
    paths = ("token_file", "certificate")
    given = {k: tokens if v is True and k in paths else v for k, v in options.items()}
    with pytest.raises((ValueError, OSError), match=words):
        Address(**given)


def test_a_key_that_everybody_can_read_is_refused(tmp_path):
    files = {"certificate": tmp_path / "review.pem", "key": tmp_path / "review.key"}
    for path in files.values():
        path.touch()
    for mode in (0o644, 0o604):
        files["key"].chmod(mode)
        with pytest.raises(ValueError, match=r"review\.key can be read by others.*chmod 600"):
            Address(**files)
    files["key"].chmod(0o640)  # a group of its own, as Debian has it
    assert Address(**files).tls


def test_the_command_does_not_start_for_strangers(folder):
    code = "from butfor.cli.main import run; run()"
    with start(code, "review", folder, "--host", "0.0.0.0") as process:
        try:
            assert process.wait(timeout=60) == 2
        finally:
            process.kill()
        assert "--token-file" in process.stderr.read()


def test_addresses_that_are_allowed(tokens):
    near = Address()
    assert near.hosts(8000) == {"127.0.0.1:8000", "localhost:8000", "[::1]:8000"}
    far = Address(host="0.0.0.0", token_file=tokens, behind_tls=True, names=["review.example"])
    assert {"review.example", "review.example:8000"} <= far.hosts(8000)
    assert far.tls
    assert "127.0.0.1" in Address(port=80).hosts(80)
