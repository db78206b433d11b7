"""A browser, a page that may not go wrong, and a controller with switches and traffic to look at."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.application import Application
from support.paths import ROOT
from support.rest_server import RestProcess

from experiments.machine.controller_process import free_ports

HERE = Path(__file__).parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# What a page does wrong is kept in the page itself: the browser tells of violations only there.
WATCH = """
window.wrongs = [];
addEventListener("securitypolicyviolation", (e) => wrongs.push(`CSP: ${e.violatedDirective} ${e.blockedURI}`));
addEventListener("unhandledrejection", (event) => wrongs.push(`rejected: ${event.reason}`));
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent != HERE:
            continue
        item.add_marker(pytest.mark.ui)
        if CHROMIUM is None:
            item.add_marker(pytest.mark.skip(reason="ui: there is no chromium (scripts/debian-packages, as root)"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=20_000)  # a busy machine is slow, not wrong
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., RestProcess]]:
    """Start the REST interface alone, as ``RestProcess`` does; it ends when the pages are closed."""
    with contextlib.ExitStack() as stack:
        yield lambda *given, **named: stack.enter_context(RestProcess(*given, **named))


@pytest.fixture
def open_page(browser: Any, serve: Any) -> Iterator[Callable[..., Any]]:
    """Open a page of a controller; at the end nothing may have gone wrong in any of them but what was ``expected``.

    A message of the console is wrong, and so is a violation of the policy, an error of a script and a request to
    anywhere but the controller.
    """
    with contextlib.ExitStack() as stack:
        opened: list[tuple[Any, list[str], tuple[str, ...]]] = []

        def open_one(url: str, path: str = "/ui", expected: tuple[str, ...] = (), **options: Any) -> Any:
            context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
            stack.callback(context.close)
            page = context.new_page()
            wrongs: list[str] = []

            def route(one: Any) -> None:
                if not one.request.url.startswith((url, "data:")):
                    wrongs.append(f"asks {one.request.url}")
                    one.abort()
                else:
                    one.continue_()

            page.route("**/*", route)
            page.add_init_script(WATCH)
            page.on("console", lambda message: wrongs.append(f"console: {message.text}"))
            page.on("pageerror", lambda error: wrongs.append(f"error: {error}"))
            opened.append((page, wrongs, expected))
            page.set_default_timeout(20_000)
            page.goto(url + path)
            return page

        yield open_one
        for page, wrongs, expected in opened:
            found = wrongs + page.evaluate("window.wrongs")
            assert [one for one in found if not any(text in one for text in expected)] == []


class Lab:
    """``dets run`` with ``dets lab`` on free ports, for one ``with``: two edge switches, a core switch, two tenants.

    Two hosts of VLAN 10 send 300 Mb/s each to s2:1, which may receive 400.
    """

    offers = ("10/s1:1/s2:1/300M", "10/s1:2/s2:1/300M", "20/s1:1/s2:2/100M")

    def __init__(self, folder: Path, **rest: Any) -> None:
        openflow_port, rest_port = free_ports(2)
        edge = {port: {"capacity": "1G", "trunk": [10, 20]} for port in (1, 2)}
        self.config = {
            "openflow": {"listen": f"127.0.0.1:{openflow_port}"},
            "rest": {"listen": f"127.0.0.1:{rest_port}", "requests_per_s": 1000, **rest},
            "vlans": {
                10: {"name": "blue", "send_limit": "400M", "receive_limit": "400M", "algorithm": "fs"},
                20: {"name": "red", "send_limit": "500M", "receive_limit": "500M", "algorithm": "fs"},
            },
            "switches": {
                "s1": {"dpid": 1, "ports": edge},
                "s2": {"dpid": 2, "ports": edge},
                "c1": {"dpid": 9, "ports": {}},
            },
            "links": [
                {"between": ["s1:9", "c1:1"], "capacity": "2G"},
                {"between": ["s2:9", "c1:2"], "capacity": "2G"},
            ],
        }
        self.app = Application(self.config, folder)
        self.app.by_command = True
        self.url = self.app.url
        self._log = folder / "lab.log"

    def __enter__(self) -> Lab:
        self.app.start()
        command = [sys.executable, "-m", "apps.cli", "lab", "--config", str(self.app.config_path)]
        command += [word for offer in self.offers for word in ("--offer", offer)]
        with self._log.open("ab") as log:
            self._lab = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self.app.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._lab.send_signal(signal.SIGTERM)
        self._lab.wait(15.0)
        self.app.__exit__()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("ui-lab")) as lab:
        lab.app.wait_for(lambda: len(lab.app.get("/v1/pairs?vlan=10")["pairs"]) == 2, "two pairs", 40.0)
        yield lab
