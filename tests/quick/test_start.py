"""butfor starts fast and anywhere: commands load on demand, kernels are kept where possible."""

import inspect
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import butfor
from butfor.cli.main import COMMANDS
from butfor.kernels import compiled
from release.with_kernels import compile_kernels

SOURCE = Path(butfor.__file__).parent


def run(code, source=SOURCE.parent, prefix=(), **environment):
    command = [*prefix, sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(source), **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


# ----------------------------------------------------------------------------------- the commands


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_of_itself_what_the_list_of_commands_says(name):
    function = getattr(import_module(f"butfor.cli.{name}"), name)
    assert inspect.getdoc(function).split("\n\n")[0].replace("\n", " ") == COMMANDS[name]


def test_help_and_version_load_no_command_and_nothing_heavy():
    code = (
        "import sys\n"
        "from butfor.cli.main import app\n"
        "for argument in ('--version', '--help'):\n"
        "    app([argument], standalone_mode=False)\n"
        "heavy = {'numba', 'pandas', 'scipy', 'altair', 'pyarrow', 'fastapi', 'butfor.cli.audit'}\n"
        "print('loaded:', sorted(heavy & set(sys.modules)))"
    )
    done = run(code)
    assert done.stdout.splitlines()[0] == f"butfor {butfor.__version__}"
    assert all(name in done.stdout for name in COMMANDS)
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_a_review_starts_without_numba():
    code = "import sys, butfor.cli.review; print('numba' in sys.modules)"
    assert run(code).stdout == "False\n"


def test_an_audit_starts_without_charts_and_graphs():
    code = "import sys, butfor.cli.audit; print({'altair', 'networkx'} & set(sys.modules))"
    assert run(code).stdout == "set()\n"


def test_ctrl_c_while_a_command_loads_is_quiet():
    code = (
        "import sys\n"
        "from butfor.cli import main\n"
        "def interrupt(name):\n"
        "    raise KeyboardInterrupt\n"
        "main.import_module = interrupt\n"
        "sys.argv = ['butfor', 'audit']\n"
        "main.run()"
    )
    done = run(code)
    assert (done.returncode, done.stderr) == (130, "")


def test_ctrl_c_while_the_command_line_itself_loads_is_quiet():
    code = (
        "import sys, butfor\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'typer':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from butfor.__main__ import run\n"
        "run()"
    )
    done = run(code)
    assert (done.returncode, done.stderr) == (130, "")


# -------------------------------------------------------------------- where compiled kernels live


# root may write to folders that are read-only, unless it gives that up
AS_ANYBODY = ("setpriv", "--bounding-set", "-dac_override") if os.getuid() == 0 else ()


@pytest.fixture
def installed(tmp_path):
    """A folder with a copy of the kernels, and a home, both read-only."""
    if AS_ANYBODY and not shutil.which("setpriv"):
        pytest.skip("root can write anywhere, and setpriv is not there to take that away")
    kernels = tmp_path / "butfor" / "kernels"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCE / "kernels", kernels, ignore=ignored)
    (kernels.parent / "__init__.py").touch()
    (tmp_path / "home").mkdir()
    read_only = (kernels, kernels.parent, tmp_path / "home")
    for path in read_only:
        path.chmod(0o555)
    yield tmp_path
    for path in read_only:
        path.chmod(0o755)


def where_kept(installed, temporary):
    """The process that prints where the kernels of the read-only copy are kept."""
    code = "from butfor.kernels import compiled, rows; print(compiled._kept)"
    home = str(installed / "home")
    done = run(code, installed, AS_ANYBODY, HOME=home, XDG_CACHE_HOME=home, TMPDIR=str(temporary))
    assert done.returncode == 0, done.stderr
    return done


def test_without_a_writable_home_kernels_go_to_a_private_temporary_folder(installed):
    temporary = installed / "temporary"
    temporary.mkdir()
    done = where_kept(installed, temporary)
    assert done.stderr.count("compiled kernels are kept in") == 1
    (folder,) = temporary.iterdir()
    assert done.stdout.startswith(str(folder))
    assert folder.stat().st_mode & 0o777 == 0o700


def test_without_any_writable_folder_kernels_are_not_kept_and_it_is_said(installed):
    temporary = installed / "temporary"
    temporary.mkdir()
    (temporary / f"butfor-{os.getuid()}").touch()  # something else has the name
    done = where_kept(installed, temporary)
    assert done.stderr.count("compiled kernels cannot be kept") == 1
    assert done.stdout.strip() == "None"


def test_a_temporary_folder_that_others_can_write_to_is_not_taken(tmp_path):
    folder = compiled.private_folder(tmp_path)
    assert compiled.private_folder(tmp_path) == folder
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="does not belong to this user alone"):
        compiled.private_folder(tmp_path)


def test_kernels_compiled_from_other_sources_are_forgotten(tmp_path):
    sources, kept = tmp_path / "kernels", tmp_path / "kept"
    for folder in (sources, kept):
        folder.mkdir()
    (sources / "rows.py").write_text("one")
    (kept / "chain.nbi").touch()  # nobody knows from what it was compiled
    compiled.forget_stale(kept, compiled.digest_of(sources))
    assert not list(kept.glob("*.nbi"))
    (kept / "chain.nbi").touch()
    os.utime(sources / "rows.py", (1, 1))  # a date says nothing
    compiled.forget_stale(kept, compiled.digest_of(sources))
    assert list(kept.glob("*.nbi"))
    (sources / "rows.py").write_text("two")
    compiled.forget_stale(kept, compiled.digest_of(sources))
    assert not list(kept.glob("*.nbi"))


# --------------------------------------------------------- kernels that are compiled for the wheel


USE_A_KERNEL = (
    "import numpy as np\n"
    "from butfor.kernels.random import uniform\n"
    "print(float(uniform(np.uint64(1), 2)), sum(uniform.stats.cache_misses.values()))"
)


@pytest.fixture
def shipped(tmp_path):
    """The folder of a package with one compiled kernel."""
    package = tmp_path / "butfor"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCE / "kernels", package / "kernels", ignore=ignored)
    (package / "__init__.py").touch()
    compile_kernels(package, ("-c", USE_A_KERNEL))
    return tmp_path


def use_a_kernel(shipped):
    """Return the number that a kernel made, and how many were compiled for it."""
    done = run(USE_A_KERNEL, shipped, NUMBA_CACHE_DIR=str(shipped / "kept"))
    assert done.returncode == 0, done.stderr
    number, compilations = done.stdout.split()
    return float(number), int(compilations)


def test_a_kernel_that_came_with_the_wheel_is_not_compiled(shipped):
    number, compilations = use_a_kernel(shipped)
    assert compilations == 0
    assert not list((shipped / "kept").rglob("*.nbc"))
    shutil.rmtree(shipped / "butfor" / "kernels" / "ready")
    assert use_a_kernel(shipped) == (number, 1)


def test_a_kernel_that_came_with_the_wheel_is_compiled_anew_if_any_kernel_was_changed(shipped):
    with (shipped / "butfor" / "kernels" / "rows.py").open("a") as file:
        file.write("# changed\n")
    assert use_a_kernel(shipped)[1] == 1
