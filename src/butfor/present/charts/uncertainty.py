"""Two kinds of uncertainty about each episode, side by side and never in one bar."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from butfor.present.charts import style
from butfor.present.text import ESTIMATE, HOLDS

PANEL, NAMES, TOTAL = 256, 118, 640  # widths
STEP = 24  # height of a row
MOST = 40
COVERS = "Covers what the log leaves open about the model, not its causal assumptions."
KINDS = ("any", "stable", "credible")
INTERVALS = tuple(f"{end}_{kind}" for kind in KINDS for end in ("low", "high"))
NUMBERS = ("observed_return", "expected_return", *INTERVALS)


@style.unchecked
def uncertainty_chart(
    episodes: pd.DataFrame,
    *,
    title: str = "For whom is it clear that the policy would have differed?",
    subtitle: str | None = None,
    axis_title: str | None = None,
    domain: style.Domain | None = None,
) -> alt.HConcatChart:
    """Draw what is open about each episode: the mechanism at the left, the model at the right.

    The two are not comparable and are not added: bounds take the model for granted, credible
    intervals the mechanism. Rows are sorted by difference, the largest at the top.

    Parameters
    ----------
    episodes
        One row per episode, up to forty: `id` and `observed_return, expected_return`, and
        `usual_return` if differences are from that (`Counterfactuals.frame()`),
        `low_any, high_any, low_stable, high_stable` (`Bounds.frame()`), `low_credible,
        high_credible` (`Credible.frame()`).
    domain
        Ends of both axes, moved out if the data exceed them; by default those of the data.
    """
    style.require_columns(episodes, ("id", *NUMBERS), "episodes")
    if len(episodes) > MOST:
        raise ValueError(f"{len(episodes)} episodes, {MOST} at most; select those to look at")
    usual = episodes.get("usual_return", episodes["observed_return"])
    if axis_title is None:
        added = ", continued by the model" * (not usual.equals(episodes["observed_return"]))
        axis_title = f"Expected return less what was observed{added}"
    values = episodes.assign(observed_return=usual)[list(NUMBERS)].to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise ValueError(
            f"episode {episodes['id'].iloc[row]}: {NUMBERS[column]} is {values[row, column]}; give "
            "a finite number"
        )
    if subtitle is None:
        subtitle = (
            f"{ESTIMATE} Left: the same model, other mechanisms that no data can tell apart; dot: "
            "Gumbel-Max, thick bar: every stable one, thin bar: every one. Right: Gumbel-Max, "
            "other models that the log allows; bar: credible interval, ring: the dot again."
        )
    differences = values[:, 1:] - values[:, :1]
    order = np.argsort(-differences[:, 0], kind="stable")
    rows = [_row(str(episodes["id"].iloc[i]), differences[i]) for i in order]
    ends = style.value_domain(np.append(differences, 0.0), domain)

    def x(field: str) -> Any:
        return style.value_axis(alt.X, field, axis_title, ends)

    base = alt.Chart(style.data(rows)).encode(
        tooltip=[
            alt.Tooltip("id:N"),
            alt.Tooltip("number:N"),
            alt.Tooltip("stable:N"),
            alt.Tooltip("any:N"),
            alt.Tooltip("credible:N"),
        ]
    )
    zero = alt.Chart(style.data([{"zero": 0}])).mark_rule(color=style.GREY, strokeWidth=1.5)
    axis = alt.Axis(domain=False, ticks=False, labelLimit=NAMES, grid=False)
    panels = []
    for name, words, draw, labels in (
        ("Which mechanism?", HOLDS, _mechanism_marks, axis),
        ("How sure is the model?", COVERS, _model_marks, None),
    ):
        y = alt.Y("id:N", sort=[row["id"] for row in rows], title=None, axis=labels)
        chart = style.layered(zero.encode(x=x("zero")), *draw(base.encode(y=y), x))
        heading = style.panel_title(name, PANEL, words)
        panels.append(style.framed(chart, PANEL, STEP * len(rows)).properties(title=heading))
    return style.finish(alt.hconcat(*panels, spacing=26), title, subtitle, total=TOTAL)


def _row(name: str, difference: np.ndarray[Any, np.dtype[np.float64]]) -> style.Row:
    """Return an episode's differences, and the same in words for those who point at them."""
    row: style.Row = {"id": name, "difference": float(difference[0])}
    row["number"] = style.signed(row["difference"], 2)
    for kind, (low, high) in zip(KINDS, difference[1:].reshape(3, 2).tolist(), strict=True):
        row |= {f"low_{kind}": low, f"high_{kind}": high}
        row[kind] = f"{style.signed(low, 2)} to {style.signed(high, 2)}"
    return row


def _mechanism_marks(base: alt.Chart, x: Any) -> list[alt.Chart]:
    end = base.mark_tick(thickness=2, size=9, color=style.BLUE, opacity=1, orient="vertical")
    dot = base.mark_point(filled=True, size=60, opacity=1, color=style.BLACK)
    return [
        base.mark_rule(strokeWidth=9, color="#A9CDE4").encode(
            x=x("low_stable"), x2=alt.X2("high_stable:Q")
        ),
        base.mark_rule(strokeWidth=2, color=style.BLUE).encode(
            x=x("low_any"), x2=alt.X2("high_any:Q")
        ),
        end.encode(x=x("low_any")),
        end.encode(x=x("high_any")),
        dot.encode(x=x("difference")),
    ]


def _model_marks(base: alt.Chart, x: Any) -> list[alt.Chart]:
    ring = base.mark_point(filled=True, size=50, opacity=1, fill="white", stroke=style.BLACK)
    return [
        base.mark_rule(strokeWidth=6, color=style.GREEN).encode(
            x=x("low_credible"), x2=alt.X2("high_credible:Q")
        ),
        ring.encode(x=x("difference")),
    ]
