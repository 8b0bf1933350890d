"""Serve the review to this machine, or to others behind tokens and TLS."""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from butfor.audit.audit import load_for_readers
from butfor.present.charts.save import chart_bundle
from butfor.review.plan import ReviewSettings
from butfor.review.routes.app import make_app
from butfor.review.routes.pages import environment
from butfor.review.routes.sessions import Tokens, check_private, read_tokens
from butfor.review.shown import AuditReview
from butfor.review.store import Store, verify_folder
from butfor.review.verdicts import check_reviewer

MOST_CONNECTIONS = 512  # open at once; requests on others are answered with 503
BACKLOG = 128  # connections that wait; asyncio accepts as many in a row
LINES, LINE_SECONDS = 5, 60.0  # that one place in the code may log in this time
LOCAL = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class Address:
    """Where the review listens and how reviewers reach it; checked when created."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: any free port
    token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    behind_tls: bool = False  # whether a proxy provides TLS
    names: Sequence[str] = ()  # host names that reviewers use

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("give --certificate and --key together")
        for path in (self.token_file, self.certificate, self.key):
            if path is not None and not path.is_file():
                raise FileNotFoundError(f"there is no file {path}")
        if self.key is not None:
            check_private(self.key)
        if self.token_file is None and not (self.local and not self.behind_tls):
            raise ValueError(
                f"others can reach {self.host}: name the reviewers with --token-file"
                if not self.local
                else "--behind-tls lets others in: name the reviewers with --token-file"
            )
        if not self.local and not self.tls:
            raise ValueError(
                f"others can reach {self.host}: give --certificate and --key, or --behind-tls if a "
                "proxy provides TLS"
            )
        if self.host in ("0.0.0.0", "::", "") and not self.names:
            raise ValueError("give the host name that reviewers use: --name review.hospital.org")

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the review."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def tls(self) -> bool:
        """Whether browsers connect over TLS."""
        return self.certificate is not None or self.behind_tls

    @property
    def own(self) -> str:
        """The host as addresses have it."""
        return f"[{self.host}]" if ":" in self.host else self.host

    def hosts(self, port: int) -> set[str]:
        """Return what requests may name as their host."""
        allowed = {f"{name}:{port}" for name in (*LOCAL, self.own, *self.names)} | set(self.names)
        return allowed | {*LOCAL, self.own} if port == (443 if self.tls else 80) else allowed


def serve(
    folder: str | Path,
    address: Address,
    *,
    settings: ReviewSettings | None = None,
    show_overview: bool = False,
    coordinators: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> bool:
    """Serve the review of an audit folder until it is stopped; return whether its file is whole."""
    tokens = read_tokens(address.token_file) if address.token_file else None
    check_coordinators(coordinators, tokens)
    audit = load_for_readers(folder)
    with listen(address) as listening, Store(folder) as store:
        port = listening.getsockname()[1]
        review = AuditReview(audit, store, store.open_run(audit, settings), show_overview)
        app = make_app(
            review,
            hosts=address.hosts(port),
            port=port,
            tokens=tokens,
            tls=address.tls,
            coordinators=[store.check_coordinator(review.run.id, name) for name in coordinators],
        )
        # the first page would otherwise wait for these; the bundle takes two seconds
        threading.Thread(target=chart_bundle, daemon=True).start()
        for hidden in (True, False):
            review.template(not hidden)
            for name in list(review.ids)[:1]:
                review.one(name, hidden)
        for name in environment().list_templates():
            environment().get_template(name)
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                http="h11",
                loop="asyncio",
                limit_concurrency=MOST_CONNECTIONS,
                backlog=BACKLOG,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                lifespan="off",
                ssl_certfile=address.certificate,
                ssl_keyfile=address.key,
                timeout_graceful_shutdown=5,
            )
        )
        limit_log()
        shown = address.names[0] if address.names else address.own
        scheme = "https" if address.tls else "http"
        say(f"Review of {folder}: {scheme}://{shown}:{port}/  (Ctrl+C stops it)")
        # uvicorn raises the signal again once it has stopped; by then there is nothing left to do
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listening])
        signal.signal(signal.SIGTERM, before)
        events, head = store.file.known()
    say(f"Stopped. {events} events; head {head}")
    found = verify_folder(folder, head)  # what is on the disk, not what this process remembers
    say("All verdicts are kept." if found.ok else f"BROKEN: {found.problem}")
    return found.ok


def check_coordinators(names: Sequence[str], tokens: Tokens | None) -> None:
    """Raise if somebody who should coordinate could not sign in."""
    known = {name.casefold() for name in tokens.names} if tokens else set()
    for name in names:
        if tokens and check_reviewer(name).casefold() not in known:
            raise ValueError(
                f"--coordinator {name}: the token file has no such name; add a line: {name} token"
            )


def listen(address: Address) -> socket.socket:
    """Return a listening socket, so that the port is known before the app is created.

    The socket names its protocol because asyncio sets TCP_NODELAY only on those that do; without
    it, a page that follows a post waits 40 ms for the browser to acknowledge its headers.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address.host, address.port))
        listening.listen(BACKLOG)  # from now on a request waits instead of being refused
    except OSError as error:
        listening.close()
        where = f"{address.host}, port {address.port}"
        raise OSError(f"cannot listen on {where}: {error.strerror}; give another --port") from None
    return listening


class FewLines(logging.Filter):
    """Lets a place in the code log a few lines a minute, and tells how many were left out.

    When no file may be opened any more, asyncio logs thousands of lines a second, which would fill
    the disk that the verdicts are on.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._logged: dict[tuple[str, int], tuple[float, int]] = {}  # since when, how many

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record."""
        place = record.pathname, record.lineno
        since, count = self._logged.get(place, (self._clock(), 0))
        if self._clock() - since >= LINE_SECONDS:
            if count > LINES:
                record.msg = f"{record.msg} ({count - LINES} like it were not logged)"
            since, count = self._clock(), 0
        self._logged[place] = since, count + 1
        return count < LINES


FEW_LINES = FewLines()


def limit_log() -> None:
    """Let the server log a few lines a minute from each place in the code."""
    for name in ("asyncio", "uvicorn.error", "butfor.review"):
        logging.getLogger(name).addFilter(FEW_LINES)
