"""Headless Chromium for tests, driven over its DevTools protocol on the loopback interface."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_SECONDS = 60


def chromium() -> str:
    """The browser; skips the calling test where there is none."""
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    pytest.skip("needs Chromium (tools/install_test_tools.sh installs it)")


class Page:
    """One page: opens files, runs scripts, presses keys; keeps what the console complained of."""

    def __init__(self, *, dark: bool = False, width: int = 1200, height: int = 900) -> None:
        websocket = pytest.importorskip("tornado.websocket", reason="needs tornado")
        self._folder = tempfile.TemporaryDirectory(prefix="exactmeans-browser-")
        self._loop = asyncio.new_event_loop()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._count = 0
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        options += ["--no-first-run", "--remote-debugging-port=0", "--remote-allow-origins=*"]
        self._process = subprocess.Popen(
            [chromium(), *options, f"--user-data-dir={self._folder.name}", "about:blank"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        try:
            address = self._address()

            async def connected() -> Any:  # tornado wants a running loop
                return await websocket.websocket_connect(address, max_message_size=2**28)

            waiting = asyncio.wait_for(connected(), _SECONDS)
            self._socket: Any = self._loop.run_until_complete(waiting)
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            self.call("Emulation.setEmulatedMedia", features=[scheme])
            self.resize(width, height)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._loop.run_until_complete(self._disconnect())
        self._loop.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        shutil.rmtree(self._folder.name, ignore_errors=True)

    async def _disconnect(self) -> None:
        if hasattr(self, "_socket"):
            self._socket.close()
        await asyncio.sleep(0.05)  # for the farewell of the socket

    def _address(self) -> str:
        """The socket of the first page, found through the one that the browser prints."""
        assert self._process.stderr is not None
        seen = []
        for line in self._process.stderr:
            seen.append(line)
            if match := re.search(r"DevTools listening on ws://([^/]+)/", line):
                with urllib.request.urlopen(f"http://{match[1]}/json/list", timeout=30) as answer:
                    targets = json.load(answer)
                return next(str(t["webSocketDebuggerUrl"]) for t in targets if t["type"] == "page")
        pytest.skip(f"Chromium does not start here: {''.join(seen)[-300:]}")

    def call(self, method: str, **params: Any) -> Any:
        """Send a command and wait for its answer; events on the way are kept."""
        return self._loop.run_until_complete(asyncio.wait_for(self._call(method, params), _SECONDS))

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        self._count += 1
        await self._socket.write_message(
            json.dumps({"id": self._count, "method": method, "params": params})
        )
        while True:
            text = await self._socket.read_message()
            assert text is not None, "the browser has gone"
            message = json.loads(text)
            if message.get("id") == self._count:
                assert "error" not in message, message["error"]
                return message["result"]
            self._keep(message.get("method", ""), message.get("params", {}))

    def _keep(self, event: str, params: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(json.dumps(params["args"]))
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, path: Path) -> None:
        """Open a report and wait until it is drawn."""
        self.complaints.clear()
        self.requests.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        for _ in range(600):
            if self.run("document.documentElement?.dataset.ready === 'true'"):
                break
            self._loop.run_until_complete(asyncio.sleep(0.05))
        else:
            raise AssertionError(f"the page was not drawn: {self.complaints}")
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str, *, times: int = 1) -> None:
        """A key, as a person presses it."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38}
        codes |= {"ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35}
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        known = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper()))}
        for _ in range(times):
            down = "keyDown" if text else "rawKeyDown"
            self.call("Input.dispatchKeyEvent", type=down, **known, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **known)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def move(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", **size, mobile=width < 600)

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])
