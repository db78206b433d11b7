"""Pictures of the web UI for the documentation, light and dark: ``make screenshots``.

They show the tour's fabric, controlled by ``dets run``, while two tenants send. Needs chromium and playwright.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from controller.config.loader import load_config
from experiments.machine.controller_process import ControllerProcess, free_ports
from experiments.wire.lab import Lab, parse_offer

OFFERS = ("10/s1:1/s3:1/300M", "10/s2:1/s3:1/250M", "20/s2:2/s3:2/200M", "20/s1:2/s2:2/300M")
CHANGE_AFTER_S, LOOK_AFTER_S = 25.0, 70.0
_WIDTH, _HEIGHT = 1280, 640


def configuration() -> dict[str, Any]:
    """Return three edge switches on one core switch, two tenants at each port."""
    openflow_port, rest_port = free_ports(2)

    def ports() -> dict[int, Any]:
        return {port: {"capacity": "1G", "trunk": [10, 20]} for port in (1, 2, 3)}

    return {
        "openflow": {"listen": f"127.0.0.1:{openflow_port}"},
        "rest": {"listen": f"127.0.0.1:{rest_port}"},
        "vlans": {
            10: {"name": "blue", "send_limit": "400M", "receive_limit": "400M"},
            20: {"name": "red", "send_limit": "500M", "receive_limit": "500M"},
        },
        "switches": {
            **{f"s{number}": {"dpid": number, "ports": ports()} for number in (1, 2, 3)},
            "c1": {"dpid": 9, "ports": {}},
        },
        "links": [{"between": [f"s{number}:9", f"c1:{number}"], "capacity": "3G"} for number in (1, 2, 3)],
    }


def take(url: str, folder: Path) -> list[Path]:
    """Take a picture of the fabric and of a VN in light and dark."""
    from playwright.sync_api import sync_playwright

    made = []
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme=scheme)
            for name, view in (("fabric", "#/"), ("vn", "#/vn/10/s3/1")):
                page.goto(f"{url}/ui{view}")
                page.wait_for_timeout(4000)
                path = folder / f"page-{name}-{scheme}.png"
                page.screenshot(path=path)
                made.append(path)
            page.close()
        browser.close()
    return made


def main(folder: Path) -> None:
    """Run the fabric, change a limit, and take the pictures."""
    with TemporaryDirectory(prefix="dets-screenshots-") as name:
        document = configuration()
        with ControllerProcess(document, Path(name)) as controller:
            config = load_config(controller.config_path)
            with Lab(config, [parse_offer(text, config) for text in OFFERS]) as lab:
                lab.run(print, CHANGE_AFTER_S)
                controller.get("/v1/series?vn=10/s3/1")
                lab.run(print, LOOK_AFTER_S / 2)
                controller.patch("/v1/vns/10/s3/1", receive_limit_bps=250_000_000)
                lab.run(print, LOOK_AFTER_S / 2)
                print(*take(controller.url, folder), sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
