"""A real browser for tests: headless Chromium, driven through its DevTools protocol.

    with open_browser() as browser:
        browser.goto("http://127.0.0.1:8000/")
        browser.wait_for("document.querySelectorAll('svg').length == 3")
        browser.click("button.next")
        assert browser.problems() == []

All tests of a process share one Chromium; each has a profile of its own, as in a private window.
Everything runs in a folder of its own that is removed at the end.
"""

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from websockets.sync.client import connect

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    # nothing but pages: a first window and the address bar's own pages take longer than most tests
    "--no-startup-window",
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
)
AXE = Path(__file__).parents[1] / "build" / "node_modules" / "axe-core" / "axe.min.js"
PATIENCE = 20.0  # seconds until something that should happen counts as missing
# what Chromium answers if a page makes room for another while it is asked
LEFT = ("Inspected target navigated or closed", "Execution context was destroyed")


def find_chromium():
    """Path of the browser; without it the test is skipped, and fails where CI=true."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    return found or _miss("NO BROWSER: chromium is not installed, so no page was opened in one")


def read_axe():
    """The script of axe-core; without it the test is skipped, and fails where CI=true."""
    if AXE.is_file():
        return AXE.read_text(encoding="utf-8")
    return _miss("NO AXE: run make axe, which needs npm; no page was checked for accessibility")


def _miss(words):
    if os.environ.get("CI") == "true":
        pytest.fail(words)
    pytest.skip(words)


@dataclass
class Chromium:
    """The browser that tests share; it starts when one is first opened, or if it has crashed."""

    process: subprocess.Popen | None = None
    folder: str = ""
    address: str = ""

    def start(self):
        """Return the address of the running browser."""
        if self.process is None or self.process.poll() is not None:
            self.stop()
            binary = find_chromium()
            self.folder = tempfile.mkdtemp(prefix="browser-")
            self.process = subprocess.Popen(
                [binary, *FLAGS, f"--user-data-dir={self.folder}"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            self.address = _address(Path(self.folder) / "DevToolsActivePort", self.process)
        return self.address

    def stop(self):
        """End it, if it runs."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.process = None


CHROMIUM = Chromium()


@contextmanager
def open_browser(width=1280, height=900):
    """Open a page with a profile of its own, and close it afterwards."""
    # Without pings and with room for all events: while a test does not read, events would fill the
    # queue, answers to pings wait behind them, and the connection would be closed.
    options = {"max_size": None, "max_queue": None, "ping_interval": None}
    with connect(CHROMIUM.start(), open_timeout=PATIENCE, **options) as socket:
        browser = Browser(socket)
        browser.resize(width, height)
        yield browser
        browser.close()


def _address(file, process):
    """Return where the browser listens, once it says so."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        lines = file.read_text().split() if file.exists() else []
        if len(lines) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.05)
    raise RuntimeError(f"chromium did not start (exit code {process.poll()})")


class Browser:
    """One page of a browser."""

    def __init__(self, socket):
        self._socket, self._last, self._events = socket, 0, []
        self.profile = self._send("Target.createBrowserContext", {"disposeOnDetach": True})
        target = self._send("Target.createTarget", {"url": "about:blank", **self.profile})
        attached = self._send(
            "Target.attachToTarget", {"targetId": target["targetId"], "flatten": True}
        )
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.command(f"{domain}.enable")
        # as if its window were in front, which at most one of several windows is
        self.command("Emulation.setFocusEmulationEnabled", enabled=True)
        self.prefer()

    def command(self, method, **parameters):
        """Send a command of the DevTools protocol and return its result."""
        return self._send(method, parameters, self._session)

    def close(self):
        """Close the page and forget its profile."""
        self._send("Target.disposeBrowserContext", self.profile)

    def _send(self, method, parameters, session=None):
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        self._socket.send(json.dumps(message))
        end = time.monotonic() + PATIENCE
        while True:
            answer = json.loads(self._socket.recv(timeout=max(0.01, end - time.monotonic())))
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._events.append(answer)

    # ------------------------------------------------------------------------------------- acting

    def goto(self, url):
        """Open an address; what was seen of the page before is forgotten."""
        self._events.clear()
        answer = self.command("Page.navigate", url=url)
        if "errorText" in answer:
            raise RuntimeError(f"{url}: {answer['errorText']}")
        if "loaderId" in answer:  # not just another place on the same page
            self.wait_for("document.readyState == 'complete'")

    def evaluate(self, expression):
        """Return the value of a JavaScript expression; promises are awaited."""
        answer = self.command(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", details).get("description", str(details)))
        return answer["result"].get("value")

    def wait_for(self, expression, patience=PATIENCE):
        """Wait until a JavaScript expression is true, and return its value."""
        end = time.monotonic() + patience
        while True:
            value = self._evaluate_unless_left(expression)
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"after {patience} s still not: {expression}")
            time.sleep(0.02)

    def _evaluate_unless_left(self, expression):
        """Value of an expression, or None if the page was left meanwhile."""
        try:
            return self.evaluate(expression)
        except RuntimeError as error:
            if not any(words in str(error) for words in LEFT):
                raise
            return None

    def count(self, selector):
        """How many elements there are."""
        return self.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length")

    def text(self, selector):
        """Text of the first such element, as it is shown."""
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def click(self, selector):
        """Click on the middle of the first such element, with the mouse."""
        place, before = self._middle(selector), None
        while place != before:  # until nothing moves any more
            before, place = place, self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.command(
                "Input.dispatchMouseEvent", type=kind, **place, button="left", clickCount=1
            )

    def _middle(self, selector):
        return self.evaluate(
            f"(async () => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "await new Promise(done => setTimeout(done, 40));"
            "const r = e.getBoundingClientRect();"
            "return {x: r.x + r.width / 2, y: r.y + r.height / 2}; })()"
        )

    def press(self, key, *, ctrl=False):
        """Press a key: a letter, or Enter, Tab, Escape, ArrowLeft, …"""
        names = {
            "Enter": 13,
            "Tab": 9,
            "Escape": 27,
            " ": 32,
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
        }
        code = names.get(key, ord(key.upper()) if len(key) == 1 else 0)
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        event = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 2 if ctrl else 0}
        if text and not ctrl:
            self.command("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        else:
            self.command("Input.dispatchKeyEvent", type="rawKeyDown", **event)
        self.command("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text):
        """Write a text where the cursor is, once it is in a field."""
        self.wait_for(
            "document.activeElement?.matches('textarea, input:not([type=radio], [type=checkbox])')"
        )
        self.command("Input.insertText", text=text)

    def resize(self, width, height, scale=1):
        """Set the window: 640 wide is what a screen of 1280 shows at a zoom of 200 %."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def prefer(self, scheme="light", media=""):
        """Set what the reader prefers: light or dark colors, no motion, and on which medium."""
        given = {"prefers-reduced-motion": "reduce", "prefers-color-scheme": scheme}
        features = [{"name": name, "value": value} for name, value in given.items()]
        self.command("Emulation.setEmulatedMedia", media=media, features=features)

    def forget(self, site):
        """Be new to a site: signed out, and with nothing remembered in this window."""
        self.prefer()
        self.goto(f"{site}/sign-in")
        self.command("Network.clearBrowserCookies")
        self.evaluate("sessionStorage.clear()")

    @contextmanager
    def hurry(self, times):
        """Let intervals of pages that are opened meanwhile pass so many times as fast."""
        script = self.command(
            "Page.addScriptToEvaluateOnNewDocument",
            source="const usual = window.setInterval;"
            f"window.setInterval = (call, time) => usual(call, time / {times});",
        )
        yield
        self.command("Page.removeScriptToEvaluateOnNewDocument", **script)

    def offline(self, off=True):
        """Take the network away; files stay."""
        self.command(
            "Network.emulateNetworkConditions",
            offline=off,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )

    def screenshot(self, path, *, whole=False):
        """Write what is shown, or the whole page, as PNG."""
        answer = self.command(
            "Page.captureScreenshot", captureBeyondViewport=whole, **self._clip(whole)
        )
        Path(path).write_bytes(base64.b64decode(answer["data"]))

    def _clip(self, whole):
        if not whole:
            return {}
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {**size, "scale": 1}}

    def pdf(self, path):
        """Print the page to a PDF file."""
        answer = self.command("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        Path(path).write_bytes(base64.b64decode(answer["data"]))

    # ------------------------------------------------------------------------------------- seeing

    def requests(self):
        """Addresses that the page asked for since `goto`; data: addresses are no requests."""
        self.evaluate("1")  # collects what has happened
        found = [
            event["params"]["request"]["url"]
            for event in self._events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in found if not re.match(r"(data|blob):", url)]

    def problems(self):
        """Errors on the console, exceptions and violations of the Content-Security-Policy."""
        self.evaluate("1")
        found = []
        for event in self._events:
            method, given = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                details = given["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning"):
                found.append(" ".join(str(a.get("value", a)) for a in given["args"]))
            elif method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
                found.append(given["entry"]["text"])
        return found

    def violations(self, *rules):
        """What axe-core objects to: each rule (or each of these) and the elements that break it."""
        if not self.evaluate("'axe' in window"):
            self.evaluate(f"{read_axe()};0")
        chosen = {"resultTypes": ["violations"]} | ({"runOnly": rules} if rules else {})
        found = self.evaluate(f"axe.run(document, {json.dumps(chosen)})")["violations"]
        return [(rule["id"], [node["target"] for node in rule["nodes"]]) for rule in found]

    def overflow(self):
        """By how many pixels the page is wider than the window."""
        return self.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
