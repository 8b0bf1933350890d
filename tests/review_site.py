"""Reviews for tests: small audits, the app in process or on a port, and a server of its own."""

import asyncio
import json
import re
import sqlite3
import threading
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache

import httpx
import numpy as np
import uvicorn

import butfor as bf
from butfor.audit.audit import Audit, load_for_readers
from butfor.audit.run import run_audit
from butfor.review.plan import ReviewSettings
from butfor.review.routes.app import make_app
from butfor.review.serve import Address, listen
from butfor.review.shown import AuditReview
from butfor.review.store import Store
from tests.processes import start, start_fresh

BASE = "http://127.0.0.1:8000"
SCRIPT = "<script>alert(1)</script>"
HOSTILE = [
    SCRIPT,
    '"><img src=x onerror=alert(2)>',
    "=1+1",
    "' OR 1=1 --",
    "../../etc/passwd",
    "..",
    "a/b?c#d",
    "\N{RIGHT-TO-LEFT OVERRIDE}" + "長" * 300,
    "{{ 7*7 }}",
    "",
]


@cache
def small_audit(flags=6, seed=0, hostile=False) -> Audit:
    """An audit of simulated patients; if hostile, with names that try to be code."""
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy("icml2019"), 200, seed=seed)
    log = log.hide("glucose", "diabetes")
    record = {"words": {"episode": "patient"}}
    if hostile:
        flags = len(HOSTILE)
        state = list(log.state_variables)
        state[0] = replace(
            state[0],
            name=SCRIPT,
            levels=(f"{SCRIPT}0", "=2+2", "\N{RIGHT-TO-LEFT OVERRIDE}normal"),
            normal=(),
        )
        outcomes = (replace(log.outcomes[0], name="<b>died</b>"), *log.outcomes[1:])
        side = log.side.assign(note=["=cmd()" + SCRIPT] * len(log.side))
        names = np.array([f"p{i}" for i in range(len(log))], dtype=object)
        order = run_audit(
            log, bf.fit_mdp(log), bf.policy_iteration(bf.fit_mdp(log)).table, flags=flags
        )
        for place, name in zip(order.flagged.index, HOSTILE, strict=True):
            names[place] = name
        log = replace(log, id=names, state_variables=tuple(state), outcomes=outcomes, side=side)
        record = {"words": {"episode": "<i>case</i>"}, "target": SCRIPT}
    model = bf.fit_mdp(log)
    target = bf.policy_iteration(model).table
    return run_audit(log, model, target, flags=flags, review_size=2 * flags, record=record)


def change_file(path, *statements):
    """Change a file of reviews behind its back, past the triggers that keep events as they are."""
    with closing(sqlite3.connect(path)) as connection, connection:
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for _, sql in triggers:
            connection.execute(sql)


class InProcess(httpx.BaseTransport):
    """Passes requests to an ASGI application in this process."""

    def __init__(self, app):
        self.inner = httpx.ASGITransport(app, client=("127.0.0.1", 50000))

    def handle_request(self, request):
        return asyncio.run(self._handle(request))

    async def _handle(self, request):
        sent = httpx.Request(
            request.method, request.url, headers=request.headers, content=request.read()
        )
        answer = await self.inner.handle_async_request(sent)
        return httpx.Response(
            answer.status_code, headers=answer.headers.raw, content=await answer.aread()
        )


class Site:
    """The app in process, with any number of clients."""

    def __init__(
        self,
        folder,
        audit,
        *,
        port=8000,
        tokens=None,
        tls=False,
        show_overview=False,
        coordinators=(),
        **settings,
    ):
        self.store = Store(folder)
        chosen = ReviewSettings(**{"verdicts_only": True, "repeat_minutes": 0} | settings)
        self.run = self.store.open_run(audit, chosen)
        self.audit = audit
        review = AuditReview(audit, self.store, self.run, show_overview)
        self.base = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self.app = make_app(
            review, hosts=hosts, port=port, tokens=tokens, tls=tls, coordinators=coordinators
        )

    def client(self):
        return httpx.Client(transport=InProcess(self.app), base_url=self.base, timeout=None)

    def reviewer(self, name):
        """Sign a reviewer in through the page."""
        client = self.client()
        page = client.get("/sign-in")
        form = fields(page.text) | {"reviewer": name}
        assert client.post("/sign-in", data=form).status_code == 303
        return Person(client)


class Person:
    """A reviewer whose browser has no JavaScript."""

    def __init__(self, client):
        self.client = client
        self.csrf = client.get("/api/v1/session").json()["csrf"]

    def get(self, path, status=200):
        answer = self.client.get(path)
        assert answer.status_code == status, (path, answer.status_code, answer.text[:2000])
        return answer

    def json(self, path, status=200):
        return self.get(f"/api/v1{path}", status).json()

    def post(self, path, status=200, headers=None, csrf=True, **body):
        sent = {"x-csrf-token": self.csrf} if csrf else {}
        answer = self.client.post(f"/api/v1{path}", json=body, headers=sent | (headers or {}))
        assert answer.status_code == status, (path, answer.status_code, answer.text[:2000])
        return answer.json()

    def open(self, path):
        """Follow a link or a redirect to its page."""
        while (answer := self.client.get(path)).status_code == 303:
            path = answer.headers["location"]
        assert answer.status_code == 200, answer.text[:2000]
        return answer.text

    def send(self, path, page, status=303, **values):
        """Send the form of a page."""
        answer = self.client.post(path, data=fields(page) | values)
        assert answer.status_code == status, (answer.status_code, answer.text[:3000])
        return answer

    def next(self):
        return self.json("/queue/next")["next"]


def fields(page):
    """Hidden fields of the main form of a page."""
    forms = re.findall(r"<form.*?</form>", page, re.DOTALL)
    chosen = [form for form in forms if 'class="card"' in form] or forms
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', chosen[0])
    return dict(found)


@contextmanager
def site(folder, *, port=0, **options):
    """The app of an audit folder on a port, served by a thread; yields its address."""
    with listen(Address(port=port)) as listening:
        made = Site(folder, load_for_readers(folder), port=listening.getsockname()[1], **options)
        chosen = uvicorn.Config(made.app, log_level="warning", ws="none", lifespan="off")
        serving = uvicorn.Server(chosen)
        thread = threading.Thread(target=serving.run, args=([listening],))
        thread.start()
        try:
            yield made.base
        finally:
            serving.should_exit = True
            thread.join()
            made.store.close()


@contextmanager
def server(folder, *arguments, before="pass", stderr=None, fresh=False):
    """The command in a process of its own; yields the process and its address.

    `before` is Python that the process runs first. It starts as one starts it, if fresh, and is
    forked from a process that has imported it otherwise.
    """
    code = f"{before}\nfrom butfor.cli.main import run\nrun()"
    begin = start_fresh if fresh else start
    with begin(code, "review", folder, *arguments, stderr=stderr) as process:
        try:
            line = process.stdout.readline()
            found = re.search(r"https?://[^/]+", line)
            assert found, line + process.stderr.read()
            yield process, found[0]
        finally:
            process.terminate()
            process.wait(timeout=20)


def as_text(value):
    return json.dumps(value, ensure_ascii=False)
