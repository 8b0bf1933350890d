"""Classifiers of scikit-learn that do well as learners of `fit_factored`."""

from __future__ import annotations

from contextlib import nullcontext
from importlib.util import find_spec
from typing import Any

import scipy.sparse as sparse

LOGISTIC, BOOSTING = "logistic regression", "boosting"
CLASSIFIERS = (LOGISTIC, BOOSTING)


def have_classifiers() -> bool:
    """Return whether scikit-learn is installed."""
    return find_spec("sklearn") is not None


def make_classifier(name: str) -> Any:
    """Return an unfitted classifier: logistic regression with all pairs of features, or boosting.

    Both are set up for a few thousand to a few hundred thousand cases with some dozens of 0-1
    features, as `fit_factored` gives them.
    """
    try:
        # an optional extra
        from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415
        from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
        from sklearn.pipeline import make_pipeline  # noqa: PLC0415
        from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(
            "classifiers need scikit-learn: pip install 'butfor[cluster]', or use 'counts'"
        ) from error
    if name == LOGISTIC:
        # most features and nearly all pairs of them are 0
        thin = FunctionTransformer(sparse.csr_array)
        pairs = PolynomialFeatures(interaction_only=True, include_bias=False)
        return make_pipeline(thin, pairs, LogisticRegression(C=0.1, max_iter=1000))
    if name == BOOSTING:
        return HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=8, random_state=0)
    raise ValueError(f"classifier {name!r}: give one of {', '.join(CLASSIFIERS)}")


def one_thread() -> Any:
    """Return a context in which scikit-learn uses one thread.

    With a few thousand rows more threads gain little, and on a busy machine they wait for each
    other many times as long as the work takes.
    """
    try:
        from threadpoolctl import threadpool_limits  # noqa: PLC0415  comes with scikit-learn
    except ImportError:
        return nullcontext()
    return threadpool_limits(1)
