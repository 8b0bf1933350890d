"""The report: one file, its policy, its words, its counts, and texts that try to be markup."""

import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import altair as alt
import numpy as np
import pandas as pd
import pytest
from jsonschema import ValidationError
from typer.testing import CliRunner

import butfor as bf
from butfor import charts
from butfor.cli.main import app
from butfor.evaluate.rehearsal import Rehearsal
from butfor.evaluate.wording import Digits, percent, plural, share, signed
from butfor.present import STATIC, Stays
from butfor.present.charts.trajectory.layout import TrajectoryLayout
from butfor.present.charts.trajectory.rows import NAMES_OF_DATA
from butfor.present.report import content
from butfor.present.report.estimates import estimates_section
from butfor.present.report.figures import audit_figures
from butfor.present.report.write import _json, pack_rows, render_report
from butfor.present.story import learned_again
from tests.audits import HOSTILE, hidden_audit, hostile_audit, sepsis_audit, trade_audit

FORBIDDEN = (
    r"counterfactual",
    r"\bSCM\b",
    r"gumbel",
    r"\bMDP\b",
    r"posterior",
    r"would have survived",
    r"avoidable death",
    r"\bsaved\b",
    r"(?<![\d.])0%",
    r"100%",
    r"\bnan\b",
    r"None",
    r"\b(red|amber|green)\b",  # what is wrong, not the color of a light
)
CHARTS = ("estimates", "glance", "template")


@pytest.fixture(scope="module")
def audit():
    return sepsis_audit()


@pytest.fixture(scope="module")
def hidden():
    return hidden_audit()


@pytest.fixture(scope="module")
def page(audit):
    return render_report(audit)


@pytest.fixture(scope="module")
def trade():
    return trade_audit()


@pytest.fixture(scope="module")
def trade_page(trade):
    return render_report(trade)


@pytest.fixture(scope="module")
def hidden_page(hidden):
    return render_report(hidden)


class Reader(HTMLParser):
    """Collects what a browser would see: tags, attributes, texts, and blocks of data."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.words, self.blocks, self._open = [], [], {}, None
        self.attributes = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        self._open = (tag, dict(attrs)) if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self._open = None

    def handle_data(self, data):
        if self._open is None:
            self.words.append(data)
        else:
            tag, attributes = self._open
            self.blocks[attributes.get("id", tag)] = data

    def data(self, name):
        return json.loads(self.blocks[f"data-{name}"])

    def all_words(self):
        """Every text that a reader can see, without the program."""
        seen = [
            *self.words,
            *(str(value) for _, name, value in self.attributes if name == "aria-label"),
        ]
        for name in self.blocks:
            if name.startswith("data-"):
                seen += list(_texts(json.loads(self.blocks[name])))
        return "\n".join(seen)


def _texts(value, key=""):
    if isinstance(value, dict):
        for name, entry in value.items():
            if name not in ("spec",):
                yield from _texts(entry, name)
    elif isinstance(value, list):
        for entry in value:
            yield from _texts(entry)
    elif isinstance(value, str):
        yield value


# ------------------------------------------------------------------------------- the file itself


def test_the_file_forbids_every_request_and_runs_only_what_is_hashed(page):
    read = Reader(page)
    policy = next(v for _, n, v in read.attributes if n == "content" and "default-src" in v)
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(read.blocks[tag].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    # no attribute that loads something, leads elsewhere, or is a script or a style
    for tag, name, value in read.attributes:
        assert not re.fullmatch("src|style|action|on.*", name), (tag, name)
        if name == "href":
            assert value.startswith("#")
    assert {"link", "img", "iframe", "object", "form"}.isdisjoint(read.tags)
    assert "url(" not in read.blocks["style"]
    assert "@import" not in read.blocks["style"]
    outside = page.replace(read.blocks["script"], "")
    addresses = set(re.findall(r"https?://[^\"'\s<]+", outside))
    assert all("vega.github.io/schema" in address for address in addresses)


def test_sections_and_charts_are_there_each_with_words_and_numbers(page):
    read = Reader(page)
    for number in range(1, 7):
        assert re.search(rf"<h2>{number}\. ", page), number
    assert page.count('role="img"') == 3  # the third is in the template of a stay
    assert len(re.findall(r'role="img" tabindex="0" aria-label="[^"]{40,}"', page)) == 2
    assert page.count("Show numbers") == 4
    stay = read.data("stay-0")
    assert stay["description"].startswith(stay["title"])
    assert stay["table"][0][0] == "Step"
    for name in CHARTS:
        assert read.data(name)["spec"]["description"]


def test_every_chart_keeps_to_the_schema_of_vega_lite(page):
    # reports take charts as they are made, unchecked
    read = Reader(page)
    found = [read.data(name).get(size) for name in CHARTS for size in ("spec", "narrow")]
    drawn = [chart for chart in found if chart]
    assert len(drawn) == 5
    for chart in drawn:
        alt.LayerChart.validate(chart)
    broken = drawn[0] | {"layer": [{"mark": "smile"}]}
    with pytest.raises(ValidationError):
        alt.LayerChart.validate(broken)


def test_numbers_on_buttons_are_the_stays_that_they_list(audit, page):
    rows = Reader(page).data("listing")["rows"]
    assert len(rows) == len(audit.episodes)
    names = Reader(page).data("listing")["names"]
    buttons = re.findall(
        r'data-observed="(\d)" data-model="(\d)".*?<b>(\d+)</b><small>expected (.*?)</small>'
        r"<small>thin (\d+)</small>",
        page,
    )
    assert len(buttons) == len(names) ** 2
    table = audit.outcome_table()
    for observed, model, count, _, thin in buttons:
        listed = [row for row in rows if (row[1], row[3]) == (int(observed), int(model))]
        assert len(listed) == int(count) == table.loc[names[int(observed)], names[int(model)]]
        assert sum(row[7] > 0.5 for row in listed) == int(thin)


def test_every_flagged_stay_is_shown_in_order_of_rank(audit, page):
    read = Reader(page)
    ids = [str(identifier) for identifier in audit.flagged["id"]]
    shown = [read.data(f"stay-{place}")["id"] for place in range(len(ids))]
    assert shown == ids
    assert f"data-stay-{len(ids)}" not in read.blocks
    placed = {row[0]: row[9] for row in read.data("listing")["rows"] if row[9] >= 0}
    assert placed == {name: place for place, name in enumerate(ids)}


def test_the_same_audit_gives_the_same_bytes_from_memory_and_from_its_folder(audit, tmp_path):
    audit.save(tmp_path / "audit")
    one = bf.write_report(audit, tmp_path / "one.html", episodes=3)
    two = bf.write_report(tmp_path / "audit", tmp_path / "two.html", episodes=3)
    assert one.read_bytes() == two.read_bytes()


def test_all_stays_can_be_shown_and_sizes_stay_small(audit, page):
    fewer = sepsis_audit(40, review_size=24)
    everyone = render_report(fewer, episodes=1000)
    read = Reader(everyone)
    assert read.data(f"stay-{len(fewer.episodes) - 1}")["course"] is False
    bundle = len(read.blocks["script"])
    each = (len(page) - bundle) / len(audit.flagged)
    assert bundle + 60 * each < 3e6
    assert len(everyone) < bundle + 20_000 * len(fewer.episodes)
    assert "data-stay-0" not in Reader(render_report(fewer, episodes=0)).blocks


# ----------------------------------------------------------------------------------------- words


@pytest.mark.parametrize("which", ["page", "trade_page", "hidden_page"])
def test_words_that_must_not_be_on_screen_are_not(which, request):
    words = Reader(request.getfixturevalue(which)).all_words()
    for pattern in FORBIDDEN:
        found = re.search(
            rf".{{0,60}}{pattern}.{{0,60}}", words, re.IGNORECASE if pattern.islower() else 0
        )
        assert found is None, found
    for found in re.finditer(r".?\b(PD)?WIS\b.?", words):
        assert found[0].startswith("(")
        assert found[0].endswith(")")


def test_what_must_be_shown_together_is(page, audit):
    read = Reader(page)
    for place in range(len(audit.flagged)):
        stay = read.data(f"stay-{place}")
        assert stay["says"].startswith("Under the policy the model says: ")
        assert stay["caveat"].startswith("A model estimate, not a fact. ")
        assert "of its steps rest on fewer than 10 similar past cases." in stay["caveat"]
        assert "worst to best case" in stay["range"]
        assert stay["range"].endswith("Holds only if the model is right.")
    text = " ".join(read.words)
    assert "Covers chance, also in what the model learned; not what the records leave out." in text
    assert "weighted importance sampling (WIS)" in text
    assert "A flag means “read this chart”, not “the policy is better”." in text
    assert "Never given to the model: diabetes, glucose." in text


def test_the_conclusion_comes_first_and_what_cannot_be_checked_is_named(page, audit):
    text = " ".join(" ".join(Reader(page).words).split())
    said = audit.conclusion.sentence.replace("episode", "stay")
    assert said.endswith("Do not act on this.")
    assert text.count(said) == 1
    assert text.index(said) < text.index("Read first.")
    assert "cannot be checked hidden causes No computation shows" in text


def test_a_true_value_says_why_it_is_known(audit):
    with_truth = replace(
        audit,
        estimates=_with_row(audit.estimates, estimator="True", value=-0.4, low=np.nan, high=np.nan),
    )
    assert "known only because this is a simulator" in render_report(with_truth, episodes=0)


def _with_row(frame, **values):
    row = frame.iloc[[0]].assign(**values)
    return type(frame)(
        {name: [*frame[name].tolist(), *row[name].tolist()] for name in frame.columns}
    )


def test_another_domain_has_its_own_words(trade_page):
    read = Reader(trade_page)
    words = read.all_words()
    assert "80 deliveries" in words
    assert "Delivery D-" in read.data("stay-0")["title"]
    assert not re.search(
        r"patient|\bstays?\b|episode", " ".join(read.words).replace("episodes left", "")
    )
    assert re.search(r"have chosen route: (north|bridge|south)", words)
    assert "gate closed" in words
    # what never changes and the model was given
    assert read.data("stay-0")["given"][0][0] == "van"
    assert {note["name"] for note in read.data("stay-0")["notes"]} <= {"notes", "load in kg"}


@pytest.mark.parametrize(
    ("noun", "several"),
    [("stay", "stays"), ("delivery", "deliveries"), ("box", "boxes"), ("case", "cases")],
)
def test_nouns_have_plurals(noun, several):
    assert plural(noun) == several


def test_shares_and_signed_numbers_in_words():
    assert [share(x) for x in (0, 0.0004, 0.5, 0.9999, 1)] == [
        "none",
        "under 0.1%",
        "50%",
        "over 99.9%",
        "all",
    ]
    assert [signed(x) for x in (-0.0, -1.5, 0.0012, 1234.5, float("nan"))] == [
        "+0.00",
        "−1.50",
        "+0.0012",
        "+1,234",
        "no estimate",
    ]


# --------------------------------------------------------------------------------- hostile texts


def test_hostile_texts_are_texts_everywhere():
    audit = hostile_audit()
    text = render_report(audit)
    read = Reader(text)
    assert {"img", "iframe"}.isdisjoint(read.tags)
    blocks = 4 + len(audit.flagged) + 1
    assert read.tags.count("script") == blocks
    assert text.count("<script") - read.blocks["script"].count("<script") == blocks
    assert not any(name.startswith("on") for _, name, _ in read.attributes)
    straight = HOSTILE.replace("\u202e", "")
    assert straight in " ".join(read.words)
    assert straight in read.data("stay-0")["title"]
    assert "\u202e" not in html.unescape(text)
    assert "\\u202e" not in text
    assert read.data("stay-0")["notes"][0]["entries"][0][1].startswith(straight)


def test_redacting_leaves_out_side_information_and_free_text(audit, trade, trade_page):
    redacted, whole = render_report(trade, redact=True), trade_page
    for secret in ("gate closed", "load in kg", "the new rule", "read with care"):
        assert secret not in redacted
        assert secret in whole
    patients = Reader(render_report(audit, redact=True))
    assert "glucose" not in patients.all_words()
    assert "glucose" not in json.dumps(patients.data("template"))
    assert "left out of this copy" in " ".join(patients.words)


# ---------------------------------------------------------------------------- templates and rows


@pytest.fixture(scope="module")
def stays(audit):
    return Stays(audit)


def test_the_template_has_a_place_for_every_dataset_and_rows_of_one_stay_fill_it(stays, audit):
    template = stays.template()
    rows = stays.datasets(audit.flagged["id"].iloc[0])
    assert set(rows) == set(NAMES_OF_DATA) < set(template["datasets"])
    assert all(template["datasets"][name] == [] for name in rows)
    assert "title" not in template


def test_shading_is_the_audits_exact_course_and_side_rows_have_none(stays, audit):
    levels = stays.layout.level_rows
    side = {strip.variable.name for strip in stays.layout.strips if strip.kind == "side"}
    assert side == {"glucose"}
    for identifier in audit.flagged["id"]:
        courses = audit.courses[audit.courses["id"] == identifier]
        exact = {(r.step, r.variable, r.level): r.probability for r in courses.itertuples()}
        for row in stays.datasets(identifier)["shade"]:
            level = levels[row["k"]]
            assert level["variable"] not in side
            key = (row["step"], level["variable"], level["level"])
            assert row["p"] == pytest.approx(exact[key], abs=1e-4)


def test_the_black_line_is_what_happened(stays, audit):
    levels = stays.layout.level_rows
    identifier = audit.flagged["id"].iloc[0]
    steps = audit.steps[audit.steps["id"] == identifier].set_index("step")
    for row in stays.datasets(identifier)["happened"]:
        name, level = levels[row["k"]]["variable"], levels[row["k"]]["level"]
        column = f"side.{name}" if name == "glucose" else f"state.{name}"
        assert steps.loc[row["step"], column] == level


def test_outcomes_by_step_add_up_and_end_at_the_episodes_probabilities(stays, audit):
    for identifier in audit.flagged["id"]:
        rows = stays.datasets(identifier)["places"]
        for step in range(21):
            height = sum(row["high"] - row["low"] for row in rows if row["step"] == step)
            assert height == pytest.approx(1, abs=0.02)
        episode = audit.episodes.set_index("id").loc[identifier]
        green = stays.layout.looks[1]["color"]
        last = [r["high"] - r["low"] for r in rows if r["step"] == 20 and r["fill"] == green]
        assert sum(last) == pytest.approx(episode["p_discharged"], abs=0.006)


def test_a_decision_shows_when_it_was_made_if_treatments_are_not_part_of_the_state(trade):
    stays = Stays(trade)
    identifier = trade.flagged["id"].iloc[0]
    steps = trade.steps[trade.steps["id"] == identifier]
    levels = stays.layout.level_rows
    shown = [
        (row["step"], levels[row["k"]]["level"])
        for row in stays.datasets(identifier)["happened"]
        if levels[row["k"]]["variable"] == "route"
    ]
    decided = steps["action.route"].tolist()[:-1]
    assert shown == list(enumerate(decided))


def test_an_episode_looks_the_same_drawn_from_its_log_and_from_the_audit(stays, audit):
    for identifier in audit.flagged["id"].iloc[::3]:
        one, draws = audit.trajectory(identifier)
        drawn = charts.trajectory_chart(one, 0, draws).to_dict()["datasets"]
        rows = stays.datasets(identifier)
        for name in ("happened", "ends", "draws", "draw_ends"):
            assert drawn[name] == rows[name], (identifier, name)


def test_the_chart_by_itself_carries_its_caveat(stays, audit, tmp_path):
    identifier = audit.flagged["id"].iloc[0]
    stay = stays.one(identifier)
    chart = charts.filled_template(stays.layout, stay["datasets"], stay["title"], stay["caveat"])
    (path,) = charts.save_figure(chart, tmp_path / "stay", ["svg"])
    assert "A model estimate, not a fact." in path.read_text()


def test_many_stays_are_thinned_in_the_glance_but_never_flagged_ones(audit, monkeypatch):
    monkeypatch.setattr("butfor.present.charts.glance.MOST", 50)
    names = audit.meta.outcome_names
    marks = charts.glance_datasets(audit.episodes, names)["marks"]
    assert len(marks) < 75
    assert sum(mark.get("flagged", False) for mark in marks) == len(audit.flagged)
    with pytest.raises(ValueError, match="rows for died"):
        charts.glance_datasets(audit.episodes, ["died"])


def test_the_glance_without_flags_reveals_none(stays):
    told = json.dumps(content.glance(stays, flags=False)).lower()
    assert "flag" not in told
    assert "ringed" not in told
    assert "line: worst to best case" in told
    told = json.dumps(content.glance(stays)).lower()
    assert "ringed: flagged, to be read. line: worst to best case" in told
    assert '"flagged": true' in told


def test_what_was_recorded_once_has_its_step_and_what_always_holds_has_none(trade):
    id_ = trade.episodes["id"].iloc[0]
    first = int(trade.episodes["length"].iloc[0])
    steps = trade.steps.assign(**{"side.notes": None, "side.load in kg": 64.4, "side.door": None})
    steps["side.notes"] = steps["side.notes"].astype(object)
    steps.loc[2, "side.notes"] = "gate closed"
    steps.loc[[1, 3], "side.door"] = "open"
    steps.loc[first, "side.load in kg"] = np.nan  # nothing is known about the end
    stay = Stays(replace(trade, steps=steps)).one(id_)
    assert stay["side"] == [["load in kg", "64.4"]]
    assert stay["notes"] == [
        {"name": "notes", "entries": [[2, "gate closed"]]},
        {"name": "door", "entries": [[1, "open"], [3, "open"]]},
    ]
    assert stay["first_change"] == trade.episodes["first_change"].iloc[0]


def test_packed_rows_unpack_to_the_same(stays, audit):
    rows = stays.datasets(audit.flagged["id"].iloc[0])
    for name, (fields, *values) in ((n, r) for n, r in pack_rows(rows).items() if r):
        back = [{f: v for f, v in zip(fields, row, strict=True) if v is not None} for row in values]
        assert back == rows[name]


def test_a_layout_without_changing_side_variables_has_no_yellow_row(trade):
    layout = Stays(trade).layout
    assert isinstance(layout, TrajectoryLayout)
    assert [strip.kind for strip in layout.strips] == ["state", "state", "action"]


# --------------------------------------------------------------------------------- hidden states


def test_a_hidden_variable_has_a_violet_strip_and_one_under_the_policy_below_its_side_row(hidden):
    layout = Stays(hidden).layout
    kinds = [s.kind for s in layout.strips if s.variable.name == "glucose"]
    assert kinds == ["side", "inferred", "policy"]
    assert "diabetes" not in {strip.variable.name for strip in layout.strips}
    assert all(a.bottom < b.top for a, b in pairwise(layout.strips))
    boxes = [row for row in _values(Stays(hidden).template()) if row.get("below")]
    assert [(row["below"], row["fill"]) for row in boxes] == [
        (["never given", "to the model"], "#FBF1D0"),
        (["inferred"], "#EDE9F7"),
        (["under the policy"], "white"),
    ]


def _values(spec):
    """Rows that all stays share."""
    for rows in spec["datasets"].values():
        yield from rows


def test_shading_of_hidden_variables_is_that_of_its_own_world(hidden):
    stays = Stays(hidden)
    kinds = {
        strip.first + code: (strip.kind, strip.variable.name, level)
        for strip in stays.layout.strips
        for code, level in enumerate(strip.variable.levels)
    }
    for identifier in hidden.flagged["id"]:
        courses = hidden.courses[hidden.courses["id"] == identifier]
        exact = {
            (r.world, r.variable, r.level, r.step): r.probability
            for r in courses.itertuples()
            if r.probability >= 0.005 and r.variable not in ("", "diabetes")
        }
        found = {}
        for world, name in (("target", "shade"), ("observed", "inferred")):
            for row in stays.datasets(identifier)[name]:
                kind, variable, level = kinds[row["k"]]
                assert (kind == "inferred") == (world == "observed")
                found[world, variable, level, row["step"]] = row["p"]
        assert found == pytest.approx(exact, abs=1e-4)
        length = hidden.episodes.set_index("id").loc[identifier, "length"]
        for step in range(length + 1):
            whole = sum(
                p for (world, *_, at), p in found.items() if (world, at) == ("observed", step)
            )
            assert whole == pytest.approx(1, abs=5 * 0.005)  # levels under 0.005 are not drawn


def test_what_was_inferred_is_in_table_words_and_description(hidden, hidden_page):
    stays = Stays(hidden)
    identifier = hidden.flagged["id"].iloc[0]
    stay = stays.one(identifier)
    head, first, *_ = stay["table"]
    assert head.count("glucose") == 1
    rows = hidden.courses[(hidden.courses["id"] == identifier) & (hidden.courses["step"] == 0)]
    rows = rows[rows["world"] == "observed"].sort_values("probability", ascending=False)
    likeliest = rows[rows["variable"] == "glucose"]["level"].iloc[0]
    assert first[head.index("Inferred: glucose")].startswith(likeliest)
    assert first[head.index("Model: glucose")].startswith(likeliest)
    diabetes = rows[rows["variable"] == "diabetes"].iloc[0]
    (name, words), drawn = stay["inferred"]
    assert name == "diabetes"
    assert words.startswith(f"{diabetes['level']}: {percent(diabetes['probability'])}")
    assert drawn == ["glucose", "the violet row of the chart"]
    assert "Inferred by the model from the whole record: diabetes, glucose." in stay["description"]
    assert "diabetes" not in dict(stay["given"])
    assert "Where the record looks the same, others were treated so " in stay["first"]
    assert "glucose" in dict(stay["side"])
    told = Reader(hidden_page).all_words()
    assert "Inferred by the model, which never saw it: diabetes, glucose." in told


def test_without_the_model_nothing_of_what_it_inferred_is_shown(hidden):
    stays = Stays(hidden)
    record = stays.record(hidden.flagged["id"].iloc[0])
    assert record["inferred"] == []
    assert record["datasets"]["inferred"] == []
    assert not any("Inferred" in name or "Model" in name for name in record["table"][0])
    template = stays.template(model=False)
    below = [row["below"] for row in _values(template) if row.get("below")]
    assert below == [["never given", "to the model"]]
    assert "hidden state" not in json.dumps(template)


def test_redacting_keeps_what_was_inferred_and_leaves_out_what_was_recorded(hidden):
    stay = Stays(hidden, redact=True).one(hidden.flagged["id"].iloc[0])
    assert stay["side"] == []
    assert "glucose" not in stay["table"][0]
    assert "Inferred: glucose" in stay["table"][0]


def test_audits_without_hidden_variables_or_worlds_have_no_such_rows(audit, stays):
    assert audit.meta.variables.hidden == ()
    assert not {"inferred", "policy"} & {strip.kind for strip in stays.layout.strips}
    stay = stays.one(audit.flagged["id"].iloc[0])
    assert stay["inferred"] == []
    assert stay["datasets"]["inferred"] == []
    assert not any(name.startswith("Inferred") for name in stay["table"][0])
    assert "hidden state" not in json.dumps(stays.template())


def test_courses_without_a_world_are_those_under_the_policy(hidden):
    target = hidden.courses[hidden.courses["world"] == "target"].drop(columns="world")
    identifier = hidden.flagged["id"].iloc[0]
    before = Stays(hidden).one(identifier)
    after = Stays(replace(hidden, courses=target)).one(identifier)
    assert after["datasets"]["shade"] == before["datasets"]["shade"]
    assert after["datasets"]["inferred"] == after["inferred"] == []
    assert "Inferred: glucose" not in after["table"][0]


# ------------------------------------------------------------------------- captions and axes


def with_values(audit, **values):
    """The audit with other estimates."""
    table = audit.estimates.set_index("estimator", drop=False)
    for name, value in values.items():
        table.loc[name, "value"] = value
    return Stays(replace(audit, estimates=table.reset_index(drop=True)))


def test_the_caption_of_estimates_says_what_their_chart_shows(audit):
    said = estimates_section(with_values(audit, Observed=0.3, WIS=0.1, MB=0.5, CF=0.3001))
    assert said["caption"].startswith(
        "Above what happened: Model simulation (MB). Below what happened: Reweighted records "
        "(WIS). Rounded, the same as what happened: Replay of each (CF). Dot: estimate; bar:"
    )
    bare = replace(audit, estimates=audit.estimates.assign(low=np.nan, high=np.nan))
    assert "bar: 95%" not in estimates_section(Stays(bare))["caption"]


def test_the_caption_at_a_glance_says_what_its_chart_shows(audit):
    assert "Ringed: the 12 flagged stays." in content.glance(Stays(audit))["caption"]
    unflagged = content.glance(Stays(replace(audit, episodes=audit.episodes.assign(rank=0))))
    assert "Ringed" not in unflagged["caption"] + json.dumps(unflagged["spec"])
    many = pd.concat([audit.episodes] * 20, ignore_index=True)
    many["id"] = many.index
    found = content.glance(Stays(replace(audit, episodes=many)))
    marks = len(found["datasets"]["marks"])
    assert marks < len(many) == 6000
    told = f"A mark for {marks:,} of them: an even selection and all flagged ones."
    assert told in found["caption"]
    assert "One mark for each" not in found["caption"]


def test_ends_of_an_axis_are_named_if_only_outcomes_count(audit):
    axis = [row["text"] for row in _values(estimates_section(Stays(audit))["spec"]) if "end" in row]
    assert axis == ["all died", "all discharged"]
    marks = content.glance(Stays(audit))["spec"]
    assert [(row["end"], row["text"]) for row in _values(marks) if "end" in row] == [
        (-1.0, "died"),
        (1.0, "discharged"),
    ]
    paid = audit.episodes.assign(observed_return=audit.episodes["observed_return"] - 0.1)
    costly = Stays(replace(audit, episodes=paid))
    for spec in (estimates_section(costly)["spec"], content.glance(costly)["spec"]):
        assert not any("end" in row for row in _values(spec))


def test_saved_figures_carry_their_caveats(audit, tmp_path):
    figures = audit_figures(audit, episodes=1)
    identifier = audit.flagged["id"].iloc[0]
    assert list(figures) == ["estimates", "outcomes", f"stay_{identifier}"]
    told = {}
    for name, chart in figures.items():
        (path,) = charts.save_figure(chart, tmp_path / name, ["svg"])
        # texts in lines; what was cut off would end with an ellipsis
        told[name] = " ".join(re.findall(r">([^<>]+)</(?:text|tspan)>", path.read_text()))
        assert "A model estimate, not a fact." in told[name], name
        assert "fewer than 10 similar past cases" in told[name], name
        assert "…" not in told[name], name
    for words in ("weighted importance sampling (WIS)", "Replay of each (CF)", "all discharged"):
        assert words in told["estimates"]
    columns = [told["outcomes"].index(f" {name} ") for name in ("died", "still in ICU")]
    assert columns == sorted(columns)
    thin = int((audit.episodes["thin_share"] > 0.5).sum())
    cells = [int(number) for number in re.findall(r"thin evidence (\d+)", told["outcomes"])]
    assert sum(cells) == thin
    assert len(cells) == 9
    assert "Similar past cases" in told[f"stay_{identifier}"]
    assert "Never given to the model: diabetes, no." in told[f"stay_{identifier}"]


# -------------------------------------------------------------------------- odd input, the command


def test_an_audit_without_flags_still_makes_a_report(audit):
    nobody = replace(audit, episodes=audit.episodes.assign(rank=0))
    text = render_report(nobody)
    assert "No stay is flagged" in text


def test_errors_say_what_cannot_be_written_or_read(audit, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        bf.write_report(tmp_path / "nothing", tmp_path / "report.html")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        bf.write_report(audit, tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        bf.write_report(audit, tmp_path / "missing" / "report.html")
    (tmp_path / "there.html").write_text("mine")
    with pytest.raises(FileExistsError, match="overwrite"):
        bf.write_report(audit, tmp_path / "there.html")
    assert (tmp_path / "there.html").read_text() == "mine"
    with pytest.raises(ValueError, match="episodes"):
        bf.write_report(audit, tmp_path / "report.html", episodes=-1)
    old = replace(audit, episodes=audit.episodes.drop(columns="low_any"))
    with pytest.raises(ValueError, match=r"no column 'low_any'.*run it again"):
        bf.write_report(old, tmp_path / "report.html")
    with pytest.raises(ValueError, match="no stay 'x'"):
        Stays(audit).one("x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there.html"]


def test_the_command_writes_the_report(audit, tmp_path):
    audit.save(tmp_path / "audit")
    out = tmp_path / "report.html"
    command = ["report", str(tmp_path / "audit"), "-o", str(out), "--episodes", "3"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0
    assert str(out) in done.output.replace("\n", "")
    assert "data-stay-2" in out.read_text(encoding="utf-8")
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 2
    assert "--overwrite" in again.stderr
    assert "--stays" not in CliRunner().invoke(app, ["report", "--help"]).stdout
    command[-2] = "--stays"  # its earlier name
    done = CliRunner().invoke(app, [*command, "--overwrite", "--redact", "--json"])
    assert "data-stay-2" in out.read_text(encoding="utf-8")
    assert json.loads(done.stdout)["written"] == [str(out)]


def test_shared_files_are_installed():
    for name in ("style.css", "charts.js"):
        assert (STATIC / name).is_file()


def test_text_that_looks_like_an_escape_stays_text():
    # the six characters of the escape, not the direction mark itself, which is removed
    value = {"a": ["x\\u202e", "y\u202ez", "</script>"]}
    assert json.loads(str(_json(value))) == {"a": ["x\\u202e", "yz", "</script>"]}
    assert "<" not in str(_json(value))


def test_a_rehearsal_is_drawn_and_told(page):
    errors = pd.DataFrame({"hidden": ["pulse"], "promised": [0.9], "judged": [0.1], "error": [0.8]})
    rehearsed = sepsis_audit(60, rehearsal=Rehearsal(errors, 0.5, 0.2))
    told = Reader(render_report(rehearsed, episodes=0))
    assert told.data("rehearsal")["spec"]["datasets"]
    assert ("div", "id", "chart-rehearsal") in told.attributes
    sentence = "Had pulse not been logged, the same method would have promised 0.80 too much."
    assert sentence in " ".join(told.words)
    assert "chart-rehearsal" not in str(Reader(page).attributes)


def test_a_stay_says_how_much_its_interval_rests_on_the_prior():
    row = pd.Series(
        {
            "low_credible": -0.5,
            "high_credible": 0.5,
            "mean_credible": 0.0,
            "mean_credible_weaker": -0.2,
            "mean_credible_stronger": 0.2,
        }
    )
    digits = Digits(2)
    sure = learned_again(row, digits)
    assert sure == "Other models that these records allow say −0.50 to +0.50."
    unsure = learned_again(row.replace(0.2, 0.3), digits)
    assert "rare treatments matters here" in unsure
    assert "+0.30 if it weighs four times as much" in unsure
    assert learned_again(row.drop("low_credible"), digits) == ""
    assert learned_again(row.replace([-0.2, 0.2], np.nan), digits) == sure
