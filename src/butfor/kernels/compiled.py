"""The only `import numba`: how kernels compile, and when compiled ones are too old to trust."""

from pathlib import Path

from numba import njit

compiled = njit(cache=True, nogil=True, error_model="numpy")
# without counting references to arrays, which takes longer than the small functions of inner loops;
# such functions cannot allocate: what they need is made by the kernel that calls them
bare = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
# bare, and part of the function that calls it: to hand over a problem is to copy 200 numbers
inlined = njit(cache=True, nogil=True, error_model="numpy", _nrt=False, forceinline=True)


def forget_stale(folder: Path) -> None:
    """Remove what was compiled before any file in the folder of kernels changed.

    A compiled kernel is stored with the date of its own file only, but contains kernels of others.
    """
    changed = max(path.stat().st_mtime for path in folder.glob("*.py"))
    for index in folder.glob("__pycache__/*.nbi"):
        try:
            if index.stat().st_mtime < changed:
                index.unlink()
        except OSError:  # another process was quicker, or the folder is read-only
            continue


forget_stale(Path(__file__).parent)
