"""Clients of the web UI, each with a stream of columns and a page's requests; also a scrape and another client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from experiments.bench.rest.clients import Streams, lower_priority
from experiments.machine.controller_process import ControllerProcess

WHY_EVERY_S, VNS_EVERY_S, SCRAPE_EVERY_S = 2.0, 10.0, 5.0  # as apps/ui/views and a usual Prometheus ask
CLIENT_REQUESTS_PER_S = 200  # what rest.requests_per_s allows unless configured


class Pages:
    """``pages`` open pages, inside a ``with``: a third shows the fabric, a third a VLAN, a third a VN.

    Prometheus scrapes at the same time, and a client sends requests at its rate limit. ``asked`` counts all requests.
    """

    def __init__(self, controller: ControllerProcess, vns: list[dict[str, Any]], pages: int) -> None:
        self.requests = 0
        self._controller = controller
        self._shown_vns = [vns[number * len(vns) // pages] for number in range(pages)]
        self._streams = Streams(controller.url, [self._query(number) for number in range(pages)])
        self._failed: list[BaseException] = []
        self._stopped = threading.Event()

    def __enter__(self) -> Pages:
        self._streams.__enter__()
        works = (
            (self._ask_why, WHY_EVERY_S),
            (self._ask_vns, VNS_EVERY_S),
            (lambda: self._ask("/metrics"), SCRAPE_EVERY_S),
            (self._ask_a_vn, 1.0 / CLIENT_REQUESTS_PER_S),
        )
        self._threads = [threading.Thread(target=self._again, args=work) for work in works]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self._streams.__exit__(*exception)
        if self._failed:
            raise self._failed[0]

    @property
    def received_bytes(self) -> int:
        """Bytes that the streams have sent to all pages."""
        return self._streams.received_bytes

    def _query(self, number: int) -> str:
        vn = self._shown_vns[number]
        place = f"{vn['vlan_vid']}/{vn['switch']}/{vn['port_no']}"
        of_vn = f"&vlan={vn['vlan_vid']}&switch={vn['switch']}&pairs_of={place}"
        return "?interval_ms=1000" + ("", f"&vlan={vn['vlan_vid']}", of_vn)[number % 3]

    def _again(self, work: Callable[[], None], every_s: float) -> None:
        """Do a page's work every ``every_s`` seconds until stopped; an error ends it and is kept."""
        lower_priority()
        due_s = time.monotonic()
        try:
            while not self._stopped.is_set():
                work()
                due_s = max(due_s + every_s, time.monotonic())
                self._stopped.wait(max(due_s - time.monotonic(), 0.0))
        except BaseException as error:
            self._failed.append(error)

    def _ask(self, path: str) -> None:
        self._controller.read(path)
        self.requests += 1

    def _ask_why(self) -> None:
        for vn in self._shown_vns[2::3]:
            self._ask(f"/v1/vns/{vn['vlan_vid']}/{vn['switch']}/{vn['port_no']}/explanations")

    def _ask_vns(self) -> None:
        for vn in self._shown_vns[1::3]:
            self._ask(f"/v1/vns?vlan={vn['vlan_vid']}")

    def _ask_a_vn(self) -> None:
        vn = self._shown_vns[self.requests % len(self._shown_vns)]
        self._ask(f"/v1/vns/{vn['vlan_vid']}/{vn['switch']}/{vn['port_no']}")
