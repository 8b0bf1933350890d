"""Every compiled function; numba is imported nowhere else.

Kernels take arrays and numbers and return arrays: no options, no validation. Each has a slow
plain-Python twin in `tests/reference/`. Their names are listed in `__init__.pyi` and loaded when
they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
