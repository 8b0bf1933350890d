"""Numbers reported by Oberst and Sontag (2019) and by the published run of their code."""

from __future__ import annotations

from typing import Any

import pandas as pd

from butfor.studies.article import Source

BUESING = Source(
    "L. Buesing, T. Weber, Y. Zwols, S. Racaniere, A. Guez, J.-B. Lespiau and N. Heess",
    "Woulda, Coulda, Shoulda: Counterfactually-Guided Policy Search",
    "ICLR 2019",
    "10.48550/arXiv.1811.06272",
)
# Figure 3 of the paper, published run: mean, low, high
FIGURE_3 = {
    "Obs": (0.324, 0.289, 0.369),
    "WIS": (0.629, 0.068, 0.946),
    "MB": (0.916, 0.895, 0.937),
    "CF": (0.953, 0.946, 0.960),
    "True": (-0.491, -0.541, -0.445),
}
# of 1000 patients, those who died and "would have been discharged": the paper's 10%
WOULD_HAVE_LIVED = 103
# table in the appendix, 100 fresh logs: mean, low, high
TABLE = {
    "hidden": {
        "Observed": (0.3097, 0.2694, 0.3510),
        "WIS (train)": (0.6074, -0.4217, 0.9903),
        "WIS (held-out)": (0.3153, -0.9243, 0.9879),
        "MB": (0.8128, 0.5700, 0.9625),
        "True": (-0.2743, -0.5850, 0.0549),
    },
    "full": {
        "Observed": (0.3097, 0.2694, 0.3510),
        "WIS (train)": (0.5804, -0.2336, 0.9235),
        "WIS (held-out)": (-0.0372, -0.9379, 0.7991),
        "MB": (0.5779, 0.3738, 0.7270),
        "True": (-0.1930, -0.4051, -0.0004),
    },
}
LOGS = 100


def figure3() -> pd.DataFrame:
    """Return Figure 3 of the paper: estimator, mean, low, high."""
    columns = ["mean", "low", "high"]
    return (
        pd.DataFrame.from_dict(FIGURE_3, "index", columns=columns)
        .rename_axis("estimator")
        .reset_index()
    )


def reported_table(state: str) -> pd.DataFrame:
    """Return the table of the appendix: mean, low and high by estimator."""
    return pd.DataFrame.from_dict(TABLE[state], orient="index", columns=["mean", "low", "high"])


def standard_error(low: Any, high: Any, logs: int = LOGS) -> Any:
    """Return the standard error of a published mean, derived from the 95% range over logs."""
    return (high - low) / (2 * 1.959964) / logs**0.5
