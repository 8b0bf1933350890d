"""The site as `make docs` builds it: no warnings, no requests elsewhere, nothing axe-core finds."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.browser import open_browser, read_axe

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built here; a warning is an error."""
    if find_spec("myst_nb") is None:
        pytest.skip("NO SITE: make docs installs what builds it; nothing was built")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    command += ["-d", out / "doctrees", ROOT / "docs", out / "html"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out / "html"


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_breaks_a_rule_or_asks_others_for_anything(site, width):
    read_axe()
    found = {}
    with open_browser(width, 844) as browser:
        for page in sorted(site.rglob("*.html")):
            browser.goto("about:blank")
            browser.goto(page.as_uri())
            for scheme in ("light", "dark"):
                browser.prefer(scheme)
                if wrong := browser.violations():
                    found[page.name, scheme] = wrong
            elsewhere = [url for url in browser.requests() if not url.startswith("file:")]
            if elsewhere or browser.overflow() > 0:
                found[page.name] = elsewhere, browser.overflow()
    assert found == {}
