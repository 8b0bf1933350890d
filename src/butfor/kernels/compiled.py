"""The only `import numba`: how kernels are compiled, where they are kept, and for how long."""

import hashlib
import os
import stat
import tempfile
import warnings
from collections.abc import Callable
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import numba
from numba import njit, types
from numba.core.caching import FunctionCache, IndexDataCacheFile

# Where a wheel for one platform has kernels that are compiled already (release/with_kernels.py).
SHIPPED = Path(__file__).parent / "ready"
ANY_PROCESSOR = ("generic", "")  # the name and the features of the processor they are for
MARK = "butfor-kernels.sha256"  # beside compiled kernels: the digest of the sources
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
        _say(NOT_KEPT)
        return None
    _say(
        f"compiled kernels are kept in {numba.config.CACHE_DIR}, because neither butfor's own "
        "folder nor the home folder can be written"
    )
    return Path(njit(cache=True)(probe).stats.cache_path)


def _say(message: str) -> None:
    """Warn, unless this process was started by one that has done so already."""
    if parent_process() is None:
        warnings.warn(message, RuntimeWarning, stacklevel=3)


def digest_of(sources: Path) -> str:
    """Return what tells the kernels in these sources from any other version of them."""
    digest = hashlib.sha256()
    for path in sorted(sources.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def is_from(kept: Path, digest: str) -> bool:
    """Tell whether a folder has kernels compiled from the sources with this digest.

    numba compares a compiled kernel with its own file only, but it may contain kernels from others.
    """
    mark = kept / MARK
    return mark.exists() and mark.read_text() == digest


def forget_stale(kept: Path, digest: str) -> None:
    """Remove compiled kernels unless they were compiled from exactly these sources."""
    try:
        if not is_from(kept, digest):
            for index in kept.glob("*.nbi"):
                index.unlink(missing_ok=True)
            (kept / MARK).write_text(digest)
    except OSError:  # the folder is read-only
        return


class _Kept(FunctionCache):
    """What has been compiled of one function: on this machine or, failing that, for the wheel."""

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        here = super()._load_overload(sig, target_context)
        if here is not None:
            return here
        codegen = target_context.codegen()
        signature, _, code = self._index_key(sig, codegen)
        shipped = IndexDataCacheFile(
            str(SHIPPED), self._impl.filename_base, self._impl.locator.get_source_stamp()
        )
        found = shipped.load((signature, (codegen.magic_tuple()[0], *ANY_PROCESSOR), code))
        return None if found is None else self._impl.rebuild(target_context, found)


_digest = digest_of(Path(__file__).parent)
_kept = _where_kept(lambda: None)
if _kept is not None:
    forget_stale(_kept, _digest)
shipped = _kept is not None and is_from(SHIPPED, _digest)


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
        if shipped:
            made._cache = _Kept(function)
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
