"""Causal mechanisms: how an observed outcome determines the counterfactual of a row.

What can be asked of any mechanism is listed in `__init__.pyi` and loaded when it is first used: the
file of one mechanism needs no kernels for bounds.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
