"""One flipped bit in an audit's folder, or in a log, is reported, or changes nothing.

For each of 1,500 random bits the folder is read again. An error is what should come of it; an audit
that says something else would be the worst. The same is done to a folder without the checksums of
its files, where only those of the pages of tables are left, and to a log.
"""

import pytest

import butfor as bf
from butfor.audit.audit import Audit
from tests.audits import sepsis_audit, unseal
from tests.damage import count_flips, same_audit

FLIPS = 1500


def tell(found):
    for (name, result), count in sorted(found.items()):
        print(f"{name:24} {result:10} {count:5}")
    return sum(count for (_, result), count in found.items() if result == "SILENT")


@pytest.mark.parametrize("shown", [False, True])
def test_no_flipped_bit_changes_an_audit_silently(tmp_path, shown):
    folder = sepsis_audit(100).save(tmp_path / "audit")
    saved = Audit.load(folder, shown=shown)

    def same(audit):
        return same_audit(audit, saved)

    found = count_flips(
        sorted(folder.iterdir()), lambda: Audit.load(folder, shown=shown), same, FLIPS
    )
    assert tell(found) == 0


def test_checksums_of_pages_alone_find_most(tmp_path):
    folder = unseal(sepsis_audit(100).save(tmp_path / "audit"))
    saved = Audit.load(folder)
    tables = sorted(folder.glob("*.parquet"))
    found = count_flips(
        tables, lambda: Audit.load(folder), lambda audit: same_audit(audit, saved), FLIPS
    )
    assert tell(found) <= 0.005 * FLIPS


def test_a_log_that_butfor_wrote_is_read_as_written_or_not_at_all(tmp_path):
    log = sepsis_audit(100).log()
    path = tmp_path / "log.parquet"
    study = bf.write_episodes(log, path)
    saved = bf.read_episodes(path, study)
    arrays = ("state", "action", "next_state", "reward", "offsets", "outcome")

    def same(read):
        return all(
            getattr(read, name).tobytes() == getattr(saved, name).tobytes() for name in arrays
        ) and list(read.id) == list(saved.id)

    found = count_flips([path], lambda: bf.read_episodes(path, study), same, FLIPS)
    assert tell(found) <= 0.005 * FLIPS
