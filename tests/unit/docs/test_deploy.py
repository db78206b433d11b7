"""``deploy/``: alert rules, dashboard and service unit, checked by the tools that read them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from types import SimpleNamespace

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.configs import star
from support.fabrics import Fabric
from support.metrics import metrics_of
from support.paths import ROOT

from apps.cluster.metrics import ClusterMetrics, LinksMetrics, SharingMetrics
from controller.config.loader import load_config
from experiments.wire.lab import parse_offer

DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"\b(dets_\w+|process_\w+|up)\b")
NOT_THERE = 127


@pytest.fixture(scope="module")
def promtool():
    """Run promtool on a file in deploy/ or elsewhere; what it said, and if it was content."""

    def run(*words):
        return subprocess.run(
            [ROOT / "scripts" / "promtool", *words],
            cwd=DEPLOY,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    if run("--version").returncode == NOT_THERE:
        pytest.skip("PROMTOOL CANNOT BE HAD: alert rules and dashboard are not checked by it")
    return run


@pytest.fixture(scope="module")
def exported():
    """The names of all samples that /metrics may have."""
    net = Fabric(star(2))
    net.start()
    metrics = metrics_of(net.central)
    node = SimpleNamespace(active_generation=lambda: 1, lease_age_s=lambda: 0.1, takeovers=1)
    metrics.add(ClusterMetrics(node, SimpleNamespace(refused=0)))
    exchange = SimpleNamespace(owners=lambda: {"s1": "n1"}, sharing=SimpleNamespace(refused=Counter()))
    metrics.add(SharingMetrics("n1", exchange))
    traffic = SimpleNamespace(sent=0, unsent=0, received=0, sent_octets=0, received_octets=0, reconnects=0)
    metrics.add(LinksMetrics(SimpleNamespace(traffic={"n2": traffic}, rejections={"key": 0})))
    families = text_string_to_metric_families(b"".join(metrics.page()).decode())
    names = {"up"}
    for family in families:
        names |= {sample.name for sample in family.samples}
        names |= {f"{family.name}_total"} if family.type == "counter" else {family.name}
    return names


DASHBOARD = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
PANEL_QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def expressions():
    """What alerts, panels and the dashboard's variables ask for."""
    rules = [rule["expr"] for group in deployed("prometheus-alerts.yml")["groups"] for rule in group["rules"]]
    variables = [METRIC.search(one["query"])[1] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    assert len(variables) == 2
    return rules + PANEL_QUERIES + variables


def test_only_metrics_are_asked_for_that_there_are(exported):
    asked = {expression: set(METRIC.findall(expression)) - {"dets"} for expression in expressions()}
    assert {expression: names for expression, names in asked.items() if not names or names - exported} == {}


def pages():
    """The text of all pages for users, by name."""
    return {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}


def test_pages_name_metrics_that_there_are(exported):
    named = {(page, name) for page, text in pages().items() for name in re.findall(r"`(dets_\w+)`", text)}
    assert len(named) > 10
    assert {(page, name) for page, name in named if name not in exported} == set()


def test_each_alert_is_on_a_page():
    text = "".join(pages().values())
    assert {name for name in alerts() if f"`{name}`" not in text} == set()


def test_alerts_fire_when_they_should_and_only_then(promtool):
    done = promtool("test", "rules", "prometheus-alerts-test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_rule_would_be_found(promtool, tmp_path):
    wrong = tmp_path / "wrong.yml"
    wrong.write_text("groups: [{name: x, rules: [{alert: A, expr: 'rate(dets_metered_pairs[)'}]}]")
    assert promtool("check", "rules", str(wrong)).returncode != 0


def test_the_dashboards_queries_are_queries(promtool, tmp_path):
    plain = [re.sub(r"\$\w+", "x", query.replace("$__rate_interval", "1m")) for query in PANEL_QUERIES]
    rules = [{"record": f"dets:panel{number}", "expr": expression} for number, expression in enumerate(plain)]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_panels_have_numbers_of_their_own_and_do_not_overlap():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize("name", ["dets.service", "dets-agent.service"])
def test_the_unit_is_one_that_systemd_understands_and_enables(name, tmp_path):
    text = (DEPLOY / name).read_text()
    assert text.endswith("\n[Install]\nWantedBy=multi-user.target\n")
    if shutil.which("systemd-analyze") is None:
        pytest.skip("SYSTEMD-ANALYZE IS NOT THERE: the units are not checked by it")
    unit = tmp_path / name
    # The program and the user exist only where it is installed.
    unit.write_text(text.replace("/opt/dets/bin/dets", "/bin/true").replace("=dets\n", "=root\n"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert name not in done.stderr


def test_units_need_no_other_programs_than_the_shell():
    """A small Debian has no /bin/kill, which is procps's: then a reload failed."""
    for unit in DEPLOY.glob("*.service"):
        programs = re.findall(r"^Exec\w+=(\S+)", unit.read_text(), re.MULTILINE)
        assert programs
        assert set(programs) <= {"/opt/dets/bin/dets", "/bin/sh"}


CONTAINER = DEPLOY / "container"


def test_what_the_compose_file_mounts_and_builds_is_there():
    services = deployed("container/compose.yaml")["services"]
    assert set(services) == {"controller", "fabric", "prometheus", "grafana"}
    assert {one["network_mode"] for one in services.values()} == {"host"}
    mounted = [one.split(":")[0] for service in services.values() for one in service["volumes"]]
    paths = [CONTAINER / one for one in mounted if one.startswith(".")]
    assert len(paths) == 7
    assert all(path.is_file() for path in paths)
    context = (CONTAINER / services["controller"]["build"]["context"]).resolve()
    assert context == ROOT
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (context / "deploy/container/Containerfile").read_text(), re.M)
    assert all((ROOT / name).exists() for names in copied for name in names.split())


def test_the_containers_agree_on_addresses_ports_and_vns():
    services = deployed("container/compose.yaml")["services"]
    config = load_config(CONTAINER / "dets.yaml")
    (scraped,) = deployed("container/prometheus.yml")["scrape_configs"]
    assert scraped["job_name"] == "dets"  # as the alert rules have it
    assert scraped["static_configs"] == [{"targets": [str(config.rest.listen)]}]
    (source,) = deployed("container/grafana-datasource.yml")["datasources"]
    assert f"--web.listen-address={source['url'].removeprefix('http://')}" in services["prometheus"]["command"]
    words = services["fabric"]["command"]
    offers = [parse_offer(words[at + 1], config) for at, word in enumerate(words) if word == "--offer"]
    assert len(offers) == 2


def test_prometheus_takes_its_configuration(promtool, tmp_path):
    (tmp_path / "alerts.yml").write_text((DEPLOY / "prometheus-alerts.yml").read_text())
    (tmp_path / "prometheus.yml").write_text((CONTAINER / "prometheus.yml").read_text())
    done = promtool("check", "config", str(tmp_path / "prometheus.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def fault_rows():
    """The rows of the faults in docs/troubleshooting.md as lists of cells: fault, sign, what happens, alert."""
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    table = [
        line.strip("|").split("|") for line in text.partition("\n## Faults\n")[2].splitlines() if line.startswith("| ")
    ]
    assert all(len(row) == 4 for row in table)
    return [[cell.strip() for cell in row] for row in table[1:]]


def deployed(name):
    return yaml.safe_load((DEPLOY / name).read_text())


def alerts():
    """The names of all alerts."""
    return {rule["alert"] for group in deployed("prometheus-alerts.yml")["groups"] for rule in group["rules"]}


# Of these rows nobody needs to do anything: limits hold, or who started a program reads why it ended.
MENDED = (
    "a switch is up to 30 ms late, confirms a second late, or resets counters",
    "a port that is configured by name gets another number, or an edge port is down",
    "a switch accepts bursts or rates within bounds only",
)


def test_each_fault_that_needs_a_person_has_an_alert_that_fires_in_a_test():
    rows = fault_rows()
    assert tuple(row[0] for row in rows if row[3] == "-") == MENDED
    named = {name for row in rows for name in re.findall(r"`(Dets\w+)`", row[3])}
    assert all(row[3] == "-" or re.fullmatch(r"`Dets\w+`(, `Dets\w+`)*", row[3]) for row in rows)
    rules = alerts()
    assert named <= rules
    tests = [one for case in deployed("prometheus-alerts-test.yml")["tests"] for one in case["alert_rule_test"]]
    assert {one["alertname"] for one in tests if one["exp_alerts"]} == rules
