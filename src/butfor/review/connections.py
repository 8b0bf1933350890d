"""Limits on connections, so that those who send nothing keep nobody else out."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if sys.platform != "win32":
    import resource

HEADER_SECONDS = 10.0  # for the handshake and headers of a request together
MOST_CONNECTIONS = 512
LINES, LINE_SECONDS = 5, 60.0  # that one place in the code may log in this time


@dataclass
class Connection:
    """An open connection."""

    socket: socket.socket
    client: tuple[str, int]  # address and port
    due: bool = True  # whether it makes room: it waits for its client, or after wrong tokens
    closing: asyncio.TimerHandle | None = None  # unless headers come in time


class Listening(socket.socket):
    """A listening socket that limits its connections.

    Each has `HEADER_SECONDS` to send the headers of a request. If there are too many, or too many
    of one address, the one that has waited longest for its client makes room: for headers, for the
    rest of a request, or for its answer to be read, or that has to wait after wrong tokens. If none
    waits, the new one is closed. Counting where connections are accepted includes those in the
    middle of a handshake.
    """

    most = MOST_CONNECTIONS
    most_of_address = MOST_CONNECTIONS // 2

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: dict[Any, Connection] = {}  # by client, oldest first
        self._closing = False

    def limit(self, shared: bool) -> None:
        """Fit the limits to the files that may be open, of which half are left for other uses.

        `shared`: everybody comes from one address, that of a proxy.
        """
        if sys.platform != "win32":
            files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            if files != resource.RLIM_INFINITY:
                self.most = max(min(self.most, files // 2), 2)
        self.most_of_address = self.most if shared else self.most // 2

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; the event loop calls this until an error says that none is left."""
        if self._closing:  # let it first close those that made room
            self._closing = False
            raise BlockingIOError
        try:
            accepted, peer = super().accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE) and self._make_room(None):
                raise BlockingIOError from None
            raise
        self._open = {key: one for key, one in self._open.items() if one.socket.fileno() >= 0}
        client = peer[:2]
        own = sum(one.client[0] == client[0] for one in self._open.values())
        room = (own < self.most_of_address or self._make_room(client[0])) and (
            len(self._open) < self.most or self._make_room(None)
        )
        if not room:
            accepted.close()
            raise ConnectionAbortedError
        self._open[client] = Connection(accepted, client)
        self.wait_for_request(client)
        return accepted, peer

    def wait_for_request(self, client: tuple[str, int] | None) -> None:
        """Close a connection unless it sends a request in time."""
        self.note(client, due=True)
        if client in self._open:
            one = self._open[client] = self._open.pop(client)  # the last to make room
            one.closing = asyncio.get_running_loop().call_later(HEADER_SECONDS, self._drop, one)

    def note(self, client: tuple[str, int] | None, *, due: bool) -> None:
        """Note that headers came, and whether the client has to send or read something now."""
        one = self._open.get(client)
        if one is not None:
            one.due = due
            if one.closing is not None:
                one.closing.cancel()
                one.closing = None

    def find(self, client: tuple[str, int] | None) -> Connection | None:
        """Return the open connection of a client."""
        return self._open.get(client)

    def _make_room(self, address: str | None) -> bool:
        """Close the connection that has waited longest, of one address or of all."""
        for one in self._open.values():
            if one.due and address in (None, one.client[0]):
                self._closing = True
                self._drop(one)
                return True
        return False

    def _drop(self, one: Connection) -> None:
        if self._open.get(one.client) is one:
            self.note(one.client, due=False)
            del self._open[one.client]
        with suppress(OSError):  # closed meanwhile
            one.socket.shutdown(socket.SHUT_RDWR)


def protocol_of(listening: Listening) -> type[H11Protocol]:
    """Return the protocol that tells a listening socket when requests begin and end."""

    class TimedProtocol(H11Protocol):
        def handle_events(self) -> None:
            before = self.cycle
            super().handle_events()
            now = self.cycle
            if now is None or now.response_complete:  # headers are still coming
                return
            if now is not before or not now.more_body:
                listening.note(self.client, due=now.more_body)
            if now is not before:
                self.scope["state"]["connection"] = listening.find(self.client)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.cycle.response_complete:  # unless the next request was waiting already
                self._wait()

        def pause_writing(self) -> None:
            super().pause_writing()
            listening.note(self.client, due=True)

        def resume_writing(self) -> None:
            super().resume_writing()
            listening.note(self.client, due=False)
            if self.cycle.response_complete:
                self._wait()

        def _wait(self) -> None:
            if not self.flow.write_paused:  # a long answer may take long to be read
                listening.wait_for_request(self.client)

    return TimedProtocol


class FewLines(logging.Filter):
    """Lets a place in the code log a few lines a minute, and tells how many were left out."""

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
