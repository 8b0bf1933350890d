"""Discrete structural causal models on any acyclic graph; necessity and sufficiency.

The names are listed in `__init__.pyi` and loaded when they are first used: models with a hidden
state need tables, but no graphs.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
