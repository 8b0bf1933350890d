"""The paper's two diagrams of structural causal models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import altair as alt

from butfor.present.charts import style

WIDTH = 560  # of a diagram, in pixels
RADIUS = 20  # of a node
HEAD = 11  # length of an arrow's head
LOOKS = {  # of a node: shape, fill, letters
    "observed": ("circle", "#D5D8DC", style.BLACK),
    "noise": ("circle", "#FFFFFF", style.BLACK),
    "computed": ("square", style.BLACK, "#FFFFFF"),
}
Node = tuple[float, float, str]  # x, y and the look


@style.unchecked
def scm_diagrams() -> dict[str, alt.LayerChart]:
    """Draw a causal graph beside its SCM ("graph"), and the SCM of a POMDP ("pomdp")."""
    return {"graph": _graph(), "pomdp": _pomdp()}


def _graph() -> alt.LayerChart:
    nodes: dict[str, Node] = {
        **{"X": (60, 30, "observed"), "T": (60, 130, "observed"), "Y": (170, 130, "observed")},
        **{"X'": (410, 30, "computed"), "T'": (410, 130, "computed"), "Y'": (520, 130, "computed")},
        **{"U_x": (310, 30, "noise"), "U_t": (310, 130, "noise"), "U_y": (520, 30, "noise")},
    }
    edges = [("X", "T"), ("X", "Y"), ("T", "Y"), ("X'", "T'"), ("X'", "Y'"), ("T'", "Y'")]
    edges += [("U_x", "X'"), ("U_t", "T'"), ("U_y", "Y'")]
    subtitle = (
        "X: what is known of a patient. T: treatment. Y: outcome. Grey circle: observed. Black "
        "square: computed from what points at it. White circle: noise that no intervention changes."
    )
    words = [(115, 180, "Causal graph"), (415, 180, "Structural causal model")]
    title = "From a causal graph to a structural causal model"
    return _diagram(nodes, edges, words, title, subtitle, 190)


def _pomdp() -> alt.LayerChart:
    nodes: dict[str, Node] = {}
    edges: list[tuple[str, str]] = []
    for step in (1, 2, 3):
        x = 95 + 185 * (step - 1)
        nodes |= {
            f"U_s{step}": (x, 25, "noise"),
            f"S_{step}": (x, 105, "computed"),
            f"O_{step}": (x, 185, "computed"),
            f"U_o{step}": (x + 66, 185, "noise"),
            f"H_{step}": (x, 265, "computed"),
            f"A_{step}": (x, 345, "computed"),
            f"U_a{step}": (x - 66, 345, "noise"),
        }
        within = ("U_s S_", "S_ O_", "U_o O_", "O_ H_", "H_ A_", "U_a A_")
        edges += [(f"{a}{step}", f"{b}{step}") for a, b in map(str.split, within)]
        if step > 1:
            across = ("S_ S_", "A_ S_", "H_ H_", "A_ H_")
            edges += [(f"{a}{step - 1}", f"{b}{step}") for a, b in map(str.split, across)]
    subtitle = (
        "S: state. O: what is observed of it. H: history, all of O and A so far. A: action, chosen "
        "by the policy from H and noise. White circle: noise, which a replay keeps."
    )
    words = [(545, y, "…") for y in (105, 265)]
    title = "A partially observed decision process as a structural causal model"
    return _diagram(nodes, edges, words, title, subtitle, 372)


def _diagram(
    nodes: Mapping[str, Node],
    edges: Sequence[tuple[str, str]],
    words: Sequence[tuple[float, float, str]],
    title: str,
    subtitle: str,
    height: int,
) -> alt.LayerChart:
    """Draw nodes, named letter_subscript, the arrows between them, and words beside them."""
    points: list[style.Row] = []
    for name, (x, y, look) in nodes.items():
        letter, _, subscript = name.rstrip("'").partition("_")
        shape, fill, letters = LOOKS[look]
        # the letter moves left to make room for its subscript
        points.append({"letter": letter, "subscript": subscript, "x": x, "y": y, "ink": letters})
        points[-1] |= {"shape": shape, "fill": fill, "x_letter": x - 3.5 * len(subscript)}
        points[-1] |= {"x_subscript": x - 3.5 * len(subscript) + 6, "y_subscript": y + 5}
    arrows = [_arrow(nodes[one], nodes[other]) for one, other in edges]
    labels = [{"x": x, "y": y, "text": text} for x, y, text in words]

    def place(x: str, y: str) -> dict[str, alt.X | alt.Y]:
        return {"x": style.pixels(x, WIDTH), "y": style.pixels(y, height, down=True)}

    node, arrow = alt.Chart(style.data(points)), alt.Chart(style.data(arrows))
    text = alt.Chart(style.data(labels)).mark_text(fontWeight="bold", fontSize=15)
    ink = alt.Color("ink:N", scale=None)
    layers = [
        arrow.mark_rule(strokeWidth=1.8, color=style.GREY).encode(
            x2=alt.X2("x2:Q"), y2=alt.Y2("y2:Q"), **place("x", "y")
        ),
        arrow.mark_point(
            shape=f"M0,0L-{HEAD},-4.5L-{HEAD},4.5Z",
            filled=True,
            color=style.GREY,
            opacity=1,
            size=4,
        ).encode(angle=alt.Angle("angle:Q", scale=None), **place("tip_x", "tip_y")),
        node.mark_point(filled=True, stroke=style.BLACK, strokeWidth=1.5, opacity=1).encode(
            size=alt.value((2 * RADIUS) ** 2),
            fill=alt.Fill("fill:N", scale=None),
            shape=alt.Shape("shape:N", scale=None),
            **place("x", "y"),
        ),
        node.mark_text(fontSize=18, fontStyle="italic").encode(
            text=alt.Text("letter:N"), color=ink, **place("x_letter", "y")
        ),
        node.mark_text(fontSize=13, align="left").encode(
            text=alt.Text("subscript:N"), color=ink, **place("x_subscript", "y_subscript")
        ),
        text.encode(text=alt.Text("text:N"), **place("x", "y")),
    ]
    chart = style.layered(*layers).properties(width=WIDTH, height=height)
    return style.finish(chart, title, subtitle, total=WIDTH)


def _arrow(one: Node, other: Node) -> style.Row:
    across, down = other[0] - one[0], other[1] - one[1]
    length = math.hypot(across, down)

    def edge(look: str) -> float:
        if look != "computed":
            return RADIUS + 1.0
        return (RADIUS + 1.0) * length / max(abs(across), abs(down))  # a square, seen aslant

    start, tip = edge(one[2]) / length, 1 - edge(other[2]) / length
    neck = tip - (HEAD - 1) / length
    return {
        "x": one[0] + across * start,
        "y": one[1] + down * start,
        "x2": one[0] + across * neck,
        "y2": one[1] + down * neck,
        "tip_x": one[0] + across * tip,
        "tip_y": one[1] + down * tip,
        "angle": math.degrees(math.atan2(down, across)),
    }
