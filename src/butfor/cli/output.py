"""Progress bars, errors and JSON, as every command prints them."""

from __future__ import annotations

import errno
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from butfor.evaluate.wording import visible
from butfor.review.verdicts import ReviewError
from butfor.types import Stages


class Terminal(Console):
    """Where commands print: what a log says is shown, and never steers the terminal."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return text to print; `:cat:` stays what it is."""
        return super().render_str(visible(text), **(options | {"emoji": False}))


def say(message: object, *, error: bool = False) -> None:
    """Print a line as it is, on the standard output or the standard error."""
    # the stream itself: typer would write UTF-8 to one that says it takes ASCII
    typer.echo(visible(str(message)), file=sys.stderr if error else sys.stdout)


def print_json(content: Any) -> None:
    """Print content as one line of JSON."""
    say(json.dumps(content, allow_nan=False))


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame for JSON, which cannot represent NaN."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


@contextmanager
def exit_on_error(unfinished: Path | None = None) -> Iterator[None]:
    """Exit with code 2 and the message alone when the input is wrong or a folder exists.

    `unfinished` is the folder in which an interrupted run keeps its partial results.
    """
    try:
        yield
    except (ValueError, OSError, ReviewError) as error:
        notes = list(getattr(error, "__notes__", []))
        if getattr(error, "errno", None) == errno.ENOSPC:
            notes.append("The disk is full: free some space, or write to another one.")
        kept = [] if "--resume" in str(error) else _kept(unfinished)
        say("\n".join([f"Error: {error}", *notes, *kept]), error=True)
        raise typer.Exit(2) from None
    except MemoryError as error:
        about = f" ({error})" if str(error) else ""
        remedy = "lower the horizon, give fewer states or episodes, or --detail summary"
        say(f"Error: not enough memory{about}; {remedy}", error=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        stopped = "Stopped; nothing was left half-written."
        say("\n".join([stopped, *_kept(unfinished)]), error=True)
        raise typer.Exit(130) from None


def _kept(unfinished: Path | None) -> list[str]:
    if unfinished is None or not unfinished.is_dir():
        return []
    return [f"Partial results are kept in {unfinished}; continue with --resume."]


class _Lines:
    """Progress where nobody watches: the name of each stage on the standard error, one a line."""

    def __init__(self, interrupted: Callable[[], bool]) -> None:
        self._interrupted = interrupted

    def enter(self, stage: str) -> None:
        say(stage, error=True)

    def __call__(self, done: int, total: int) -> None:
        if self._interrupted():
            raise KeyboardInterrupt


class _Bar(_Lines):
    """Progress on a terminal: a bar that tells the stage."""

    def __init__(self, interrupted: Callable[[], bool], bar: Progress, task: TaskID) -> None:
        super().__init__(interrupted)
        self._bar, self._task = bar, task

    def enter(self, stage: str) -> None:
        self._bar.remove_task(self._task)
        self._task = self._bar.add_task(stage, total=None)

    def __call__(self, done: int, total: int) -> None:
        super().__call__(done, total)
        self._bar.update(self._task, completed=done, total=total)


@contextmanager
def progress_bar(console: Console, description: str) -> Iterator[Stages]:
    """Show a progress bar, or one line per stage if the output is no terminal."""
    if not console.is_terminal:
        with _interrupts() as interrupted:
            yield _Lines(interrupted)
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task(description, total=None)
        with _interrupts() as interrupted:
            yield _Bar(interrupted, bar, task)


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-C was pressed.

    A KeyboardInterrupt raised while Python finalizes an object is ignored and lost, so the signal
    is remembered as well.
    """
    received: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    # only the main thread can receive signals
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: bool(received)
    finally:
        signal.signal(signal.SIGINT, before)
