"""butfor starts fast and anywhere: commands load on demand, kernels are kept where possible."""

import inspect
import os
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import butfor
from butfor.cli.main import COMMANDS
from butfor.kernels import compiled
from butfor.loading import quiet_ctrl_c
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


# Ctrl-C when a module is imported, by a library that swallows every exception
INTERRUPT = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                sum(range(1000))
            except BaseException:
                print("swallowed", flush=True)

sys.meta_path.insert(0, Interrupt())
"""


@pytest.fixture
def interrupted(tmp_path):
    """Run Python with arguments, and Ctrl-C when a module is imported."""

    def run(module, *arguments):
        (tmp_path / "sitecustomize.py").write_text(INTERRUPT.format(module=module))
        path = os.pathsep.join([str(tmp_path), str(SOURCE.parent)])
        return subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.parametrize("module", ["numpy", "typer", "pandas"])
def test_ctrl_c_while_the_command_loads_ends_it_quietly(interrupted, module):
    done = interrupted(module, "-m", "butfor", "audit")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_programs_that_import_butfor_keep_their_ctrl_c(interrupted):
    done = interrupted("numpy", "-c", "import butfor")
    assert (done.returncode, done.stdout, done.stderr) == (0, "swallowed\n", "")


@pytest.mark.parametrize(
    ("given", "while_loading"),
    [
        (["python", "/usr/bin/butfor", "audit"], signal.SIG_DFL),
        (["python", "-m", "butfor"], signal.SIG_DFL),
        (["python", "-m", "other", "butfor"], signal.default_int_handler),
        (["python"], signal.default_int_handler),
    ],
)
def test_ctrl_c_is_heard_again_once_the_command_is_loaded(monkeypatch, given, while_loading):
    monkeypatch.setattr(sys, "orig_argv", given)
    with quiet_ctrl_c():
        assert signal.getsignal(signal.SIGINT) is while_loading
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


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
    """The process that prints where the kernels of the read-only copy are kept.

    It starts another one, as the demonstration does.
    """
    code = (
        "from importlib import import_module\n"
        "from multiprocessing import get_context\n"
        "from butfor.kernels import compiled, rows\n"
        "print(compiled._kept)\n"
        "context = get_context('spawn')\n"
        "other = context.Process(target=import_module, args=['butfor.kernels.compiled'])\n"
        "other.start()\n"
        "other.join()"
    )
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
