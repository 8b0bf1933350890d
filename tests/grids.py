"""Cases of tests that are tried in part by `make test`, and all by `make verify`.

@pytest.mark.parametrize("seed", few(range(20), 3))
@pytest.mark.parametrize(("mechanism", "noise"), each_value(product(MECHANISMS, NOISES)))
"""

import pytest


def few(cases, count):
    """Try the first cases; leave the others to `make verify`."""
    return [_case(case, number < count) for number, case in enumerate(cases)]


def each_value(cases):
    """Try each value of each parameter once; leave all their combinations to `make verify`."""
    seen = set()
    chosen = []
    for case in cases:
        values = {(place, repr(value)) for place, value in enumerate(case)}
        chosen.append(_case(case, not values <= seen))
        seen |= values
    return chosen


def _case(case, tried):
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=[] if tried else pytest.mark.exhaustive)
