"""Whoever reads reviews verifies them: damaged or altered ones are refused, never believed."""

import json
import random
import shutil
import sqlite3
from contextlib import closing, suppress

import pytest
from typer.testing import CliRunner

import butfor as bf
from butfor.cli.main import app as commands
from butfor.review import events, export
from butfor.review.plan import ReviewSettings
from butfor.review.queue import look
from butfor.review.results import summarize
from butfor.review.reviewer import (
    list_disagreements,
    note_overview,
    open_disagreement,
    settle,
    unsettle,
)
from butfor.review.serve import Address, serve
from butfor.review.store import Store, open_copy, verify_folder
from butfor.review.verdicts import (
    Chances,
    DamagedError,
    FieldError,
    RefusedError,
    ReviewError,
    StaleError,
    UnknownError,
    Verdict,
)
from tests.damage import count_flips
from tests.reference import review_tables as slow
from tests.review_site import change_file, small_audit
from tests.web.test_review_store import fake_audit

LOW, HIGH = Chances((9, 1, 0)), Chances((1, 9, 0))
TABLES = ("run", "stay", "place", "standing", "review", "settlement", "shown", "answer")


@pytest.fixture(scope="module")
def reviewed(tmp_path_factory):
    """An audit folder with a review: agreements, a settlement, a draft, and some not yet read."""
    folder = small_audit().save(tmp_path_factory.mktemp("reviewed") / "audit")
    with Store(folder) as store:
        run = store.open_run(small_audit(), ReviewSettings(repeat_share=0)).id
        ann, bob, eve = (store.join(run, name) for name in ("ann", "bob", "eve"))
        stays = [stay.episode for stay in store.stays(run)]
        for place, episode in enumerate(stays[:-2]):
            for reviewer, chances in ((ann, LOW), (bob, HIGH if place % 3 else LOW)):
                reviewer.answer(episode, chances, seconds=20)
                reviewer.submit(episode, Verdict(1 if place or reviewer is ann else 4), seconds=30)
        open_disagreement(eve, stays[0])
        settle(eve, stays[0], 1, "the record is right")
        ann.save_draft(stays[-1], {"comment": "half a thought"})
        bob.claim(stays[-2])
    return folder


@pytest.fixture
def folder(reviewed, tmp_path):
    return shutil.copytree(reviewed, tmp_path / "audit")


def told(*command):
    """What a command prints, and its exit code."""
    found = CliRunner().invoke(commands, [str(word) for word in command])
    return found.exit_code, found.output


def read_store(store):
    """All that a review says, drafts and claims aside."""
    run, audit = store.runs()[0].id, small_audit()
    return (
        store.events(),
        store.reviews(run),
        store.answers(run),
        store.settlements(run),
        [(stay.episode, stay.control, stay.final, stay.version) for stay in store.stays(run)],
        [(item.episode, item.review) for item in store.reviewer(run, "ann").queue().items],
        store.pseudonyms(),
        export.reviews_text(store, audit, "csv"),
        export.reviews_text(store, audit, "jsonl"),
        bf.expert_value(audit, store).value,
    )


def read_everywhere(folder):
    """What the server reads, and what every command and `expert_value` read, in a copy."""
    try:
        with open_copy(folder / "reviews.sqlite") as store:
            copied = read_store(store)
        with Store(folder) as store:
            assert copied == read_store(store)
    except ReviewError as error:
        raise ValueError(str(error)) from error
    return copied


def say_everything(folder, out):
    """What commands and Python make of the reviews in a folder."""
    out.mkdir(exist_ok=True)
    code, agreement = told("agreement", folder, "--json")
    assert code == 0, agreement
    for kind in ("csv", "jsonl"):
        code, words = told("review", folder, "--export", out / f"reviews.{kind}", "--overwrite")
        assert code == 0, words
    code, words = told("report", folder, "--episodes", 0, "--out", out / "r.html", "--overwrite")
    assert code == 0, words
    with Store(folder) as store:
        server = read_store(store), summarize(store, store.runs()[0].id, resamples=50)
    texts = [path.read_text() for path in sorted(out.iterdir())]
    return json.loads(agreement), texts, server, bf.expert_value(folder).value


def refusals(folder, out):
    """What each reader of the reviews says of them, which must be that they are damaged."""
    found = {
        name: told(*command)
        for name, command in {
            "agreement": ("agreement", folder),
            "report": ("report", folder, "--out", out / "report.html"),
            "export": ("review", folder, "--export", out / "reviews.csv"),
            "review": ("review", folder),
        }.items()
    }
    assert {name: code for name, (code, _) in found.items()} == dict.fromkeys(found, 2)
    assert not list(out.glob("re*"))
    for read in (bf.expert_value, Store, lambda where: serve(where, Address(), say=print)):
        with pytest.raises(DamagedError) as caught:
            read(folder)
        found[str(read)] = 2, str(caught.value)
    return [" ".join(words.split()) for _, words in found.values()]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET payload = replace(payload, '[9,1,0]', '[0,10,0]') WHERE id = 5",
        """UPDATE event SET payload = replace(payload, '"verdict":1', '"verdict":3')""",
        "UPDATE event SET reviewer = 'eve' WHERE reviewer = 'bob' AND action != 'join'",
        "DELETE FROM event WHERE id = (SELECT MAX(id) FROM event)",
        "UPDATE head SET hash = (SELECT hash FROM event WHERE id = 9), id = 9",
    ],
)
def test_every_reader_refuses_altered_events_and_says_what_to_do(folder, tmp_path, statement):
    change_file(folder / "reviews.sqlite", statement)
    for words in refusals(folder, tmp_path):
        assert "reviews.sqlite is damaged or was changed: event" in words
        assert "restore a backup" in words
    code, words = told("review", folder, "--verify")
    assert code == 1
    assert "BROKEN: event" in words


def test_tables_beside_the_events_are_no_way_to_alter_a_review(folder, tmp_path):
    with closing(sqlite3.connect(folder / "reviews.sqlite")) as connection:
        found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        assert {name for (name,) in found} == {"event", "head", "draft", "claim"}
    change_file(folder / "reviews.sqlite", "CREATE TABLE review (id INTEGER PRIMARY KEY)")
    for words in refusals(folder, tmp_path):
        assert "that butfor did not make" in words


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_files_of_every_version_open_verify_and_export_as_before(folder, tmp_path, version):
    if version < 3:  # which did not ask for chances
        (folder / "reviews.sqlite").unlink()
        with Store(folder) as store:
            asked = ReviewSettings(repeat_share=0, verdicts_only=True)
            run = store.open_run(small_audit(), asked).id
            for name in ("ann", "bob"):
                reviewer = store.join(run, name)
                for item in reviewer.queue().items[:6]:
                    reviewer.submit(item.episode, Verdict(1))
    commands_ = [("agreement", folder, "--json"), ("review", folder, "--verify")]
    before = [told(*command) for command in commands_]
    export.export_reviews(folder, tmp_path / "before.jsonl")
    slow.make_version(folder / "reviews.sqlite", version)
    old = (folder / "reviews.sqlite").read_bytes()
    assert [told(*command) for command in commands_] == before
    export.export_reviews(folder, tmp_path / "after.jsonl")
    assert (tmp_path / "after.jsonl").read_text() == (tmp_path / "before.jsonl").read_text()
    assert (folder / "reviews.sqlite").read_bytes() == old  # reading leaves it as it is
    for _ in range(2):
        with Store(folder) as store:
            assert store.verify().ok
    assert [told(*command) for command in commands_] == before


def altered_rows(connection):
    """Return a statement for each row and column of the tables that old files had."""
    found = []
    for table in TABLES:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        for (row,) in connection.execute(f"SELECT rowid FROM {table}").fetchall():
            for name in names:
                other = f"CASE WHEN typeof({name}) = 'integer' THEN {name} + 1 ELSE 'x' END"
                found.append(f"UPDATE OR IGNORE {table} SET {name} = {other} WHERE rowid = {row}")
            found.append(f"DELETE FROM {table} WHERE rowid = {row}")
    return found


def test_nothing_believes_the_tables_of_an_old_file(folder, tmp_path):
    truth = say_everything(folder, tmp_path / "out")
    path = folder / "reviews.sqlite"
    slow.make_version(path, 4)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE answer SET out_of_ten = '[0, 10, 0]'")
        connection.execute("UPDATE review SET verdict = 3")
        connection.execute("UPDATE stay SET control = 1 - control, highest = 5")
    code, words = told("review", folder, "--verify")
    assert (code, "The chain is intact." in words) == (0, True)
    assert say_everything(folder, tmp_path / "out") == truth


def check_old_rows(folder, share):
    truth, path = read_everywhere(folder), folder / "reviews.sqlite"
    slow.make_version(path, 4)
    content = path.read_bytes()
    with closing(sqlite3.connect(path)) as connection:
        statements = altered_rows(connection)
    assert len({statement.split()[-1] for statement in statements}) > 30
    for statement in random.Random(0).sample(statements, round(share * len(statements))):
        path.write_bytes(content)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)
        assert read_everywhere(folder) == truth, statement


def test_no_edit_of_a_row_of_an_old_file_is_believed(folder):
    check_old_rows(folder, 0.03)


@pytest.mark.exhaustive  # takes minutes
def test_no_edit_of_any_row_of_an_old_file_is_believed(folder):
    check_old_rows(folder, 1)


def check_flips(folder, flips):
    truth, path = read_everywhere(folder), folder / "reviews.sqlite"

    def read():
        for name in ("-wal", "-shm"):
            path.with_name(path.name + name).unlink(missing_ok=True)
        return read_everywhere(folder)

    found = count_flips([path], read, lambda result: result == truth, flips)
    print(dict(found))
    assert found[path.name, "SILENT"] == 0
    assert found[path.name, "reported"] > flips / 4


def test_no_flipped_bit_is_read_silently(folder):
    check_flips(folder, 120)


@pytest.mark.exhaustive  # takes minutes
def test_none_of_two_thousand_flipped_bits_is_read_silently(folder):
    check_flips(folder, 2000)


# ------------------------------------------------------------------------------- the fold as a twin


def compare_with_tables(store, tables, names):
    """Whether everything read equals what SQL makes of the tables of earlier versions."""
    slow.follow(tables, store.path)
    count = 0
    with store.file.reading() as transaction:
        state, then = transaction.state, slow.Tables(tables.connection, transaction.now)
        assert state.current == slow.current_run(then)
        assert state.pseudonyms == slow.read_pseudonyms(then)
        for run, known in state.runs.items():
            moment = look(transaction, run)
            assert known.run == slow.read_run(then, run)
            assert list(known.queues) == slow.read_joined(then, run)
            assert moment.stays() == slow.read_stays(then, run)
            assert moment.is_closed() == slow.is_closed(then, run)
            assert list(known.reviews.values()) == slow.read_reviews(then, run=run)
            assert list(known.answers.values()) == slow.read_answers(then, run=run)
            assert list(known.settlements.values()) == slow.read_settlements(then, run=run)
            for name in known.queues:
                assert moment.queue(name) == slow.read_queue(then, run, name)
                count += 1
            for episode in known.stays:
                held = [r for r in slow.read_reviews(then, run=run, episode=episode) if r.counts]
                assert known.held(episode) == held
    return count


def take_a_step(store, run, name, choose):
    """Let somebody do something, sensible or not."""
    reviewer = store.reviewer(run, name)
    kind = choose.choice(
        ["read"] * 8 + ["join", "skip", "withdraw", "settle", "open", "unsettle", "draft", "claim"]
    )
    if kind == "join":
        store.join(run, name)
        return
    queue = reviewer.queue()
    item = choose.choice(queue.items) if choose.random() < 0.3 else queue.next_item
    mine = [r.id for r in store.reviews(run, reviewer=name) if r.withdrawn_at is None]
    differ = list_disagreements(reviewer)
    if kind == "read" and item:
        if item.first_impression is None:
            reviewer.give_impression(item.episode, "hm", repeat=item.repeat)
        if store.run(run).outcomes and item.answer is None:
            cut = choose.randint(0, 10)
            cannot_tell = choose.random() < 0.2
            chances = Chances(None, reason="?") if cannot_tell else Chances((cut, 10 - cut, 0))
            reviewer.answer(item.episode, chances, repeat=item.repeat)
        if choose.random() < 0.85:
            verdict = Verdict(choose.choice([1, 1, 1, 4, 5]))
            reviewer.submit(item.episode, verdict, repeat=item.repeat)
    elif kind == "skip" and item:
        reviewer.skip(item.episode, repeat=item.repeat)
    elif kind == "draft" and item:
        reviewer.save_draft(item.episode, {"comment": "x"}, repeat=item.repeat)
    elif kind == "claim" and item:
        reviewer.claim(item.episode)
    elif kind == "withdraw" and mine:
        reviewer.withdraw(choose.choice(mine))
    elif kind in ("settle", "open") and differ:
        open_disagreement(reviewer, differ[0])
        if kind == "settle":
            settle(reviewer, differ[0], 1, "because")
    elif kind == "unsettle":
        given = [s for s in store.settlements(run) if s.withdrawn_at is None]
        own = [s for s in given if s.reviewer == name]
        for settlement in own or given[:1]:
            unsettle(reviewer, settlement.episode)


def check_random_reviews(folder, steps, seed):
    """Random reviews by two processes' worth of stores, each compared with the tables."""
    now, choose = [1_800_000_000.0], random.Random(seed)
    names, done, compared = ["ann", "bob", "cy", "di"], set(), 0
    chosen = ReviewSettings(repeat_share=0.3, repeat_minutes=5, first_impression=True)
    with (
        Store(folder, clock=lambda: now[0]) as one,
        Store(folder, clock=lambda: now[0]) as other,
        closing((tables := slow.in_memory()).connection),
    ):
        audits = [small_audit(), fake_audit()]
        for step in range(steps):
            audit = audits[step > 2 * steps / 3]  # the last third is another run
            run = one.open_run(audit, chosen).id
            now[0] += choose.choice([1, 30, 200, 900, -100])
            known = one.last_event()
            with suppress(FieldError, RefusedError, StaleError, UnknownError):
                take_a_step(choose.choice([one, other]), run, choose.choice(names), choose)
            done |= {event.action for event in one.events()[known:]}
            if step % 10 == 0 or step == steps - 1:
                compared += compare_with_tables(choose.choice([one, other]), tables, names)
        assert one.verify().ok
        assert one.events() == other.events()
        with Store(folder) as fresh:
            assert fresh.events() == one.events()
    return done, compared


EVERYTHING = {"join", "impression", "answer", "submit", "skip", "withdraw", "settle", "unsettle"}


def test_random_reviews_are_read_as_from_the_tables_of_earlier_versions(tmp_path):
    done, compared = check_random_reviews(tmp_path, 350, seed=1)
    assert done >= EVERYTHING | {"settling"}
    assert compared > 100


@pytest.mark.exhaustive  # takes minutes
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_random_reviews_are_read_as_from_the_tables_of_earlier_versions(tmp_path, seed):
    done, compared = check_random_reviews(tmp_path, 1500, seed)
    assert done >= EVERYTHING
    assert compared > 500


# -------------------------------------------------------------------------------- while it is open


def test_what_another_process_adds_is_verified_before_it_is_believed(folder):
    with Store(folder) as server, Store(folder) as other:
        run = server.runs()[0].id
        eve = other.reviewer(run, "eve")
        eve.answer(eve.queue().next_item.episode, LOW)
        assert server.answers(run) == other.answers(run)
        before, last = server.answers(run), server.last_event()
        change_file(
            folder / "reviews.sqlite",
            "INSERT INTO event SELECT id + 1, at, run, reviewer, episode, 'skip', payload, hash, "
            "hash FROM event WHERE id = (SELECT MAX(id) FROM event)",
            "UPDATE head SET id = id + 1",
        )
        for _ in range(2):  # it does not get used to it
            with pytest.raises(DamagedError, match=r"event \d+ was changed; restore a backup"):
                server.answers(run)
        change_file(
            folder / "reviews.sqlite",
            "DELETE FROM event WHERE id = (SELECT MAX(id) FROM event)",
            "UPDATE head SET id = id - 1",
        )
        assert (server.answers(run), server.last_event()) == (before, last)


def test_what_is_known_does_not_change_with_the_file_under_it(folder):
    with Store(folder) as server:
        run = server.runs()[0].id
        before = read_store(server)
        change_file(
            folder / "reviews.sqlite",
            """UPDATE event SET payload = replace(payload, '"verdict":1', '"verdict":3')""",
        )
        assert read_store(server) == before
        assert summarize(server, run, resamples=10).flagged[3].count == 0
        assert "was changed" in server.verify().problem
    assert not verify_folder(folder).ok


def test_nothing_is_remembered_that_could_not_be_kept(folder):
    with Store(folder) as store:
        run, before = store.runs()[0].id, read_store(store)
        with suppress(OSError), store.file.writing() as transaction:
            events.record(transaction, "overview", run=run, reviewer="eve")
            raise OSError("no space left on the disk")
        assert read_store(store) == before
        note_overview(store.reviewer(run, "eve"))
        assert [event.action for event in store.events()[len(before[0]) :]] == ["overview"]


def test_it_says_so_if_reading_takes_long(folder, monkeypatch, caplog):
    Store(folder).close()
    assert caplog.text == ""
    monkeypatch.setattr(events, "PATIENCE", 0.0)
    Store(folder).close()
    assert caplog.messages == [
        f"Reading the events of {folder / 'reviews.sqlite'} takes a moment …"
    ]
