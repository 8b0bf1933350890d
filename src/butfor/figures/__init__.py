"""Pictures, one function each: plain data in, an Altair chart out; the only home of altair."""

from butfor.figures.agreement import agreement_chart
from butfor.figures.boxplot import boxplot_chart
from butfor.figures.changes import changes_chart
from butfor.figures.containment import containment_chart
from butfor.figures.diagrams import scm_diagrams
from butfor.figures.entropy import entropy_chart
from butfor.figures.errors import errors_chart
from butfor.figures.estimates import estimates_chart
from butfor.figures.glance import glance_datasets, glance_template
from butfor.figures.growth import growth_chart
from butfor.figures.influence import influence_chart
from butfor.figures.labels import labels_chart
from butfor.figures.latent import latent_chart
from butfor.figures.nonidentifiability import nonidentifiability_chart
from butfor.figures.outcome_table import outcome_table_chart
from butfor.figures.pieces import pieces_chart
from butfor.figures.reliability import reliability_chart
from butfor.figures.save import save_figure
from butfor.figures.scores import scores_chart
from butfor.figures.stay import stay_chart, stay_template
from butfor.figures.stay_rows import stay_datasets, stay_table
from butfor.figures.strips import Layout
from butfor.figures.trajectory import trajectory_chart
from butfor.figures.uncertainty import uncertainty_chart

__all__ = [
    "Layout",
    "agreement_chart",
    "boxplot_chart",
    "changes_chart",
    "containment_chart",
    "entropy_chart",
    "errors_chart",
    "estimates_chart",
    "glance_datasets",
    "glance_template",
    "growth_chart",
    "influence_chart",
    "labels_chart",
    "latent_chart",
    "nonidentifiability_chart",
    "outcome_table_chart",
    "pieces_chart",
    "reliability_chart",
    "save_figure",
    "scm_diagrams",
    "scores_chart",
    "stay_chart",
    "stay_datasets",
    "stay_table",
    "stay_template",
    "trajectory_chart",
    "uncertainty_chart",
]
