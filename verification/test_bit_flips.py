"""One flipped bit in a file of reviews is found, or an export is what it was.

For each of 3,000 random bits: either `--verify` reports a problem, or the export equals that of the
undamaged file. "The chain is intact" beside another export, or beside an export that fails, would
be the worst a clinic can be told.
"""

from collections import Counter

import numpy as np

from butfor.review.export import reviews_text
from butfor.review.plan import ReviewSettings
from butfor.review.store import Store, verify_folder
from butfor.review.verdicts import ReviewError, Verdict
from tests.review_site import small_audit

FLIPS = 3000
VERDICTS = 60  # of each of two reviewers


def write_reviews(folder, audit):
    """A review of which two reviewers have given their verdicts."""
    with Store(folder) as store:
        run = store.open_run(audit, ReviewSettings(verdicts_only=True)).id
        for name in ("ann", "bob"):
            reviewer = store.join(run, name)
            for item in reviewer.queue().items[:VERDICTS]:
                reviewer.submit(item.episode, Verdict(1, comment=f"{name} on {item.episode}"))
    with Store(folder) as store:
        return reviews_text(store, audit, "csv")


def export(folder, audit):
    try:
        with Store(folder) as store:
            return reviews_text(store, audit, "csv")
    except ReviewError:
        return None


def test_no_damage_is_called_intact_while_an_export_differs(tmp_path):
    audit = small_audit(20)
    expected = write_reviews(tmp_path, audit)
    path = tmp_path / "reviews.sqlite"
    content = path.read_bytes()
    generator, found = np.random.default_rng(0), Counter()
    for place, bit in zip(
        generator.integers(len(content), size=FLIPS), generator.integers(8, size=FLIPS), strict=True
    ):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(bit)
        path.write_bytes(damaged)
        for other in ("-wal", "-shm"):
            path.with_name(path.name + other).unlink(missing_ok=True)
        try:
            intact = verify_folder(tmp_path).ok
        except ReviewError:
            intact = False
        if intact:
            found[
                "intact, and the same export" if export(tmp_path, audit) == expected else "MISSED"
            ] += 1
        else:
            found["reported"] += 1
    print(dict(found))
    assert found["reported"] > 0
    assert found["MISSED"] == 0
