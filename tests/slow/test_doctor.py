"""`butfor doctor`: what it finds where everything works, and where something is missing."""

import json

import pytest
from typer.testing import CliRunner

from butfor.cli import doctor
from butfor.cli.main import app


class Silent:
    def enter(self, stage):
        pass

    def __call__(self, done, total):
        pass


def test_where_everything_works_it_says_so_and_exits_with_0():
    done = CliRunner().invoke(app, ["doctor", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    state = {one["what"]: one["state"] for one in found["findings"]}
    for what in ("packages", "folder of kernels", "kernels", "figures", "extra cluster"):
        assert state[what] == "works", found
    assert "numba" in found["versions"]
    assert "Compiling kernels: factored models" in done.stderr


def test_a_problem_has_a_remedy_and_exit_code_1(monkeypatch):
    monkeypatch.setattr(doctor, "SPACE", 10**18)
    monkeypatch.setattr(doctor, "kernels", lambda show: [])
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 1
    assert "free some space (at least 1 GB), or set TMPDIR" in " ".join(done.output.split())
    assert "3 problems found." in done.output


def test_a_kernel_that_fails_is_a_finding_and_not_a_traceback(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no LLVM here")

    monkeypatch.setattr(doctor.bf, "run_audit", fail)
    (found,) = doctor.kernels(Silent())
    assert (found.state, found.found) == ("problem", "RuntimeError: no LLVM here")
    assert "pip install" in found.remedy


def test_missing_packages_are_problems_and_missing_extras_are_not(monkeypatch):
    there = doctor.version_of
    missing = ("numba", "distributed")
    monkeypatch.setattr(doctor, "version_of", lambda name: None if name in missing else there(name))
    (found,) = doctor.packages()
    assert (found.state, found.found) == ("problem", "missing: numba")
    extras = {one.what: one for one in doctor.extras()}
    assert extras["extra cluster"].state == "works"
    assert extras["extra dask"].state == "not installed"
    assert extras["extra dask"].remedy == "pip install 'butfor[dask]'"


@pytest.mark.parametrize("name", ["there", "not/yet"])
def test_a_folder_that_can_be_written_or_made_is_fine(tmp_path, name):
    (tmp_path / "there").mkdir()
    assert doctor._folder("a folder", tmp_path / name, "").state == "works"
