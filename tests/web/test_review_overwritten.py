"""An audit that is overwritten while it is reviewed: whatever is killed, no verdict is lost."""

import json

from butfor.review.plan import ReviewSettings
from butfor.review.store import Store
from butfor.review.verdicts import Verdict
from tests.killed import start_killing
from tests.review_site import small_audit

REOPENED = 20  # verdicts after which the file is closed and opened: SQLite removes its -wal


def check_verdicts_under_kills(place, turns, stride):
    """Review an audit while it is replaced by programs that are killed.

    Returns at which steps they were, and whether the audit found then was the new one.
    """
    others = [small_audit(seed=seed).save(place / str(seed)) for seed in (0, 1)]
    folder = small_audit(seed=0).save(place / "audit")
    with Store(folder) as store:
        run = store.open_run(small_audit(seed=0), ReviewSettings(verdicts_only=True)).id
        episode = store.join(run, "ann").queue().items[0].episode
    said = []
    with start_killing(folder, others, turns, stride) as process:
        while process.poll() is None:
            with Store(folder) as store:
                reviewer = store.reviewer(run, "ann")
                for _ in range(REOPENED):
                    review = reviewer.submit(episode, Verdict(1, comment=str(len(said)))).review
                    said.append((review, str(len(said))))
                    reviewer.withdraw(review)
        printed = process.stdout.read()
    assert process.returncode == 0, printed
    with Store(folder) as store:
        assert store.verify().ok
        kept = {review.id: review.comment for review in store.reviews(run)}
    assert [pair for pair in said if kept.get(pair[0]) != pair[1]] == []
    assert len(said) >= REOPENED
    killed = json.loads(printed)
    print(f"{len(killed)} kills, {len(said)} verdicts kept")
    return killed


def test_killed_while_overwriting_the_old_or_the_new_audit_is_there(tmp_path):
    """A few steps; verification/test_overwrite_kill.py goes through all of them."""
    killed = check_verdicts_under_kills(tmp_path, turns=7, stride=5)
    assert {new for _, new in killed} == {False, True}
