"""Programs that overwrite an audit under review, killed at each rename and each wait for the disk.

One after another is killed a step later than the one before, until one gets through; then it begins
again. After every kill the old or the new audit is read back whole, and in the end all verdicts
that were acknowledged meanwhile are there.
"""

from tests.web.test_review_overwritten import check_verdicts_under_kills


def test_killed_at_any_step_the_old_or_the_new_audit_is_there(tmp_path):
    killed = check_verdicts_under_kills(tmp_path, turns=70, stride=1)
    steps = {step for step, _ in killed}
    print(f"{len(steps)} steps; {sum(new for _, new in killed)} times the new audit was found")
    assert len(killed) >= 50
    assert steps == set(range(len(steps)))
    assert len(steps) > 20  # as many as files are synced and moved
