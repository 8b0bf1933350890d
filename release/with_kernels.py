"""Beside the wheel in a folder, one for this Python and platform whose kernels are compiled.

    python -m release.with_kernels dist

pip prefers it where it fits. Its kernels are for any processor of this kind. Where numba has
another version than here they are ignored, and compiled as they are from the other wheel.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from butfor.kernels.compiled import ANY_PROCESSOR, MARK, SHIPPED, digest_of

# what people run first; whatever else they run compiles the rest
COMMANDS = (("doctor",), ("demo", "--episodes", "100", "--out", "demo"))


def compile_kernels(package: Path, *commands: tuple[str, ...]) -> None:
    """Compile the kernels that these commands of Python use, and put them into the package."""
    ready = package / "kernels" / SHIPPED.name
    processor, features = ANY_PROCESSOR
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PYTHONPATH": str(package.parent),
            "NUMBA_CACHE_DIR": folder,
            "NUMBA_CPU_NAME": processor,
            "NUMBA_CPU_FEATURES": features,
        }
        for command in commands:
            subprocess.run([sys.executable, *command], env=environment, cwd=folder, check=True)
        ready.mkdir()
        for pattern in ("*.nbi", "*.nbc"):
            for path in Path(folder).glob(f"kernels_*/{pattern}"):
                shutil.copy(path, ready)
    (ready / MARK).write_text(digest_of(package / "kernels"))


def main() -> None:
    """Write the wheel with kernels beside the one without."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the wheel without kernels is")
    folder = parser.parse_args().folder.resolve()
    wheels = list(folder.glob("*-none-any.whl"))
    if len(wheels) != 1:
        parser.error(f"{folder}: expected one *-none-any.whl, found {len(wheels)}; run make dist")
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tags = {"python": python, "abi": python, "platform": platform}
    with tempfile.TemporaryDirectory() as unpacked:
        _wheel("unpack", wheels[0], "--dest", unpacked)
        (tree,) = Path(unpacked).iterdir()
        compile_kernels(tree / "butfor", *(("-m", "butfor", *command) for command in COMMANDS))
        _wheel("pack", tree, "--dest-dir", unpacked)
        (packed,) = Path(unpacked).glob("*.whl")
        _wheel("tags", *(f"--{kind}-tag={tag}" for kind, tag in tags.items()), "--remove", packed)
        (made,) = Path(unpacked).glob("*.whl")
        print(shutil.copy(made, folder))


def _wheel(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "wheel", *arguments], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()
