"""``dets bench page``: what the live page costs a browser, on a controller with many VLANs.

The fabric is that of ``dets bench rest``. Debian's chromium shows the page, headless, on the same machine; what it
tells of its own paints, tasks and memory is compared with the budgets of the page.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from controller.errors import DetsError, InvalidValueError
from experiments.bench.loop.bench import fabric_process
from experiments.bench.loop.loop_fabric import LoopPlan
from experiments.bench.rest.bench import ENTRIES, INTERVAL_MS, PORTS, SETTLE_S, SWITCHES, VLANS
from experiments.bench.rest.clients import Operator
from experiments.machine.controller_process import ControllerProcess, free_ports
from experiments.machine.processors import machine

SECONDS = 30.0
_LIMIT_BPS = 50_000_000
_WATCH = """
window.longTasks = [];
new PerformanceObserver((list) => longTasks.push(...list.getEntries().map((one) => one.duration)))
  .observe({ entryTypes: ["longtask"] });
"""
_FIGURES = """() => {
  const loads = performance.getEntriesByType("resource").filter((one) => one.name.includes("/ui/"));
  const paints = performance.getEntriesByName("dets-paint").map((one) => one.duration).sort((a, b) => a - b);
  const at = (part) => paints[Math.min(paints.length - 1, Math.floor(part * paints.length))];
  return {
    first_paint_ms: performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
    page_kbytes: (loads.reduce((sum, one) => sum + one.decodedBodySize, 0)
      + performance.getEntriesByType("navigation")[0].decodedBodySize) / 1000,
    states: paints.length, paint_ms_p50: at(0.5), paint_ms_p95: at(0.95), paint_ms_max: paints[paints.length - 1],
    long_tasks: longTasks.length, long_task_ms_max: Math.max(0, ...longTasks),
    elements: document.getElementsByTagName("*").length, heap_mbytes: performance.memory.usedJSHeapSize / 1e6,
  };
}"""
_SCROLL = """() => new Promise((done) => {
  const box = document.querySelector(".virtual"), began = performance.now();
  let frames = 0;
  const step = () => {
    frames += 1;
    box.scrollTop += 60;
    if (performance.now() - began < 2000) requestAnimationFrame(step);
    else done(frames / ((performance.now() - began) / 1000));
  };
  requestAnimationFrame(step);
})"""


class NoBrowserError(DetsError):
    """There is no browser, or nothing to drive it with."""


def run(vlans: int = VLANS, entries: int = ENTRIES, seconds: float = SECONDS) -> dict[str, Any]:
    """Measure the fabric's view with ``vlans`` VLANs of 20 VNs and ``entries`` pairs for ``seconds``.

    Raises InvalidValueError for numbers that no fabric can have, NoBrowserError.
    """
    for name, value, most in (("vlans", vlans, 4094), ("entries", entries, 200_000), ("seconds", seconds, 600)):
        if not 1 <= value <= most:
            raise InvalidValueError(name, value, f"is outside 1 to {most}")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        chromium = None
    if chromium is None:
        raise NoBrowserError("no chromium, or no playwright: as root, make setup installs both")
    openflow_port, rest_port = free_ports(2)
    plan = LoopPlan(SWITCHES, entries // SWITCHES, INTERVAL_MS, 0.1, openflow_port, rest_port, PORTS, _LIMIT_BPS, vlans)
    with TemporaryDirectory(prefix="dets-page-") as name, fabric_process(plan, Path(name)):
        config = plan.configuration()
        with ControllerProcess(config, Path(name)) as controller, sync_playwright() as playwright:
            Operator(controller.rest_url).wait_ready()
            time.sleep(SETTLE_S)
            arguments = ["--enable-precise-memory-info", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
            browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.add_init_script(_WATCH)
            page.goto(f"{controller.rest_url}/ui")
            page.locator(".virtual a").first.wait_for()
            page.wait_for_timeout(2000)
            begun = page.evaluate(_FIGURES)
            page.wait_for_timeout(1000 * seconds)
            figures = page.evaluate(_FIGURES)
            figures["heap_growth_mbytes"] = figures["heap_mbytes"] - begun["heap_mbytes"]
            figures["scrolling_frames_per_s"] = page.evaluate(_SCROLL)
            browser.close()
    return {
        "settings": {"vlans": vlans, "entries": entries, "seconds": seconds, **machine()},
        "figures": {key: round(value, 2) for key, value in figures.items()},
        "targets": [_target(figures, *budget) for budget in _BUDGETS],
    }


_BUDGETS = (
    ("first_paint_ms", "ms", 1000.0),
    ("page_kbytes", "kB", 200.0),
    ("paint_ms_p95", "ms", 8.0),
    ("paint_ms_max", "ms", 50.0),
    ("heap_growth_mbytes", "MB", 5.0),
    ("elements", "", 1500.0),
)


def _target(figures: dict[str, float], name: str, unit: str, most: float) -> dict[str, Any]:
    value = figures[name]
    return {"name": name, "value": round(value, 2), "unit": unit, "target": most, "met": value <= most}
