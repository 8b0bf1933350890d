"""The order of the tests, and the end of the browser that they share.

Files that take long come first, so that no core waits at the end. The first two need different
kernels: on a machine on which nothing is compiled yet, two cores then do not compile the same ones.
"""

from tests.browser import CHROMIUM

SLOW = (
    "test_contract.py",
    "test_pomdp.py",
    "test_shards_stopped.py",
    "test_package.py",
    "test_shards.py",
    "test_study_articles.py",
    "test_accessibility.py",
    "test_review_browser.py",
    "test_report.py",
    "test_report_browser.py",
    "test_review_server.py",
    "test_pomdp_learning.py",
    "test_studies_models.py",
    "test_studies_wide.py",
    "test_studies_mechanisms.py",
    "test_studies_oberst2019.py",
    "test_studies_hidden_state.py",
    "test_coverage.py",
    "test_bounds.py",
    "test_confounding.py",
)


def pytest_collection_modifyitems(items):
    place = {name: number for number, name in enumerate(SLOW)}
    items.sort(key=lambda item: place.get(item.path.name, len(SLOW)))


def pytest_sessionfinish():
    CHROMIUM.stop()
