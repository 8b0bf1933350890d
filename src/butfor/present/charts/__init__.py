"""Charts, one function each: plain data in, an Altair chart out; nothing else uses altair."""

from .confounding import confounding_chart as confounding_chart
from .glance import glance_datasets as glance_datasets
from .glance import glance_template as glance_template
from .influence import influence_chart as influence_chart
from .outcome_table import outcome_table_chart as outcome_table_chart
from .rows import changes_chart as changes_chart
from .rows import estimates_chart as estimates_chart
from .rows import rehearsal_chart as rehearsal_chart
from .save import save_figure as save_figure
from .studies.boxplot import boxplot_chart as boxplot_chart
from .studies.diagrams import scm_diagrams as scm_diagrams
from .studies.factors import errors_chart as errors_chart
from .studies.factors import pieces_chart as pieces_chart
from .studies.mechanisms import containment_chart as containment_chart
from .studies.mechanisms import reliability_chart as reliability_chart
from .studies.mechanisms import scores_chart as scores_chart
from .studies.nonidentifiability import nonidentifiability_chart as nonidentifiability_chart
from .trajectory.chart import trajectory_chart as trajectory_chart
from .trajectory.layout import TrajectoryLayout as TrajectoryLayout
from .trajectory.rows import trajectory_datasets as trajectory_datasets
from .trajectory.rows import trajectory_table as trajectory_table
from .trajectory.template import filled_template as filled_template
from .trajectory.template import trajectory_template as trajectory_template
from .uncertainty import uncertainty_chart as uncertainty_chart

GONE = ("agreement_chart", "entropy_chart", "growth_chart", "latent_chart", "learning_chart")


def __getattr__(name: str) -> None:
    if name in GONE:
        raise AttributeError(
            f"charts.{name} is gone since version 0.2.0; draw the table with altair"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
