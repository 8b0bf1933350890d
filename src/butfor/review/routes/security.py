"""Requests that are refused before they reach the app, and the headers of every response."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 512 * 1024
BODY_SECONDS = 30.0
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
# Pages that change nothing, so that other sites may lead to them. Others do: whoever opens a
# disagreement, for example, has seen what was said about it.
ENTRANCES = ("/", "/sign-in", "/coordinator")  # "/" leads coordinators to the last one
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
# under TLS: browsers do not go back to an unencrypted connection for a year
STRICT = {"strict-transport-security": "max-age=31536000"}


class RequestFilter:
    """An ASGI application that checks host, origin and size of requests to another one."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], scheme: str = "http"):
        self.app = app
        self.hosts = {host.lower() for host in hosts}
        self.scheme = scheme
        self.headers = HEADERS | (STRICT if scheme == "https" else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, body = Headers(scope=scope), b""
        try:
            self._check_host(headers)
            if scope["path"] not in ENTRANCES and from_elsewhere(headers):
                raise HTTPException(403, "another site led here; open the review's own first page")
            if scope["method"] not in ("GET", "HEAD", "OPTIONS"):
                self._check_origin(headers)
                body = await _read(headers, receive)
        except HTTPException as refused:
            status, words, close = refused.status_code, refused.detail, {"connection": "close"}
            answer = (
                JSONResponse({"error": words}, status, close)
                if scope["path"].startswith("/api/")
                else PlainTextResponse(f"Refused: {words}.\n", status, close)
            )
            await answer(scope, receive, with_headers(send, self.headers))
        else:
            await self.app(scope, _replay(body, receive), with_headers(send, self.headers))

    def _check_host(self, headers: Headers) -> None:
        given = headers.getlist("host")
        if len(given) != 1 or not given[0]:
            raise HTTPException(400, "a request must name exactly one host")
        if given[0].lower() not in self.hosts:
            words = "the review has another address; open the one printed when it started"
            raise HTTPException(421, words)

    def _check_origin(self, headers: Headers) -> None:
        """Refuse what another site sends.

        Browsers send `Origin: null` with forms of pages under the policy no-referrer, but also
        `Sec-Fetch-Site: same-origin`, which no page can set; other programs send neither.
        """
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        own = {f"{self.scheme}://{host}" for host in self.hosts}
        if from_elsewhere(headers) or (origin not in (None, "null") and origin.lower() not in own):
            raise HTTPException(403, "sent from another site")
        if origin == "null" and site != "same-origin":
            raise HTTPException(403, "sent from a page of unknown origin")


def from_elsewhere(headers: Headers) -> bool:
    """Return whether a page of another site, perhaps on another port of this machine, asks.

    Any page can have others prefetched or prerendered, with their cookies and as if somebody had
    typed their address (`Sec-Fetch-Site: none`), so whatever is not opened yet counts as elsewhere.
    """
    ahead = "prefetch" in headers.get("sec-purpose", "")
    return ahead or headers.get("sec-fetch-site") not in (None, "same-origin", "none")


def with_headers(send: Send, added: Mapping[str, str]) -> Send:
    """Add the security headers to a response; it is not cached unless it says so itself."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in added.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


async def _read(headers: Headers, receive: Receive) -> bytes:
    too_large = HTTPException(413, f"larger than {LARGEST_BODY:,} bytes")
    length = headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > LARGEST_BODY:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise HTTPException(400, "the connection closed before the end")
                body += message.get("body", b"")
                if len(body) > LARGEST_BODY:
                    raise too_large
                if not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        raise HTTPException(408, "sending took too long") from None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receiver that yields the body already read, then whatever comes."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receiving() -> Message:
        return waiting.pop() if waiting else await receive()

    return receiving
