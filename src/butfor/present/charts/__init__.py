"""Charts, one function each: plain data in, an Altair chart out; nothing else uses altair."""

from butfor.present.charts.changes import changes_chart
from butfor.present.charts.estimates import estimates_chart
from butfor.present.charts.glance import glance_datasets, glance_template
from butfor.present.charts.influence import influence_chart
from butfor.present.charts.labels import labels_chart
from butfor.present.charts.outcome_table import outcome_table_chart
from butfor.present.charts.save import save_figure
from butfor.present.charts.studies.agreement import agreement_chart
from butfor.present.charts.studies.boxplot import boxplot_chart
from butfor.present.charts.studies.containment import containment_chart
from butfor.present.charts.studies.diagrams import scm_diagrams
from butfor.present.charts.studies.entropy import entropy_chart
from butfor.present.charts.studies.errors import errors_chart
from butfor.present.charts.studies.growth import growth_chart
from butfor.present.charts.studies.latent import latent_chart
from butfor.present.charts.studies.learning import learning_chart
from butfor.present.charts.studies.nonidentifiability import nonidentifiability_chart
from butfor.present.charts.studies.pieces import pieces_chart
from butfor.present.charts.studies.reliability import reliability_chart
from butfor.present.charts.studies.scores import scores_chart
from butfor.present.charts.trajectory.chart import trajectory_chart
from butfor.present.charts.trajectory.layout import TrajectoryLayout
from butfor.present.charts.trajectory.rows import trajectory_datasets, trajectory_table
from butfor.present.charts.trajectory.template import filled_template, trajectory_template
from butfor.present.charts.uncertainty import uncertainty_chart

__all__ = [
    "TrajectoryLayout",
    "agreement_chart",
    "boxplot_chart",
    "changes_chart",
    "containment_chart",
    "entropy_chart",
    "errors_chart",
    "estimates_chart",
    "filled_template",
    "glance_datasets",
    "glance_template",
    "growth_chart",
    "influence_chart",
    "labels_chart",
    "latent_chart",
    "learning_chart",
    "nonidentifiability_chart",
    "outcome_table_chart",
    "pieces_chart",
    "reliability_chart",
    "save_figure",
    "scm_diagrams",
    "scores_chart",
    "trajectory_chart",
    "trajectory_datasets",
    "trajectory_table",
    "trajectory_template",
    "uncertainty_chart",
]
