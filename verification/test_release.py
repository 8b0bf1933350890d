"""What `make dist` builds, in clean environments: pip alone installs it, and the demo runs.

Every Python from 3.11 on that is on the PATH is tried, with the newest versions of everything; the
oldest of them also with `constraints.txt`. The wheel with compiled kernels is tried with the
Python that runs this.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHONS = [f"python3.{minor}" for minor in range(11, 16)]
CASES = [("python3.11", "constraints"), *((python, "newest") for python in PYTHONS)]


def run(*command, cwd=None):
    """Run a command without what is installed here, and return what it printed."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(python, folder, *packages):
    """Install packages in a new environment, and return the path of butfor there."""
    run(python, "-m", "venv", folder)
    run(folder / "bin" / "pip", "install", "--quiet", *packages)
    return folder / "bin" / "butfor"


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The folder with the wheel and the source distribution."""
    found = find_spec("build")
    if found is None or found.origin is None:  # without one it is the folder of that name here
        pytest.skip("NO RELEASE: make dist installs what builds it; nothing was built")
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", out, ROOT)
    return out


def test_the_source_distribution_has_every_file_of_the_repository(dist):
    tracked = run("git", "ls-files", cwd=ROOT).splitlines()
    with tarfile.open(*dist.glob("*.tar.gz")) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in tracked if name not in packed and not name.startswith(".")} == set()


def test_the_wheel_has_the_package_and_nothing_else(dist):
    (wheel,) = dist.glob("*-none-any.whl")
    tracked = run("git", "ls-files", "src/butfor", cwd=ROOT).splitlines()
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if not name.startswith("butfor-")}
    assert packed == {name.removeprefix("src/") for name in tracked}


@pytest.mark.parametrize(("python", "versions"), CASES)
def test_pip_alone_installs_what_works(dist, tmp_path, python, versions):
    works = shutil.which(python) and subprocess.run([python, "--version"], check=False)
    if not works or works.returncode:
        pytest.skip(f"there is no {python} here")
    chosen = ["--constraint", ROOT / "constraints.txt"] if versions == "constraints" else []
    (wheel,) = dist.glob("*-none-any.whl")
    butfor = install(python, tmp_path / "clean", *chosen, wheel)
    assert "butfor works here." in run(butfor, "doctor", cwd=tmp_path)
    assert "Audit folder:" in run(butfor, "demo", "--episodes", "100", cwd=tmp_path)


def test_the_first_demonstration_from_the_wheel_with_kernels_compiles_nothing(dist, tmp_path):
    if find_spec("wheel") is None:
        pytest.skip("NO RELEASE: make dist installs what repacks the wheel; nothing was built")
    run(sys.executable, "-m", "release.with_kernels", dist, cwd=ROOT)
    here = ["--no-index", "--no-deps", "--find-links", dist]  # first without what it needs
    butfor = install(sys.executable, tmp_path / "clean", *here, "butfor")
    constraints = ROOT / "constraints.txt"
    run(butfor.with_name("pip"), "install", "--quiet", "--constraint", constraints, "butfor")
    (kernels,) = (tmp_path / "clean" / "lib").glob("python*/site-packages/butfor/kernels")
    assert list((kernels / "ready").glob("*.nbc")), "pip installed the wheel without kernels"
    run(butfor, "demo", cwd=tmp_path)
    assert not list((kernels / "__pycache__").glob("*.nbc"))
