"""The order of the tests, and the end of the processes that they share.

Files that take long come first, so that no core waits at the end. The first two need different
kernels: on a machine on which nothing is compiled yet, two cores then do not compile the same ones.
"""

import gc
import os
import signal

# processes test side by side; threads of libraries would wait for cores at full speed
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# a script that starts tests in the background makes them, and all that they start, ignore Ctrl-C
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from hypothesis import settings

from butfor.threads import count_cores
from tests.browser import CHROMIUM
from tests.processes import FORKS

settings.register_profile("few", max_examples=40)
settings.register_profile("exhaustive", max_examples=300)  # make verify
settings.load_profile("few")

SLOW = (
    "test_contract.py",
    "test_pomdp.py",
    "test_review_browser.py",
    "test_shards_stopped.py",
    "test_study_articles.py",
    "test_report_browser.py",
    "test_accessibility.py",
    "test_package.py",
    "test_shards.py",
    "test_report.py",
    "test_review_connections.py",
    "test_review_app.py",
    "test_start.py",
    "test_stories.py",
    "test_mechanisms.py",
    "test_hostile.py",
    "test_review_server.py",
    "test_own_log.py",
    "test_figures.py",
    "test_wide_audit.py",
    "test_large_audits.py",
    "test_first_screens.py",
    "test_factored_audit.py",
    "test_studies_mechanisms.py",
    "test_expert_value.py",
    "test_posterior.py",
    "test_audit.py",
    "test_meds_audits.py",
    "test_beside.py",
    "test_ope_twins.py",
    "test_confounding.py",
    "test_bounds.py",
    "test_review_store.py",
    "test_review_overwritten.py",
    "test_particles_exact.py",
    "test_recorded.py",
)


def pytest_xdist_auto_num_workers():
    return count_cores() + 2  # tests of servers and browsers wait for a good part of their time


def pytest_collection_modifyitems(items):
    place = {name: number for number, name in enumerate(SLOW)}
    items.sort(key=lambda item: place.get(item.path.name, len(SLOW)))


def pytest_collection_finish():
    gc.freeze()  # thousands of tests and all libraries, which no collection need look at again


def pytest_sessionfinish():
    CHROMIUM.stop()
    FORKS.stop()
