"""The page in a browser shows the dataset, a choice filters the other charts, and no other host is asked."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import pytest
from endless_run import ENDLESS_RUN, SHORT_RUN, endless_dataset
from tools import COMMAND, needs_tool

import ddnn_traces
from ddnn_traces.explore import HOST, guard
from ddnn_traces.explore import contents as page_contents
from ddnn_traces.query.dataset import Dataset

pytestmark = pytest.mark.page

FIRST, SECOND = "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2", "torch-mlp1-sgd-32-gloo-0ms-ring"

#: Writes down every address that the server's process asks for or connects to.
AUDIT = """
import os, sys

def write_down(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo"):
        with open(os.environ["ASKED"], "a") as file:
            print(event, arguments[-1] if event != "socket.getaddrinfo" else arguments[0], file=file)

sys.addaudithook(write_down)
write_down("socket.connect", ["127.0.0.1, to see that this works"])
"""


class Browser:
    """Chromium, driven through a pipe (--remote-debugging-pipe): no port, and no library."""

    def __init__(self, folder: Path) -> None:
        read, self._to = os.pipe()
        self._from, write = os.pipe()

        def pipes() -> None:  # in the child: what it reads is 3, what it writes is 4
            for end, number in ((os.dup(read), 3), (os.dup(write), 4)):
                os.dup2(end, number)

        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync",
                 "--window-size=1400,1600", "--remote-debugging-pipe", f"--user-data-dir={folder}")  # fmt: skip
        command = [needs_tool("chromium"), *flags, "about:blank"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, preexec_fn=pipes, close_fds=False, **quiet)
        os.close(read)
        os.close(write)
        self._left, self._calls = b"", 0
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        # workers and frames too
        self.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)
        for domain in ("Network", "Page", "Runtime"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command of the DevTools protocol."""
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": params}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._calls:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]  # type: ignore[no-any-return]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            read = os.read(self._from, 1 << 20)
            assert read, "the browser ended"
            self._left += read
        message, _, self._left = self._left.partition(b"\0")
        return json.loads(message)  # type: ignore[no-any-return]

    def open(self, url: str, leads_to: str) -> None:
        """Go to a page, and wait until the scripts of the one that it leads to are loaded."""
        self.call("Page.navigate", url=url)
        self._until(lambda event: event["params"]["frame"]["url"].startswith(leads_to), "Page.frameNavigated")
        self._until(lambda event: True, "Page.loadEventFired")

    def _until(self, holds: Callable[[Any], bool], method: str) -> None:
        seen = len(self.events)
        while not any(event.get("method") == method and holds(event) for event in self.events[seen:]):
            self.events.append(self._next())

    def evaluate(self, javascript: str) -> Any:
        """The value of an expression, with `all(selector)`: elements, also those inside marimo's elements."""
        every = """const all = (selector, root = document) => [...root.querySelectorAll('*')].flatMap((element) =>
            [...(element.matches(selector) ? [element] : []),
             ...(element.shadowRoot ? all(selector, element.shadowRoot) : [])]);"""
        script = f"(async () => {{ {every} return {javascript}; }})()"
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, javascript: str) -> Any:
        """The value of an expression as soon as it is true; looked at each time the page is painted."""
        return self.evaluate(
            f"""await new Promise((done) => {{
                const look = () => {{ const value = {javascript}; value ? done(value) : requestAnimationFrame(look); }};
                look();
            }})"""
        )

    def drag(self, *points: tuple[float, float]) -> None:
        """Press at the first point, move over the others, let go at the last; a single one is a click."""
        self._mouse("mouseMoved", points[0], buttons=0)
        self._mouse("mousePressed", points[0], buttons=1)
        for point in points[1:]:
            self._mouse("mouseMoved", point, buttons=1)
        self._mouse("mouseReleased", points[-1], buttons=1)

    def _mouse(self, kind: str, point: tuple[float, float], buttons: int) -> None:
        x, y = point
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=buttons, clickCount=1)

    def urls(self) -> set[str]:
        """Addresses of all requests and sockets."""
        found: dict[str, list[Any]] = {}
        for event in self.events:
            found.setdefault(event["method"], []).append(event["params"])
        sockets = [*found.get("Network.webSocketCreated", []), *found.get("Network.webTransportCreated", [])]
        return {one["request"]["url"] for one in found["Network.requestWillBeSent"]} | {one["url"] for one in sockets}

    def errors(self) -> list[Any]:
        """Messages of errors on the console, and exceptions that nobody caught."""
        return [
            event["params"]
            for event in self.events
            if event.get("method") == "Runtime.exceptionThrown"
            or (event.get("method") == "Runtime.consoleAPICalled" and event["params"]["type"] == "error")
        ]


def url_of(page: Path) -> str:
    """The URL that a page leads to."""
    found = re.search(r"url=([^\"]+)", page.read_text())
    assert found is not None
    return found[1]


class Server:
    """`ddnn-traces explore`, with the page that it names, which leads to the URL with the token."""

    def __init__(self, dataset: Path, folder: Path, *options: str, **variables: str) -> None:
        (folder / "hooks").mkdir(parents=True)
        (folder / "hooks" / "sitecustomize.py").write_text(AUDIT)
        self.asked = folder / "asked.txt"
        self.asked.touch()
        environment = os.environ | {"PYTHONPATH": str(folder / "hooks"), "ASKED": str(self.asked), "HOME": str(folder)}
        environment |= variables
        self.process = subprocess.Popen(
            [*COMMAND, "explore", str(dataset), *options],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=(folder / "stderr.txt").open("w"),
            text=True,
        )
        self.stderr = folder / "stderr.txt"
        assert self.process.stdout is not None
        found = re.match(r"file://(\S+)", self.process.stdout.readline())
        assert found, self.stderr.read_text()
        self.page = Path(found[1])
        self.url = url_of(self.page)

    @property
    def origin(self) -> str:
        """The address without the token."""
        return urlsplit(self.url).netloc

    def interrupt(self) -> int:
        """Its exit code after a Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.stdout is not None
        self.process.stdout.read()
        return self.process.wait()


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of each file."""
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def explored(sample: Path, once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A dataset of two runs."""
    runs = [sample / FIRST, sample / SECOND]
    return once("explored", lambda path: ddnn_traces.ingest(runs, path).close())


@pytest.fixture
def server(explored: Path, tmp_path: Path) -> Iterator[Server]:
    found = Server(explored, tmp_path / "server", "--no-browser")
    yield found
    if found.process.poll() is None:
        found.process.kill()
    found.process.wait()


#: Marks of a chart by Observable Plot's name of their group.
def count(group: str) -> str:
    return f"all('svg g[aria-label={group}] > *').length"


def choose(browser: Browser, chosen: str, other: str) -> None:
    """Choose another run in the place of the only one that is chosen."""
    browser.wait(f"all('button').some((button) => button.textContent.includes('{chosen}'))")
    browser.evaluate(f"all('button').find((button) => button.textContent.includes('{chosen}')).click()")
    for name in (other, chosen):
        option = f"all('[role=option]').find((option) => option.textContent.trim() === '{name}')"
        browser.wait(option + " !== undefined")
        browser.evaluate(option + ".click()")


def first_value(dataset: Dataset, query: str) -> Any:
    return dataset.sql_arrow(query)[0][0].as_py()


def steps_that_begin_within(dataset: Dataset, path: Path) -> tuple[int, int]:
    """Least and most steps in the first half of the chart, which a pixel more or less may change."""
    with ddnn_traces.open(path, dataset.run_ids) as other:
        times = page_contents.make(other)
    middle, pixel = (times.begin_s + times.end_s) / 2, (times.end_s - times.begin_s) / 1000
    begin = "(SELECT start_ns, (start_ns - first_ns) / 1e9 AS begin_s FROM steps JOIN run_spans USING (run_id))"
    most, least = (
        first_value(dataset, f"SELECT count(*) FROM {begin} WHERE begin_s BETWEEN {low} AND {high}")
        for low, high in (
            (times.begin_s, middle + 2 * pixel),
            (times.begin_s + 2 * pixel, middle - 2 * pixel),
        )
    )
    return least, most


def test_the_page_shows_the_dataset_filters_and_asks_no_other_host(
    server: Server, explored: Path, tmp_path: Path
) -> None:
    before = contents(explored)
    with ddnn_traces.open(explored, [FIRST]) as one, Browser(tmp_path / "browser") as browser:
        pairs = first_value(one, "SELECT count(*) FROM traffic_matrix")
        steps = first_value(one, "SELECT count(*) FROM steps")
        flows = first_value(one, "SELECT count(DISTINCT flow) FROM flow_names")
        browser.open(server.page.as_uri(), f"http://{server.origin}/")
        drawn = f"{count('cell')} === {pairs} && {count('dot')} === {steps} && {count('bar')} === {min(flows, 20)}"
        browser.wait(f"{drawn} && {count('line')} > 0")

        # a brush over the first half of the time: fewer steps
        box = browser.evaluate("all('.interval-x .overlay')[0].getBoundingClientRect().toJSON()")
        left, half, y = box["x"] + 1, box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        browser.drag((left, y), ((left + half) / 2, y), (half, y))
        least, most = steps_that_begin_within(one, explored)
        assert 0 < least <= most < steps
        browser.wait(f"{least} <= {count('dot')} && {count('dot')} <= {most}")
        browser.drag((box["x"] + box["width"] - 5, y))  # a click beside it
        browser.wait(f"{count('dot')} === {steps}")

        # a click on a cell: flows of this pair only
        cell = browser.evaluate("all('svg g[aria-label=cell] > *')[0].getBoundingClientRect().toJSON()")
        browser.drag((cell["x"] + cell["width"] / 2, cell["y"] + cell["height"] / 2))
        browser.wait(f"{count('bar')} < {min(flows, 20)} && {count('bar')}")
        names = browser.evaluate("all('svg g[aria-label=\"y-axis tick label\"] text').map((text) => text.textContent)")
        shown = {tuple(re.findall(r"(\S+):\d+", name)) for name in names if "→" in name}
        assert len(shown) == 1
        assert browser.evaluate(count("cell")) == pairs

        # another run in its place: all of its data, and no choice
        choose(browser, FIRST, SECOND)
        with ddnn_traces.open(explored, [SECOND]) as two:
            pairs = first_value(two, "SELECT count(*) FROM traffic_matrix")
            steps = first_value(two, "SELECT count(*) FROM steps")
        browser.wait(f"{count('cell')} === {pairs} && {count('dot')} === {steps}")

        asked = {urlsplit(url) for url in browser.urls() if not url.startswith(("data:", "blob:"))}
        assert {(url.scheme, url.netloc) for url in asked} == {
            ("file", ""), ("http", server.origin), ("ws", server.origin)
        }  # fmt: skip
        assert browser.errors() == []
    assert server.interrupt() == 0
    assert "Traceback" not in server.stderr.read_text()
    asked_by_server = server.asked.read_text().splitlines()
    assert asked_by_server != []
    assert [line for line in asked_by_server if not re.search(r"127\.0\.0\.1|localhost|::1", line)] == []
    assert contents(explored) == before


@pytest.mark.long
def test_a_zoom_and_the_runs_are_in_the_address_and_outlast_a_reload(server: Server, tmp_path: Path) -> None:
    button = "all('button').find((button) => button.textContent.includes('{}'))"
    with Browser(tmp_path / "browser") as browser:
        browser.open(f"{server.url}&run={SECOND}&topology=ring", f"http://{server.origin}/")
        browser.wait(f"{count('line')} > 0 && {count('cell')} > 0")
        box = browser.evaluate("all('.interval-x .overlay')[0].getBoundingClientRect().toJSON()")
        y = box["y"] + box["height"] / 2
        browser.drag(*((box["x"] + box["width"] * part, y) for part in (0.2, 0.5, 0.8)))
        browser.wait("all('.interval-x .selection').some((one) => one.getBoundingClientRect().width > 50)")
        browser.wait(f"({button.format('Zoom in')}.click(), location.search.includes('from='))")
        for _ in range(2):
            browser.wait(f"{button.format('Show all')} !== undefined && {count('line')} > 0")
            found = parse_qs(browser.evaluate("location.search.slice(1)"))
            assert (json.loads(found["runs"][0]), found["topology"]) == ([SECOND], ["ring"])
            assert 0 < float(found["from"][0]) < float(found["to"][0])
            browser.open(browser.evaluate("location.href"), f"http://{server.origin}/")


def test_tables_that_are_made_without_end_end_at_the_next_choice(tmp_path: Path) -> None:
    dataset = endless_dataset(tmp_path)
    server = Server(dataset, tmp_path / "server", "--no-browser")
    try:
        with ddnn_traces.open(dataset, [SHORT_RUN]) as one, Browser(tmp_path / "browser") as browser:
            pairs = first_value(one, "SELECT count(*) FROM traffic_matrix")
            browser.open(server.page.as_uri(), f"http://{server.origin}/")
            choose(browser, ENDLESS_RUN, SHORT_RUN)
            browser.wait(f"{count('cell')} === {pairs}")
    finally:
        assert server.interrupt() == 0


def test_only_loopback_is_listened_on_and_the_token_is_needed(server: Server) -> None:
    port = urlsplit(server.url).port
    assert port is not None
    listening = {
        line.split()[1].partition(":")[0]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
    }
    assert listening == {"0100007F"}
    (token,) = re.findall(r"access_token=(\S+)", server.url)
    assert len(token) >= 40
    for address in (f"http://{server.origin}/", f"http://{server.origin}/?access_token={token[:-1]}"):
        with urllib.request.urlopen(address) as answer:
            assert urlsplit(answer.url).path == "/auth/login"
    assert token.encode() not in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()


def test_arguments_of_the_browser_have_no_token(explored: Path, tmp_path: Path) -> None:
    shown, program = tmp_path / "shown", tmp_path / "browser"
    os.mkfifo(shown)
    program.write_text(f'#!/bin/sh\ntr "\\0" "\\n" < /proc/$$/cmdline > {shown}\n')
    program.chmod(0o755)
    server = Server(explored, tmp_path / "server", BROWSER=f"{program} %s")
    try:
        arguments = shown.read_text().splitlines()
        assert arguments[-1] == server.page.as_uri()
        (token,) = re.findall(r"access_token=(\S+)", server.url)
        assert not any(token in argument for argument in arguments)
        assert server.page.stat().st_mode & 0o777 == 0o600
        assert server.page.parent.stat().st_mode & 0o777 == 0o700
        urllib.request.urlopen(server.url).close()
        assert not server.page.exists()
    finally:
        assert server.interrupt() == 0
    assert not server.page.parent.exists()


def status_of_socket(server: Server, cookie: str, **headers: str) -> int:
    """The answer to a WebSocket's handshake."""
    lines = {"Host": server.origin, "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
             "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Cookie": cookie} | headers  # fmt: skip
    with socket.create_connection((HOST, urlsplit(server.url).port or 0)) as connection:
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        connection.sendall(f"GET /ws?session_id=s_abcdef HTTP/1.1\r\n{head}\r\n".encode())
        return int(connection.recv(1 << 16).split()[1])


def test_only_the_page_itself_has_a_socket_and_no_other_may_show_it(server: Server) -> None:
    cookies = CookieJar()
    with urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies)).open(server.url) as answer:
        assert urlsplit(answer.url).path == "/"
        found = {name: answer.headers.get_all(name) for name in guard.HEADERS}
    assert found == {name: [value] for name, value in guard.HEADERS.items()}
    assert "frame-ancestors 'none'" in guard.HEADERS["content-security-policy"]
    cookie = "; ".join(f"{each.name}={each.value}" for each in cookies)
    for origin in ("http://attacker.example", f"https://{server.origin}", "null", f"http://{HOST}:1"):
        assert status_of_socket(server, cookie, Origin=origin) == 403
    assert status_of_socket(server, cookie) == 403  # no browser
    rebound = {"Host": f"attacker.example:{urlsplit(server.url).port}"}
    assert status_of_socket(server, cookie, **rebound, Origin=f"http://{rebound['Host']}") == 403
    assert status_of_socket(server, cookie, Origin=f"http://{server.origin}") == 101
