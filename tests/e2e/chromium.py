"""Chromium without a screen, driven over the DevTools protocol: real keys, real clicks, and a record
of every request, console message and exception."""
import base64
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import websocket

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--remote-debugging-port=0", "--remote-allow-origins=*", "--no-first-run", "--mute-audio",
    "--hide-scrollbars", "--force-color-profile=srgb", "--disable-extensions",
    # nothing leaves the machine, whatever the browser would like to know
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-default-apps", "--disable-domain-reliability", "--no-pings",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "End": 35}


def binary():
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


class Browser:
    """One process with a profile of its own; contexts keep pages apart, as private windows do."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="headrace-chromium-",
                                                   ignore_cleanup_errors=True)
        self.log = pathlib.Path(self.profile.name, "stderr.txt")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [binary(), *FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                start_new_session=True)  # the command is a script: what it starts must end, too
        self.socket, self.sent, self.events = None, 0, []
        try:
            self.socket = websocket.create_connection(self._address(), timeout=30,
                                                      suppress_origin=True)
        except Exception:
            self.stop()
            raise

    def _address(self, timeout=30):
        end = time.monotonic() + timeout
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(r"DevTools listening on (ws://\S+)", self.log.read_text())
            if found:
                return found[1]
            time.sleep(0.02)
        raise AssertionError(f"Chromium did not start:\n{self.log.read_text()}")

    def receive(self):
        message = json.loads(self.socket.recv())
        if "method" in message:
            self.events.append(message)
        return message

    def call(self, method, session=None, **parameters):
        self.sent += 1
        request = {"id": self.sent, "method": method, "params": parameters}
        if session:
            request["sessionId"] = session
        self.socket.send(json.dumps(request))
        while True:
            answer = self.receive()
            if answer.get("id") == request["id"]:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def page(self, url, **more):
        return Page(self, url, **more)

    def stop(self):
        if self.socket:
            self.socket.close()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it ended by itself
        self.process.wait()
        self.profile.cleanup()


class Page:
    def __init__(self, browser, url, width=1280, height=800, dark=False, reduced_motion=True):
        self.browser = browser
        context = browser.call("Target.createBrowserContext")["browserContextId"]
        self.target = browser.call("Target.createTarget", url="about:blank",
                                   browserContextId=context)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target,
                                    flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.look(dark, reduced_motion)
        self.size(width, height)
        self.go(url)

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def call(self, method, **parameters):
        return self.browser.call(method, session=self.session, **parameters)

    def look(self, dark, reduced_motion=True):
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if reduced_motion else ""}])

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)

    def go(self, url):
        self.call("Page.navigate", url=url)
        self.wait(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'")

    def reload(self):
        self.js("window.before_reload = true")
        self.call("Page.reload")
        self.wait("!window.before_reload && document.readyState === 'complete'")

    def js(self, expression):
        r = self.call("Runtime.evaluate", expression=expression, awaitPromise=True,
                      returnByValue=True)
        assert "exceptionDetails" not in r, f"{expression}: {r['exceptionDetails']}"
        return r["result"].get("value")

    def wait(self, expression, timeout=20):
        """Until it is true; its value."""
        end = time.monotonic() + timeout
        while True:
            try:
                value = self.js(expression)
            except AssertionError as e:  # between two documents
                if "context" not in str(e) and "null" not in str(e):
                    raise
                value = None
            if value:
                return value
            assert time.monotonic() < end, f"never true: {expression}\n{self.problems()}"
            time.sleep(0.03)

    def text(self, selector):
        return self.js(f"document.querySelector({json.dumps(selector)})?.textContent")

    def click(self, selector, hover=False):
        """With the mouse, in the middle of the first element that the selector finds, once it can be
        seen."""
        x, y = self.wait(f"""(() => {{
            const e = document.querySelector({json.dumps(selector)});
            e?.scrollIntoView({{block: 'nearest'}});
            const r = e?.getClientRects()[0];
            return r && [r.x + r.width / 2, r.y + r.height / 2];
        }})()""")
        at = {"x": x, "y": y}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **at)
        for kind in () if hover else ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, shift=False):
        """modifiers: 8 is Shift in the protocol."""
        code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key],
                "modifiers": 8 if shift else 0}
        if key == "Enter":
            code["text"] = "\r"  # what makes a button or a link act
        self.call("Input.dispatchKeyEvent", type="keyDown", **code)
        code.pop("text", None)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def screenshot(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def _events(self, method):
        return [e["params"] for e in self.browser.events
                if e["method"] == method and e.get("sessionId") == self.session]

    def requests(self):
        """URLs asked for so far."""
        self.js("0")  # takes in what has been sent
        return [e["request"]["url"] for e in self._events("Network.requestWillBeSent")]

    def problems(self):
        """Exceptions, errors on the console, refused resources."""
        self.js("0")
        found = [e["exceptionDetails"].get("exception", {}).get("description")
                 or e["exceptionDetails"]["text"] for e in self._events("Runtime.exceptionThrown")]
        found += [json.dumps(e["args"]) for e in self._events("Runtime.consoleAPICalled")
                  if e["type"] in ("error", "warning", "assert")]
        found += [f"{e['entry']['text']} {e['entry'].get('url', '')}"
                  for e in self._events("Log.entryAdded") if e["entry"]["level"] in ("error", "warning")]
        return found
