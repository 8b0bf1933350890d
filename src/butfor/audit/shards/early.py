"""What summary detail cannot do, found before any file is read."""

from __future__ import annotations

from butfor.audit.settings import LOG, AuditSettings
from butfor.log.column_rules import column_rules
from butfor.log.fields import place
from butfor.log.sections import Study
from butfor.log.variables import project
from butfor.models.fit import check_rules


def check_early(chosen: AuditSettings, study: Study) -> None:
    """Raise the errors that can be found before any file is read."""
    if study.cluster is not None:
        raise ValueError(
            "[cluster]: clusters are fitted to the whole log at once; use --detail full, or write "
            "the cluster of each row into the log"
        )
    named = study.columns
    if chosen.target == LOG and named.target_action is None and named.target_probability is None:
        raise ValueError(
            "--target log: the study names neither target_action nor target_probability in "
            "[columns]; add one of them"
        )
    if not chosen.learned:
        chosen.check_target()
    check_rules(tuple(study.outcomes().values()), chosen.unseen, chosen.prior)
    numbered = list(study.number_columns())
    if numbered and chosen.classifies(study):
        raise ValueError(
            f"[state] {numbered[0]} number: summary detail keeps counts of levels, but a "
            "classifier learns from the numbers of all decisions; use --detail full, remove "
            'number, or set learner = "counts" in [model]'
        )
    for (_, column), rule in column_rules(study).items():
        if rule.median:
            raise ValueError(
                f"{place('missing', column)} fill: the median is that of the whole log; give a "
                "number or a level, or use --detail full"
            )
    names = chosen.noise(study)
    if names and study.columns.state is None:
        project(study.state_variables(), *names)
