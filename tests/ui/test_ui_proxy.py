"""The page, the command line and the history behind a real nginx that serves the controller below a path."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect
from support.ovs import wait_until
from support.paths import ROOT
from support.rest_server import CONFIG, RestProcess

from experiments.machine.controller_process import free_ports

PROGRAM = ROOT / "scripts" / "nginx"
EXAMPLE = ROOT / "deploy" / "nginx.conf"
PROXY = "127.0.0.9"
NOT_THERE = 127
SERVER = """\
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {{
        listen 127.0.0.1:{port};
        proxy_bind {proxy};
        include {example};
    }}
}}
"""


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[str]:
    """The address below which a controller is, behind nginx with the example of deploy/."""
    if subprocess.run([PROGRAM, "-v"], capture_output=True, check=False).returncode == NOT_THERE:
        pytest.skip("NGINX CANNOT BE HAD: the page is not tried behind a proxy")
    (port,) = free_ports(1)
    with RestProcess(CONFIG, trusted_proxies=[PROXY]) as server:
        example = tmp_path / "example.conf"
        example.write_text(EXAMPLE.read_text().replace("127.0.0.1:8080", f"127.0.0.1:{server.port}"))
        (tmp_path / "nginx.conf").write_text(SERVER.format(port=port, proxy=PROXY, example=example))
        nginx = subprocess.Popen([PROGRAM, "-p", tmp_path, "-c", "nginx.conf"], stdin=subprocess.DEVNULL)
        try:
            wait_until(lambda: listens(port), "nginx listens")
            yield f"http://127.0.0.1:{port}/dets"
        finally:
            nginx.terminate()
            nginx.wait(15.0)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def dets(url: str, *words: str) -> str:
    command = [sys.executable, "-m", "apps.cli", *words, "--url", url]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout


def test_the_page_works_below_a_path(proxied, open_page):
    page = open_page(proxied, "/ui#/vn/10/s1/1")
    page.get_by_label("Receive limit", exact=True).fill("30M")
    page.get_by_label("Receive limit", exact=True).press("Enter")
    page.get_by_role("button", name="Change it").click()
    expect(page.get_by_text("in force (revision 2)")).to_be_visible()
    assert "30M" in dets(proxied, "vn", "show", "--vlan", "10", "--port", "s1:1")
    page.goto(f"{proxied}/ui#/changes")
    expect(page.get_by_text("revision 2, in force")).to_be_visible()
    assert json.loads(dets(proxied, "history", "-o", "json"))[0]["address"] == "127.0.0.1"
    page.goto(f"{proxied}/docs")
    page.get_by_role("link", name="/v1/openapi.json").click()
    assert page.url == f"{proxied}/v1/openapi.json"
    with urllib.request.urlopen(page.url) as answer:
        assert json.load(answer)["servers"] == [{"url": "/dets"}]
