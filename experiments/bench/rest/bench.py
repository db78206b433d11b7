"""``dets bench rest``: cost of REST for the control loop of a controller with many VNs.

The real application controls software switches that carry traffic (``bench.loop.switch_process``), in processes of
their own. Then clients run: all VNs are listed by pages, half of them get other limits in one transaction, metrics are
scraped, event streams are followed; first one after the other, then all at once. Then hostile clients run, and a switch
reconnects with full flow tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from experiments.bench.harness import Target, check_bounds, finished, missed_intervals
from experiments.bench.loop.bench import fabric_process
from experiments.bench.loop.switch_process import LoopPlan
from experiments.bench.rest.clients import TIMEOUT_S, Streams, change, list_vns, lower_priority
from experiments.bench.rest.hostile_clients import Attack
from experiments.bench.rest.pages import Pages
from experiments.machine.controller_process import ControllerProcess, free_ports
from experiments.machine.cpu_usage import withheld_s
from experiments.machine.process_runner import wait_until

SWITCHES, PORTS = 4, 5
VLANS, ENTRIES, CHANGES, STREAMS = 1_000, 10_000, 10_000, 50
PAGES = 10
INTERVAL_MS = 55
SECONDS = 20.0
SETTLE_S = 3.0
READY_TIMEOUT_S = 300.0
_LIMIT_BPS = 50_000_000


def run(
    vlans: Annotated[int, "How many VLANs, of 20 VNs each."] = VLANS,
    pairs: Annotated[int, "How many pairs are active."] = ENTRIES,
    changes: Annotated[int, "How many VNs get other limits in one transaction."] = CHANGES,
    streams: Annotated[int, "How many event streams are followed."] = STREAMS,
    seconds: Annotated[float, "How long the loop is measured in each phase."] = SECONDS,
) -> dict[str, Any]:
    """Cost of listing, changing, scraping and following by REST for the control loop."""
    check_bounds(vlans=(vlans, 1, 4094), pairs=(pairs, 1, 200_000), changes=(changes, 1, 20 * vlans))
    check_bounds(streams=(streams, 1, 120), seconds=(seconds, 1, 600))
    openflow_port, rest_port = free_ports(2)
    plan = LoopPlan(SWITCHES, pairs // SWITCHES, INTERVAL_MS, 0.1, openflow_port, rest_port, PORTS, _LIMIT_BPS, vlans)
    with TemporaryDirectory(prefix="dets-rest-") as name, fabric_process(plan, Path(name)) as tell:
        config = plan.configuration()
        config["rest"]["requests_per_s"] = 1_000
        with ControllerProcess(config, Path(name)) as controller:
            controller.rest_timeout_s = TIMEOUT_S
            controller.wait_ready(set(config["switches"]), READY_TIMEOUT_S)
            time.sleep(SETTLE_S)
            figures = measure(controller, changes, streams, seconds)
            attack = Attack(controller.url)
            figures["an attack"] = watched(controller, attack.run)
            figures["an attack"] |= {f"{kind} {status}": n for (kind, status), n in sorted(attack.answers.items())}
            figures["a switch comes back"] = watched(controller, lambda: come_back(controller, tell, seconds))
    missed = {name: phase["missed_intervals"] for name, phase in figures.items() if isinstance(phase, dict)}
    settings = {"switches": SWITCHES, "vlans": vlans, "vns": 20 * vlans, "pairs": pairs, "changes": changes}
    targets = [Target(f"intervals missed, {name}", value, "", 0) for name, value in missed.items()]
    return finished(
        "rest", figures, targets, {**settings, "streams": streams, "seconds": seconds, "interval_ms": INTERVAL_MS}
    )


def measure(controller: ControllerProcess, changes: int, streams: int, seconds: float) -> dict[str, Any]:
    """Run all phases; return what the loop did in each (``watched``), by the phase's title, and some counts.

    ``changes`` VNs, evenly spread, get half of their limit, then the whole again. ``streams`` event streams are
    followed. ``seconds`` is how long a phase lasts that only waits or repeats.
    """
    figures: dict[str, Any] = {"at rest": watched(controller, lambda: time.sleep(seconds))}
    vns: list[dict[str, Any]] = []
    figures["full listing"] = watched(controller, lambda: vns.extend(list_vns(controller.client)))
    figures["vns listed"] = len(vns)
    changed_vns = vns[:: max(len(vns) // changes, 1)][:changes]

    figures[f"change of {len(changed_vns)} VNs, until stored"] = watched(
        controller, lambda: change(controller.client, changed_vns, _LIMIT_BPS // 2)
    )
    figures[f"change of {len(changed_vns)} VNs, until confirmed"] = watched(
        controller,
        lambda: controller.client.wait_in_force(change(controller.client, changed_vns, _LIMIT_BPS), TIMEOUT_S),
    )
    scraped: list[str] = []
    figures["scrape"] = watched(controller, lambda: scraped.append(controller.read("/metrics")))
    figures["scraped bytes"] = len(scraped[0])
    figures["ten pages, a scrape every 5 s, a client at the rate limit"] = watch_pages(controller, vns, seconds)
    # Half of the streams cover all VLANs, half one VLAN's VNs.
    queries = [f"?vlan={number + 1}" if number % 2 else "" for number in range(streams)]
    with Streams(controller.url, queries) as follower:
        figures["streams"] = watched(controller, lambda: time.sleep(seconds))
        figures["everything"] = watched(controller, lambda: everything(controller, changed_vns, seconds))
        figures["states streamed"] = follower.states
        figures["streams open at the end"] = follower.open
    return figures


def watch_pages(controller: ControllerProcess, vns: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Keep ten web UIs open, scrape, and send requests at the client's rate limit; return what the loop did."""
    with Pages(controller, vns, PAGES) as pages:
        phase = watched(controller, lambda: time.sleep(seconds))
    per_page = pages.received_bytes / PAGES / phase["seconds"]
    return phase | {"requests": pages.requests, "kbytes_per_s_and_page": round(per_page / 1e3, 1)}


def come_back(controller: ControllerProcess, send_command: Callable[[str], None], seconds: float) -> None:
    """Disconnect a switch, wait until it is ready again and audited; ControllerError if it takes too long."""

    def is_ready() -> bool:
        return bool(controller.get("/v1/health")["switches"]["s1"] == "ready")

    send_command("cut 1")
    wait_until(lambda: not is_ready(), "the switch is reported disconnected", TIMEOUT_S, every_s=0.01)
    wait_until(is_ready, "the switch is ready", TIMEOUT_S)
    time.sleep(seconds)


def everything(controller: ControllerProcess, changed_vns: list[dict[str, Any]], seconds: float) -> None:
    """List, change and scrape repeatedly, at least once, each in a thread; raise any error of these."""
    deadline_s = time.monotonic() + seconds
    actions = (
        lambda: list_vns(controller.client),
        lambda: change(controller.client, changed_vns, _LIMIT_BPS // 2),
        lambda: change(controller.client, changed_vns, _LIMIT_BPS),
        lambda: controller.read("/metrics"),
    )

    def repeat(action: Callable[[], object]) -> None:
        lower_priority()
        action()
        while time.monotonic() < deadline_s:
            time.sleep(1.0)
            action()

    with ThreadPoolExecutor(len(actions)) as clients:
        list(clients.map(repeat, actions))


def watched(controller: ControllerProcess, work: Callable[[], object]) -> dict[str, Any]:
    """Do the work; return its duration, and what the control loop did during that time."""
    withheld_before_s, before, began_s = withheld_s(controller.pid), controller.get("/v1/loop"), time.monotonic()
    work()
    duration_s = time.monotonic() - began_s
    after = controller.get(f"/v1/loop?after={before['rounds']}")
    total_ms = after["total_ms"] or {}
    return {
        "seconds": round(duration_s, 3),
        "rounds": after["rounds"] - before["rounds"],
        "missed_intervals": missed_intervals(before, after | {"last": after["last"] or before["last"]}),
        "withheld_intervals": round((withheld_s(controller.pid) - withheld_before_s) * 1e3 / INTERVAL_MS, 1),
        "skipped_in_rounds": after["skipped_rounds"] - before["skipped_rounds"],
        "late_answers": after["poll_timeouts"] - before["poll_timeouts"],
        "round_ms_p50": total_ms.get("p50"),
        "round_ms_p99": total_ms.get("p99"),
        "round_ms_max": total_ms.get("max"),
        **{f"{part}_max": (after[part] or {}).get("max") for part in ("poll_ms", "step_ms", "push_ms")},
    }
