"""The experts' view, from answers in a real store to pages, files, commands and Python."""

import io
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import butfor as bf
from butfor.audit.experts import NoEstimateError
from butfor.cli.main import app as commands
from butfor.review import export
from butfor.review.experts import view_experts
from butfor.review.plan import ReviewSettings, run_id
from butfor.review.reviewer import note_overview
from butfor.review.store import Store
from butfor.review.verdicts import Chances, Verdict
from tests.reference import experts as slow
from tests.review_site import Site, small_audit

RETURNS = (-1, 1, 0)
UNSURE = Chances(None, reason="no labs")


def chances(generator):
    return Chances(tuple(generator.multinomial(10, [0.5, 0.3, 0.2]).tolist()), sure="mid")


@pytest.fixture
def site(tmp_path):
    """A review: ann answers all and gives verdicts, bob most, eve after seeing the overview."""
    audit = small_audit(20)
    audit.save(tmp_path / "audit")
    # several stays come back: which ones follows from the secret, and one in sixty runs had none
    chosen = {"show_overview": True, "verdicts_only": False, "repeat_share": 0.2}
    made = Site(tmp_path / "audit", audit, **chosen)
    store, run = made.store, made.run.id
    generator = np.random.default_rng(0)
    ann, bob, eve = (store.join(run, name) for name in ("ann", "bob", "eve"))
    # sorted: controls come in an order that follows from the secret of the run
    episodes = sorted(stay.episode for stay in store.stays(run))
    for i, episode in enumerate(generator.permutation(episodes)):
        ann.answer(episode, UNSURE if i % 10 == 3 else chances(generator))
        ann.submit(episode, Verdict(1 + i % 2 * 4))
    for i, episode in enumerate(generator.permutation(episodes)[:-6]):
        unsure = ann.answers(episode)[0].out_of_ten is None
        bob.answer(episode, UNSURE if unsure else chances(generator))
        if i % 2:
            bob.submit(episode, Verdict(1))
    again = next(item for item in ann.queue().items if item.repeat)
    ann.answer(again.episode, Chances((10, 0, 0)), repeat=True)
    first = ann.reviews(episodes[0])[0]
    ann.withdraw(first.id)  # now two rows of the export have one answer
    ann.submit(episodes[0], Verdict(4))
    note_overview(eve)
    unread = next(e for e in episodes if not bob.answers(e))
    eve.answer(unread, Chances((10, 0, 0)))
    yield made
    made.store.close()


def complete(site):
    """Cases in the order of their second answer, with what both expect, by definition."""
    given, found = {}, {}
    for answer in site.store.answers(site.run.id):
        if answer.repeat or answer.informed:
            continue
        given.setdefault(answer.episode, []).append(answer.out_of_ten)
        if len(given[answer.episode]) == 2:
            told = [
                sum(n * r for n, r in zip(one, RETURNS, strict=True)) / 10
                for one in given[answer.episode]
                if one
            ]
            found[answer.episode] = sum(told) / len(told) if told else None
    return found


def numbers_of(path, *options):
    told = CliRunner().invoke(commands, ["agreement", str(path), *map(str, options), "--json"])
    assert told.exit_code == 0, told.output
    (found,) = json.loads(told.output).values()
    return found["experts"]["numbers"]


def test_page_file_command_and_python_give_the_same_numbers(site, tmp_path):
    folder, audit = tmp_path / "audit", site.audit
    cases = complete(site)
    untold = [name for name, value in cases.items() if value is None]
    assert len(cases) == 34
    assert len(untold) >= 1
    table = audit.episodes
    place = {str(name): i for i, name in enumerate(table["id"])}
    told = {place[name]: value for name, value in cases.items() if value is not None}
    value = slow.value(
        table["expected_return"].tolist(), table["stratum"].tolist(), told, told.values()
    )
    person = site.reviewer("ann")
    page = person.json("/results")["experts"]["numbers"]
    assert page["value"] == pytest.approx(value)
    assert (page["cases"], page["unanswered"]) == (len(told), len(untold))
    assert page["incomplete"] == 6
    assert not page["complete"]
    assert page["interval"] == "anytime"
    assert page["low"] < page["value"] < page["high"]
    assert page["widest"][0] < page["low"]
    assert page["agreement"]["stays"] == 34 - len(untold)

    csv = tmp_path / "browser.csv"
    csv.write_bytes(person.get("/export/reviews.csv").content)
    command = tmp_path / "command.csv"
    shutil.copy(export.export_reviews(folder, tmp_path / "names.csv", real_names=True), command)
    for path, options in ((folder, ()), (csv, ("--audit", folder)), (command, ("--audit", folder))):
        assert numbers_of(path, *options) == page
    file, frame = folder / "reviews.sqlite", pd.read_csv(csv)
    for source in (site.store, folder, file, csv, str(csv), frame, pd.read_csv(csv, dtype=str)):
        found = bf.expert_value(audit, source)
        assert (found.value, found.low, found.high) == (page["value"], page["low"], page["high"])
        assert found.widest == tuple(page["widest"])
        assert found.chances["value"].tolist() == [one["value"] for one in page["chances"]]
    assert bf.expert_value(folder).value == page["value"]
    words = f"{page['value']:+.2f}".replace("-", "−")
    for text in (person.get("/results").text, person.get("/export/report.html").text):
        assert f"the reviewers put the policy at {words}" in text
    row = person.json("/overview")["estimates"]["table"]
    assert [line[1] for line in row if line[0] == "Reviewers"] == [words]


def test_the_view_follows_new_answers_and_is_fixed_once_complete(site):
    person = site.reviewer("ann")
    before = person.json("/results")["experts"]["numbers"]
    bob = site.store.reviewer(site.run.id, "bob")
    for stay in site.store.stays(site.run.id):
        if not bob.answers(stay.episode):
            bob.answer(stay.episode, Chances((0, 10, 0)))
    after = person.json("/results")["experts"]
    assert after["numbers"]["cases"] == before["cases"] + 6
    assert after["numbers"]["complete"]
    assert after["numbers"]["interval"] == "fixed"
    found = bf.expert_value(site.audit, site.store, interval="fixed")
    assert [after["numbers"][key] for key in ("low", "high")] == [found.low, found.high]
    assert "fixed kind" in " ".join(after["notes"])
    chart = person.json("/charts/estimates")["spec"]
    assert "Reviewers" in json.dumps(chart)


def test_answers_without_a_verdict_are_exported_and_count_for_no_agreement(site, tmp_path):
    rows = export.review_rows(site.store, site.audit)
    alone = [row for row in rows if row["verdict"] is None]
    assert len(alone) == 17 + 1 + 1  # of bob, the repeat, and of eve
    assert all(row["created_at"] is None and row["answered_at"] for row in alone)
    assert len({row["answer_id"] for row in rows}) == len(site.store.answers(site.run.id))
    csv = tmp_path / "reviews.csv"
    csv.write_text(export.reviews_text(site.store, site.audit, "csv"), newline="")
    read = export.read_row_answers(export.read_reviews_csv(csv), site.audit.meta.outcome_names)
    names = site.store.pseudonyms()
    for mine, theirs in zip(read, site.store.answers(site.run.id), strict=True):
        assert vars(mine) == vars(theirs) | {"reviewer": names[theirs.reviewer]}
    (found,) = export.agreement_of_export(csv, resamples=10).values()
    assert found.stays == 17
    lines = export.reviews_text(site.store, site.audit, "jsonl").splitlines()
    assert [json.loads(line)["answer_id"] for line in lines] == [row["answer_id"] for row in rows]


def test_blind_reviewers_do_not_see_the_estimate(tmp_path):
    audit = small_audit()
    site = Site(tmp_path, audit, verdicts_only=False)
    ann = site.reviewer("ann")
    for path in ("/results", "/overview", "/export/reviews.csv", "/export/report.html"):
        ann.get(path, 403)
    site.store.close()


def test_the_report_says_what_reviewers_expect(site, tmp_path):
    folder, out = tmp_path / "audit", tmp_path / "report.html"
    command = ["report", str(folder), "--episodes", "0"]  # what is asked for is above them
    told = CliRunner().invoke(commands, [*command, "--out", str(out)])
    assert told.exit_code == 0, told.output
    found = bf.expert_value(folder)
    text = out.read_text()
    assert f"put the policy at {found.value:+.2f}".replace("-", "−") in text
    assert "What the reviewers expect" in text
    for name in folder.glob("reviews.sqlite*"):
        name.rename(tmp_path / name.name)
    options = ["--out", str(out), "--overwrite"]
    assert CliRunner().invoke(commands, [*command, *options]).exit_code == 0
    assert "What the reviewers expect" not in out.read_text()


def test_verdicts_alone_give_no_estimate_and_pages_say_why(tmp_path):
    audit = small_audit()
    audit.save(tmp_path / "audit")
    site = Site(tmp_path / "audit", audit, show_overview=True, verdicts_only=True)
    ann = site.store.join(site.run.id, "ann")
    ann.submit(site.store.stays(site.run.id)[0].episode, Verdict(1))
    csv = io.StringIO(export.reviews_text(site.store, audit, "csv"), newline="")
    frame = pd.read_csv(csv)
    assert not any(name.startswith("chance_") for name in frame)
    for source in (site.store, tmp_path / "audit", frame):
        with pytest.raises(NoEstimateError, match="asked for verdicts only"):
            bf.expert_value(audit, source)
    assert "asked for verdicts only" in site.reviewer("ann").get("/results").text
    told = CliRunner().invoke(commands, ["agreement", str(tmp_path / "audit")])
    assert "asked for verdicts only" in " ".join(told.output.split())
    site.store.close()


def test_missing_answers_and_other_runs_are_explained(tmp_path):
    audit, other = small_audit(), small_audit(seed=1)
    with Store(tmp_path) as store:
        with pytest.raises(NoEstimateError, match="nothing is reviewed"):
            bf.expert_value(audit, store)
        run = store.open_run(audit, ReviewSettings(needed=2)).id
        with pytest.raises(
            ValueError, match=f"another run .{run[:8]}.*this audit .{run_id(other)[:8]}"
        ):
            bf.expert_value(other, store)
        with pytest.raises(NoEstimateError, match="nobody has given the chances"):
            bf.expert_value(audit, store)
        assert "nobody has given" in view_experts(audit, store)
        ann, bob = (store.join(run, name) for name in ("ann", "bob"))
        first = store.stays(run)[0].episode
        ann.answer(first, Chances((10, 0, 0)))
        note_overview(bob)
        bob.answer(first, Chances((10, 0, 0)))
        with pytest.raises(NoEstimateError, match="no case has 2 answers, not counting 1 given"):
            bf.expert_value(audit, store)
    with pytest.raises(FileNotFoundError, match="there are no reviews at"):
        bf.expert_value(audit, tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="give the reviews"):
        bf.expert_value(audit)
    with pytest.raises(ValueError, match="no column run_id"):
        bf.expert_value(audit, pd.DataFrame({"episode_id": [], "reviewer": [], "verdict": []}))
