"""The walk-through of docs/icu-sepsis.md with all its 10,000 stays: the numbers that it tells."""

import re
from pathlib import Path

import pytest

import butfor as bf

PAGE = Path(__file__).parent.parent / "docs" / "icu-sepsis.md"


@pytest.fixture(scope="module")
def found() -> dict:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert "stays = 500 " in code
    names: dict = {}
    exec(compile(code.replace("stays = 500 ", "stays = 10_000 "), PAGE.name, "exec"), names)
    return names


def test_the_page_tells_what_comes_out(found):
    audit, data = found["audit"], found["data"]
    value = audit.estimates.set_index("estimator")
    check = audit.diagnostics.set_index("check")
    text = " ".join(PAGE.read_text().split())
    true = bf.policy_value(data.model, audit.target[found["cluster"]])
    for words in (
        f"probability of survival of {value.loc['MB', 'value']:.4f} (MB)",
        f"CF {value.loc['CF', 'value']:.4f}",
        f"where the log had {value.loc['Observed', 'value']:.4f}",
        f"true value is {true:.4f}",
        f"the expert's {found['expert']:.4f}",
        f"{100 * check.loc['rare rows', 'value']:.0f} % of the decisions",
        f"rest on {value.loc['WIS', 'episodes']} stays that are worth "
        f"{value.loc['WIS', 'effective']:.0f}",
        f"score {value.loc['MB (cross-fitted)', 'value']:.2f} by the model",
    ):
        assert words.replace(" 0.", " .") in text, words


def test_the_lights_say_not_to_believe_it(found):
    light = found["audit"].diagnostics.set_index("check")["light"]
    assert light["rare rows"] == "red"
    assert light["effective sample size"] == "red"
