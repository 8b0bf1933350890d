"""The order of the tests: files that take long come first, so that no core waits at the end."""

from tests.browser import CHROMIUM

SLOW = (
    "test_pomdp.py",
    "test_shards_stopped.py",
    "test_review_browser.py",
    "test_shards.py",
    "test_studies_oberst2019.py",
    "test_studies_mechanisms.py",
    "test_studies_hidden_state.py",
    "test_pomdp_learning.py",
    "test_review_server.py",
    "test_report_browser.py",
    "test_accessibility.py",
    "test_package.py",
)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in SLOW)


def pytest_sessionfinish():
    CHROMIUM.stop()
