"""What the names of columns and the values of outcomes mean, as far as their words tell."""

from __future__ import annotations

import re

# Words in column names by role, the most telling first. A word is a part of the name, or all of its
# parts written together.
WORDS = {
    "episode": "stay episode icustay icustayid stayid admission encounter hadm trajectory traj "
    "visitid case caseid patient subject patientid participant person user session id",
    "time": "charttime time timestep step bloc minute hour day week month year datetime date "
    "timestamp visit t",
    "outcome": "outcome died death dead mortality expire expired survived survival alive "
    "readmission readmitted success recovered result late overdue status event end",
    "end": "terminated terminal done ended",
    "cut": "truncated timeout drop dropout dropped dropouts withdrawn withdrawal censored ltfu",
    "reward": "reward rewards r click clicks clicked conversion converted revenue profit payoff",
    "behavior_probability": "propensity probability pscore prob",
    "final_key": "final_key finalkey",
    "state": "state states s observation obs cluster",
    "action": "action actions activity conceptname task event arm decision intervention a",
    "offered": "item arm ad variant product article",
    "drug": "dose treatment treat treated trt rx drug medication therapy vaso vasopressor "
    "vasopressors fluid fluids norepinephrine noradrenaline epinephrine insulin antibiotic "
    "antibiotics heparin pressor pressors sedation",
    # an amount, of which nothing else says that it is a treatment
    "amount": "input intake infusion infused bolus administered",
    "past": "total cumulated cumulative cum previous prior balance sum",
    "fluid": "fluid fluids input intake infusion infused bolus crystalloid",
    "pressor": "vaso vasopressor vasopressors norepinephrine noradrenaline epinephrine pressor "
    "pressors",
    "any drug": "dose treatment treat treated trt rx drug medication therapy",  # names none of them
    "target": "target policy recommended recommendation suggested suggestion proposed",
    "followup": "futime followup follow survtime",
    "future": "futime followup follow survtime enddate los lengthofstay dischtime dischargetime "
    "deathtime deathdate dod outtime timetoevent daystodeath tte censored event",
    "later": "next future remaining",
    "identifier": "id ids key uuid guid mrn number num nr no code concept name",
    "row": "unnamed index row rowid rownumber",
    "cost": "cost costs loss penalty regret",
}
BAD = (
    "die died dies dead death deaths deceased mortality mort expire expired fatal fatality fail "
    "failed failure relapse relapsed worse worsened readmission readmissions readmitted readmit "
    "rehospitalized rehospitalised rehospitalization complication complications crash crashed "
    "churn churned default defaulted reject rejected rejection denied refused canceled "
    "cancelled dropout hole lose loss adverse bad poor unsuccessful nonsurvivor shock late overdue "
    "headache migraine pain seizure bleeding"
)
GOOD = (
    "alive survive survived survives survival survivor discharge discharged home success "
    "successful succeeded recovered recovery cured cure healed improved remission goal win won "
    "granted approved accepted completed paid good click clicked conversion converted purchase "
    "purchased retained healthy released"
)
UNCLEAR = "hospice nursing transfer transferred censored unknown other lost pending"
CENSORED = "censored censoring ongoing pending lost"
NEGATIONS = "no not non never without"
FLAGS = {"0": False, "1": True, "false": False, "true": True, "no": False, "yes": True}
FLAGS |= {"n": False, "y": True, "f": False, "t": True}


def parts(name: str) -> list[str]:
    """Split a name at anything but letters and digits, and before capitals."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return [part for part in re.split(r"[^a-z0-9]+", spaced.lower()) if part]


def rank(name: str, role: str) -> int | None:
    """Return the place of the most telling word of a role in a name, None if it has none."""
    found = parts(name)
    said = {*found, "".join(found), name.lower()}
    return next((place for place, word in enumerate(WORDS[role].split()) if word in said), None)


def sounds(name: str, role: str) -> bool:
    """Whether a name has a word of a role."""
    return rank(name, role) is not None


def names_episode(name: str) -> bool:
    """Whether a name is that of an episode: stay_id is one, stay_type is not."""
    known = {*WORDS["episode"].split(), *WORDS["identifier"].split(), "icu", "hospital", "hosp"}
    return sounds(name, "episode") and (set(parts(name)) <= known or name.lower() in known)


def is_censored(text: str) -> bool:
    """Whether a value says that nobody knows how it ended."""
    return not set(CENSORED.split()).isdisjoint(parts(text))


def meaning(text: str) -> int:
    """Return 1 if a text sounds good, -1 if it sounds bad, 0 if it does not say."""
    found = set()
    sign = 1
    for part in parts(text):
        if part in UNCLEAR.split():
            return 0
        if part in NEGATIONS.split():
            sign = -sign
        elif part in BAD.split() or part in GOOD.split():
            found.add(sign if part in GOOD.split() else -sign)
            sign = 1
    return found.pop() if len(found) == 1 else 0


def flag(value: str) -> bool | None:
    """Return what a value says if it is one of yes and no, however written; None otherwise."""
    return FLAGS.get(value.strip().lower())


def good_or_bad(column: str, values: tuple[str, ...]) -> list[int]:
    """Return for each outcome 1 if it sounds good, -1 if bad, 0 if nothing can be said.

    Where the values are yes and no, the name of the column says what has happened.
    """
    flags = [flag(value) for value in values]
    if None not in flags:
        return [meaning(column) * (1 if happened else -1) for happened in flags]
    return [meaning(value) for value in values]
