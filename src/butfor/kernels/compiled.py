"""The only `import numba`: how kernels are compiled, and when cached ones are discarded."""

from pathlib import Path

from numba import njit

compiled = njit(cache=True, nogil=True, error_model="numpy")
# Without reference counting, which takes longer than the small functions of inner loops. Such
# functions cannot allocate: the kernel that calls them makes what they need.
bare = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
# Bare, and always inlined: passing a problem to a function copies 200 numbers.
inlined = njit(cache=True, nogil=True, error_model="numpy", _nrt=False, forceinline=True)


def forget_stale(folder: Path) -> None:
    """Remove compiled kernels that are older than any source file in the folder.

    Numba compares a cached kernel with the date of its own file only, but it may contain kernels
    from other files.
    """
    changed = max(path.stat().st_mtime for path in folder.glob("*.py"))
    for index in folder.glob("__pycache__/*.nbi"):
        try:
            if index.stat().st_mtime < changed:
                index.unlink()
        except OSError:  # another process removed it first, or the folder is read-only
            continue


forget_stale(Path(__file__).parent)
