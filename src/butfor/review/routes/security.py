"""Requests that are refused before they reach the app, and the headers of every response."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 512 * 1024
BODY_SECONDS = 30.0
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class RequestFilter:
    """An ASGI application that checks host, origin and size of requests to another one."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], scheme: str = "http"):
        self.app = app
        self.hosts = {host.lower() for host in hosts}
        self.scheme = scheme

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._check_host(headers)
        body = b""
        if refused is None and scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            refused = self._check_origin(headers)
            if refused is None:
                body, refused = await _read(headers, receive)
        if refused is not None:
            await _refuse(scope, with_headers(send), *refused)
            return
        await self.app(scope, _replay(body, receive), with_headers(send))

    def _check_host(self, headers: Headers) -> tuple[int, str] | None:
        given = headers.getlist("host")
        if len(given) != 1 or not given[0]:
            return 400, "a request must name exactly one host"
        if given[0].lower() not in self.hosts:
            return 421, "the review has another address; open the one printed when it started"
        return None

    def _check_origin(self, headers: Headers) -> tuple[int, str] | None:
        """Refuse what another site sends.

        Browsers send `Origin: null` with forms of pages under the policy no-referrer, but also
        `Sec-Fetch-Site: same-origin`, which no page can set; other programs send neither.
        """
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        own = {f"{self.scheme}://{host}" for host in self.hosts}
        if site not in (None, "same-origin", "none"):
            return 403, "sent from another site"
        if origin not in (None, "null") and origin.lower() not in own:
            return 403, "sent from another site"
        if origin == "null" and site != "same-origin":
            return 403, "sent from a page of unknown origin"
        return None


def with_headers(send: Send) -> Send:
    """Add the security headers to a response; it is not cached unless it says so itself."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message["headers"]}
            wanted = HEADERS | {"cache-control": "no-store"}
            message["headers"] = [
                *message["headers"],
                *((k.encode(), v.encode()) for k, v in wanted.items() if k.encode() not in names),
            ]
        await send(message)

    return sending


async def _read(headers: Headers, receive: Receive) -> tuple[bytes, tuple[int, str] | None]:
    too_large = 413, f"larger than {LARGEST_BODY:,} bytes"
    length = headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > LARGEST_BODY:
        return b"", too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return b"", (400, "the connection closed before the end")
                body += message.get("body", b"")
                if len(body) > LARGEST_BODY:
                    return b"", too_large
                if not message.get("more_body"):
                    return bytes(body), None
    except TimeoutError:
        return b"", (408, "sending took too long")


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receiver that yields the body already read, then whatever comes."""
    given = False

    async def receiving() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return receiving


async def _refuse(scope: Scope, send: Send, status: int, words: str) -> None:
    api = scope["path"].startswith("/api/")
    text = json.dumps({"error": words}) if api else f"Refused: {words}.\n"
    kind = b"application/json" if api else b"text/plain; charset=utf-8"
    headers = [(b"content-type", kind), (b"content-length", str(len(text)).encode())]
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
