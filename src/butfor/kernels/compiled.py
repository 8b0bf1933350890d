"""The only `import numba`: how kernels are compiled, where they are kept, and for how long."""

import hashlib
import os
import stat
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba import njit, types

NOT_KEPT = (
    "compiled kernels cannot be kept: neither butfor's own folder, nor the home folder, nor a "
    "temporary one can be written. They are compiled anew each time, which takes a minute; set "
    "NUMBA_CACHE_DIR to a folder of your own to keep them"
)


def private_folder(parent: Path) -> Path:
    """Return a folder for compiled kernels that nobody else can write to.

    What is read from it is run as code. A folder of that name that belongs to somebody else raises
    PermissionError.
    """
    user = os.getuid() if hasattr(os, "getuid") else "kernels"
    folder = parent / f"butfor-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or (
        hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o077)
    ):
        raise PermissionError(f"{folder} does not belong to this user alone")
    return folder


def _where_kept(probe: Any) -> Path | None:
    """Return the folder in which numba keeps what it compiles, or None if there is none.

    numba takes the package's folder or, if that is read-only, the home folder.
    """
    try:
        return Path(njit(cache=True)(probe).stats.cache_path)
    except RuntimeError:  # neither can be written
        pass
    try:
        numba.config.CACHE_DIR = str(private_folder(Path(tempfile.gettempdir())))
    except OSError:
        warnings.warn(NOT_KEPT, RuntimeWarning, stacklevel=2)
        return None
    warnings.warn(
        f"compiled kernels are kept in {numba.config.CACHE_DIR}, because neither butfor's own "
        "folder nor the home folder can be written",
        RuntimeWarning,
        stacklevel=2,
    )
    return Path(njit(cache=True)(probe).stats.cache_path)


def forget_stale(kept: Path, sources: Path) -> None:
    """Remove compiled kernels unless they were compiled from exactly these sources.

    numba compares a compiled kernel with its own file only, but it may contain kernels from others.
    """
    digest = hashlib.sha256()
    for path in sorted(sources.glob("*.py")):
        digest.update(path.read_bytes())
    mark = kept / "butfor-kernels.sha256"
    try:
        if mark.exists() and mark.read_text() == digest.hexdigest():
            return
        for index in kept.glob("*.nbi"):
            index.unlink(missing_ok=True)
        mark.write_text(digest.hexdigest())
    except OSError:  # the folder is read-only
        return


_kept = _where_kept(lambda: None)
if _kept is not None:
    forget_stale(_kept, Path(__file__).parent)


def _widest(kind: types.Type) -> types.Type:
    """Return the type for which a kernel is compiled, given that of an argument."""
    general = types.unliteral(kind)
    return types.int64 if general == types.int32 else general


def _compiler(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles functions with these options of numba.

    Where kernels call each other, numba would compile one again for each literal among its
    arguments and for each size of whole numbers; these are compiled once.
    """
    compile_with = njit(cache=_kept is not None, nogil=True, error_model="numpy", **options)

    def decorate(function: Callable[..., Any]) -> Any:
        made = compile_with(function)
        find = made.get_call_template
        made.get_call_template = lambda args, named: find(
            tuple(_widest(kind) for kind in args),
            {name: _widest(kind) for name, kind in named.items()},
        )
        return made

    return decorate


compiled = _compiler()
# Without reference counting, which takes longer than the small functions of inner loops. Such
# functions cannot allocate: the Python code that calls their kernel makes what they need.
bare = _compiler(_nrt=False)
# Bare, and inlined into the machine code of all that call it.
inlined = _compiler(_nrt=False, forceinline=True)
# Bare, and compiled with its only caller: separately, both would be compiled in full.
part = _compiler(_nrt=False, inline="always")
