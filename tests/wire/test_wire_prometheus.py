"""A real Prometheus scrapes a running controller; what the dashboard and the alert rules ask it has an answer."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.paths import ROOT
from support.wire import WireRun

from experiments.machine.controller_process import free_ports

DEPLOY = ROOT / "deploy"
PROGRAM = ROOT / "scripts" / "prometheus"
NOT_THERE = 127
# What is only there when something goes wrong, or a policy names where it holds pairs back.
EMPTY = {"dets_openflow_error_replies_total", "dets_bottlenecked_pairs"}
# Begin to be true when a busy machine delays the controller, and fire if that lasts for minutes.
OF_SPEED = {"DetsEventLoopLag", "DetsLoopLate", "DetsSwitchSlow"}
VLAN = ("dets_vlan_received_bytes_total", 'vlan="10"')
LINK = ("dets_link_bytes_total", 'from="s1:9"')


class Prometheus:
    """Prometheus with a configuration in a folder, for one ``with``."""

    def __init__(self, folder: Path, target: str) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(DEPLOY / "prometheus-alerts.yml")],
            "scrape_configs": [
                {"job_name": "dets", "static_configs": [{"targets": [target]}]},
                {"job_name": "one", "params": {"name[]": [LINK[0]]}, "static_configs": [{"targets": [target]}]},
            ],
        }
        file = folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(config))
        self._command = [str(PROGRAM), f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"]
        self._command += [f"--web.listen-address=127.0.0.1:{port}"]
        self._log = folder / "prometheus.log"

    def __enter__(self) -> Prometheus:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30.0)

    def get(self, path: str, **query: str) -> Any:
        try:
            with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refusal:  # it is not ready yet
            with refusal:
                raise OSError(refusal.code) from None

    def ask(self, expression: str) -> list[Any]:
        return list(self.get("/api/v1/query", query=expression)["result"])


def expressions() -> list[str]:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [re.sub(r"\$(vlan|switch)", ".*", one).replace("$__rate_interval", "15s") for one in asked]


@pytest.mark.functions
def test_the_dashboard_has_something_to_show(tmp_path: Path) -> None:
    if subprocess.run([PROGRAM, "--version"], capture_output=True, check=False).returncode == NOT_THERE:
        pytest.skip("PROMETHEUS CANNOT BE HAD: the dashboard's queries are not asked")
    run = WireRun(tmp_path, {1: [1, 2], 2: [1]}, [((1, 9), (2, 9))])
    run.app.configure({**run.config, "links": [{"between": ["s1:9", "s2:9"], "capacity": "10G"}]})
    with run:
        run.introduce(2, 1, 0xB1)
        run.introduce(1, 1, 0xA1)
        flow = run.offer((1, 1), 0xA1, 0xB1, 0.0)
        with run.fabric.locked():
            run.fabric.rates.set_rates([flow], 100e6)
        app = run.app
        app.wait_for(lambda: len(app.get("/v1/pairs")["pairs"]) == 1, "a pair")
        with Prometheus(tmp_path, app.url.removeprefix("http://")) as prometheus:

            def rate_bps(name: str, label: str) -> float:
                # The samples of 12 s are 11 s apart, in which ports are read 10 or 20 times; fewer would be 10 % off.
                found = prometheus.ask(f"8 * rate({name}{{{label}}}[12s])")
                return max((float(one["value"][1]) for one in found), default=0.0)

            app.wait_for(
                lambda: all(abs(rate_bps(name, label) / 100e6 - 1) < 0.05 for name, label in (VLAN, LINK)),
                "both seen by Prometheus",
                60.0,
            )
            found = prometheus.get("/api/v1/series", **{"match[]": '{job="one"}'})
            assert {one["__name__"] for one in found if one["__name__"].startswith("dets_")} == {LINK[0]}
            asked = expressions()
            assert len(asked) > 25
            silent = [one for one in asked if not prometheus.ask(one) and not any(name in one for name in EMPTY)]
            assert silent == []
            rules = prometheus.get("/api/v1/rules")["groups"][0]["rules"]
            app.wait_for(
                lambda: {one["health"] for one in prometheus.get("/api/v1/rules")["groups"][0]["rules"]} == {"ok"},
                "all rules evaluated",
                30.0,
            )
            assert len(rules) > 20
            alerts = prometheus.get("/api/v1/alerts")["alerts"]
            assert {one["labels"]["alertname"] for one in alerts} <= {"DetsNotEnforceable", *OF_SPEED}  # no queues
            assert {one["state"] for one in alerts} <= {"pending"}
