"""Run the review on this machine, or for others in a way that keeps it from strangers."""

from __future__ import annotations

import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from butfor.audit.audit import REVIEWS, load_for_readers
from butfor.present.charts.save import chart_bundle
from butfor.review.app import make_app
from butfor.review.desk import Desk
from butfor.review.export import reviews_csv, reviews_jsonl
from butfor.review.pages import environment
from butfor.review.plan import Settings
from butfor.review.sessions import read_tokens
from butfor.review.store import Store, Verification, verify_folder

LOCAL = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class Address:
    """Where the review listens, and how reviewers reach it; checked when made."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: any that is free
    token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    behind_tls: bool = False  # another program does TLS
    names: Sequence[str] = ()  # under which reviewers open it

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("give --certificate and --key together")
        for path in (self.token_file, self.certificate, self.key):
            if path is not None and not path.is_file():
                raise FileNotFoundError(f"there is no file {path}")
        if self.token_file is None and not (self.local and not self.behind_tls):
            raise ValueError(
                f"others can reach {self.host}: say who may review, with --token-file"
                if not self.local
                else "--behind-tls lets others in: say who may review, with --token-file"
            )
        if not self.local and not self.tls:
            raise ValueError(
                f"others can reach {self.host}: encrypt with --certificate and --key, or behind a "
                "program that does, with --behind-tls"
            )
        if self.host in ("0.0.0.0", "::", "") and not self.names:
            raise ValueError("say under which name reviewers open it: --name review.hospital.org")

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def tls(self) -> bool:
        """Whether browsers come over TLS."""
        return self.certificate is not None or self.behind_tls

    def hosts(self, port: int) -> set[str]:
        """Return what requests may name as their host."""
        own = f"[{self.host}]" if ":" in self.host else self.host
        allowed = {f"{name}:{port}" for name in (*LOCAL, own, *self.names)} | set(self.names)
        if port == (443 if self.tls else 80):
            allowed |= {*LOCAL, own}
        return allowed


def serve(
    folder: str | Path,
    address: Address,
    *,
    settings: Settings | None = None,
    show_overview: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the review of an audit folder until it is told to stop."""
    audit = load_for_readers(folder)
    tokens = read_tokens(address.token_file) if address.token_file else None
    with listen(address) as listening, Store(folder) as store:
        port = listening.getsockname()[1]
        desk = Desk(audit, store, store.open_run(audit, settings), show_overview)
        app = make_app(desk, hosts=address.hosts(port), port=port, tokens=tokens, tls=address.tls)
        threading.Thread(target=chart_bundle, daemon=True).start()  # takes two seconds, once
        desk.warm_up()
        for name in environment().list_templates():
            environment().get_template(name)
        server = uvicorn.Server(
            uvicorn.Config(
                app,
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
        shown = f"[{address.host}]" if ":" in address.host else address.host
        if address.names:
            shown = address.names[0]
        scheme = "https" if address.certificate or address.behind_tls else "http"
        say(f"The review of {folder}: {scheme}://{shown}:{port}/  (Ctrl+C stops it)")
        # uvicorn passes the signal on when it is done; it then means no more than "leave"
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            server.run(sockets=[listening])
        except KeyboardInterrupt:
            pass
        finally:
            signal.signal(signal.SIGTERM, before)
    say("Stopped; all verdicts are kept.")


def listen(address: Address) -> socket.socket:
    """Return a socket that listens, so that the port is known before the app is made.

    It names its protocol: asyncio lets answers go out at once (TCP_NODELAY) only if one does, and
    else a page that follows a post waits 40 ms for the browser to acknowledge its headers.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address.host, address.port))
        listening.listen(256)  # from now on a request waits instead of being refused
    except OSError as error:
        listening.close()
        where = f"{address.host}, port {address.port}"
        raise OSError(f"cannot listen on {where}: {error.strerror}; give another --port") from None
    return listening


def verify(folder: str | Path, head: str | None = None) -> Verification:
    """Check the chain of an audit's reviews, without writing anything."""
    if not (Path(folder) / REVIEWS).is_file():
        raise FileNotFoundError(f"{folder} has no reviews: there is no {REVIEWS}")
    return verify_folder(folder, head)


def export_reviews(folder: str | Path, path: Path) -> Path:
    """Write the reviews of an audit to a file, in the format that its name asks for."""
    formats = {".csv": reviews_csv, ".jsonl": reviews_jsonl}
    if path.suffix not in formats:
        raise ValueError(f"{path}: give a name that ends in .csv or .jsonl")
    if not (Path(folder) / REVIEWS).is_file():
        raise FileNotFoundError(f"{folder} has no reviews: there is no {REVIEWS}")
    audit = load_for_readers(folder)
    with Store(folder) as store:
        text = formats[path.suffix](store, audit)
    path.write_text(text, encoding="utf-8", newline="")
    return path
