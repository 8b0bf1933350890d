"""A review server that is killed under a thousand posts has lost nothing that it acknowledged."""

from tests.review_site import small_audit
from tests.web.test_review_server import check_what_survives_a_kill


def test_what_was_acknowledged_survives_a_kill(tmp_path):
    check_what_survives_a_kill(small_audit(flags=20).save(tmp_path / "audit"), 500)
