"""Requests generated from the description of the API: none may cause a server error."""

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings

from butfor.review.routes import api
from tests.review_site import BASE, Site, small_audit


def describe():
    app = FastAPI()
    app.include_router(api.router)
    described = schemathesis.openapi.from_dict(app.openapi())
    return [found.ok() for found in described.get_all_operations()]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = Site(
        tmp_path_factory.mktemp("audit"), small_audit(), show_overview=True, verdicts_only=False
    )
    yield made
    made.store.close()


@pytest.fixture(scope="module")
def ann(site):
    return site.reviewer("ann")


@pytest.mark.parametrize("operation", describe(), ids=lambda operation: operation.label)
def test_no_request_makes_it_fail(operation, ann):
    stay = ann.json("/queue")["items"][0]["slug"]

    @settings(
        max_examples=15,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def ask(case):
        if "slug" in (case.path_parameters or {}) and operation.method == "post":
            case.path_parameters["slug"] = stay
        asked = case.as_transport_kwargs(base_url=BASE)
        sent = {} if operation.path.endswith("/session") else {"x-csrf-token": ann.csrf}
        kept = {k: v for k, v in (asked.get("headers") or {}).items() if k.lower() == "if-match"}
        body = {"json": asked["json"]} if "json" in asked else {}
        answer = ann.client.request(
            asked["method"],
            asked["url"],
            params=asked.get("params"),
            headers=[(k, v.encode("latin-1", "replace")) for k, v in (kept | sent).items()],
            **body,
        )
        assert answer.status_code < 500, answer.text
        assert operation.path.endswith("/session") or answer.status_code != 401

    ask()
