"""Versions of butfor and of what it is built on, from their metadata: nothing is imported."""

from __future__ import annotations

import platform
import re
from importlib import metadata

MATTER = ("numpy", "scipy", "numba", "pandas", "pyarrow", "altair", "fastapi", "scikit-learn")


def version_of(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results may depend on."""
    found = {package: version_of(package) for package in MATTER}
    known = {package: version for package, version in found.items() if version is not None}
    return {"Python": platform.python_version()} | known


def required() -> dict[str, list[str]]:
    """Return the packages that butfor needs, by extra; those always needed have the key ''."""
    needed: dict[str, list[str]] = {}
    for line in metadata.requires("butfor") or ():
        package = re.split(r"[^\w.-]", line, maxsplit=1)[0]
        extra = re.search(r'extra == "([\w-]+)"', line)
        needed.setdefault(extra[1] if extra else "", []).append(package)
    return needed
