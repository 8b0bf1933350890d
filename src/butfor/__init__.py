"""But for what was done: exact counterfactual evaluation of policies on logged decisions.

The public names are listed in `__init__.pyi` and loaded when they are first used, so that
`import butfor` stays fast.
"""

from butfor.loading import quiet_ctrl_c, refuse_gone

__version__ = "0.2.0"

with quiet_ctrl_c():
    import gymnasium
    import lazy_loader

    _load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
    __getattr__ = refuse_gone(_load)

gymnasium.register(
    "butfor/Sepsis-v0", entry_point="butfor.sepsis.env:SepsisEnv", max_episode_steps=20
)
