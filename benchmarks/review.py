"""Measure the review app under load: a server process and fifty reviewers at once."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median

import httpx

import butfor as bf
from butfor.audit.run import run_audit
from butfor.review import events
from butfor.review.plan import ReviewSettings
from butfor.review.store import Store
from butfor.review.verdicts import Verdict
from tests.review_site import server
from tests.web.test_review_store import fake_audit

EPISODES = 10_000
REVIEWERS = 50
EACH = 100
CHANCES = {"died": 3, "discharged": 7, "still in ICU": 0}
STAYS = 500
EVENTS = 50_000
PAUSE = 2.0  # seconds that a reviewer reads; real ones take far longer


def measure_server() -> dict[str, float]:
    """Return the seconds of a first page, of pages and posts under load, and verdicts lost."""
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy("icml2019"), EPISODES, version="icml2019")
    log = log.hide("glucose", "diabetes")
    model = bf.fit_mdp(log)
    audit = run_audit(
        log,
        model,
        bf.policy_iteration(model).table,
        estimators=["Observed", "CF"],
        resamples=20,
        flags=EACH,
    )
    with tempfile.TemporaryDirectory() as place:
        folder = audit.save(Path(place) / "audit")
        with server(folder, "--needed", str(REVIEWERS)) as (_, base):
            alone = _alone(base)
            pages, posts, given = _together(base)
        with Store(folder) as store:
            kept = {review.id for review in store.reviews(store.runs()[0].id)}
            whole = store.verify().ok
    return {
        "alone": alone,
        "page": median(pages),
        "post": median(posts),
        "given": len(given),
        "lost": len(set(given) - kept) if whole else len(given),
    }


def measure_events() -> tuple[float, float]:
    """Return the seconds of opening a file of many events, and of a queue of many stays."""
    opening, queue = [], []
    with tempfile.TemporaryDirectory() as place:
        with Store(place) as store:
            write_events(store)
        for _ in range(3):
            start = time.perf_counter()
            with Store(place) as store:
                opening.append(time.perf_counter() - start)
                reviewer = store.reviewer(store.runs()[0].id, "reviewer 1")
                for _ in range(20):
                    start = time.perf_counter()
                    found = reviewer.queue()
                    queue.append(time.perf_counter() - start)
    assert len(found.items) == STAYS
    return min(opening), min(queue)


def write_events(store: Store) -> None:
    """Write the answers and verdicts of fifty reviewers, as `Reviewer` records them."""
    chosen = ReviewSettings(needed=REVIEWERS, control_share=0.5, repeat_share=0)
    run = store.open_run(fake_audit(STAYS // 2, STAYS // 2), chosen).id
    stays = [stay.episode for stay in store.stays(run)]
    names = [store.join(run, f"reviewer {number}").name for number in range(REVIEWERS)]
    said = {"seconds": 30.5, "informed": False, "repeat": False}
    verdict = said | asdict(Verdict(1, "glucose", 3, "mid", "sugar was low at step 4"))
    verdict |= {"first_impression": None}
    answer = said | {"out_of_ten": [3, 7, 0], "sure": "mid", "reason": ""}
    with store.file.writing() as transaction:
        for number in range(EVENTS - len(transaction.state.events)):
            action, payload = (("answer", answer), ("submit", verdict))[number % 2]
            stay, name = stays[number // 2 // REVIEWERS % STAYS], names[number // 2 % REVIEWERS]
            events.record(
                transaction, action, run=run, reviewer=name, episode=stay, payload=payload
            )


@contextmanager
def _sign_in(base: str, name: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base, timeout=60) as client:
        answer = client.post("/api/v1/session", json={"reviewer": name}).json()
        client.headers["x-csrf-token"] = answer["csrf"]
        yield client


def _alone(base: str) -> float:
    """Return the seconds of the slowest first view of a stay: page, chart and rows."""
    times = []
    with _sign_in(base, "alone") as client:
        client.get("/static/vega.js")
        for item in client.get("/api/v1/queue").json()["items"][-10:]:
            start = time.perf_counter()
            client.get(f"/episodes/{item['slug']}?place={item['place']}").raise_for_status()
            client.get("/api/v1/charts/trajectory").raise_for_status()
            path = f"/api/v1/episodes/{item['slug']}/trajectory?place={item['place']}"
            client.get(path).raise_for_status()
            times.append(time.perf_counter() - start)
    return max(times)


def _together(base: str) -> tuple[list[float], list[float], list[int]]:
    pages: list[float] = []
    posts: list[float] = []
    given: list[int] = []
    begin = threading.Barrier(REVIEWERS)

    def review(number: int) -> None:
        with _sign_in(base, f"reviewer {number}") as client:
            items = client.get("/api/v1/queue").json()["items"][:EACH]
            begin.wait()
            time.sleep(PAUSE * number / REVIEWERS)
            for item in items:
                start = time.perf_counter()
                client.get(f"/episodes/{item['slug']}?place={item['place']}").raise_for_status()
                pages.append(time.perf_counter() - start)
                time.sleep(PAUSE)
                start = time.perf_counter()
                place = {"place": item["place"]}
                client.post(
                    f"/api/v1/episodes/{item['slug']}/answer", json=place | {"chances": CHANCES}
                ).raise_for_status()
                posts.append(time.perf_counter() - start)
                start = time.perf_counter()
                body = {"verdict": 1} | place
                answer = client.post(f"/api/v1/episodes/{item['slug']}/reviews", json=body)
                posts.append(time.perf_counter() - start)
                given.append(answer.raise_for_status().json()["review"])

    with ThreadPoolExecutor(REVIEWERS) as pool:
        list(pool.map(review, range(REVIEWERS)))
    return pages, posts, given
