"""Clients of the web UI, each with a stream of columns and a page's requests; also a scrape and another client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from experiments.bench.rest.clients import Streams, lower_priority
from experiments.machine.controller_process import ControllerProcess

EXPLANATIONS_INTERVAL_S, VNS_INTERVAL_S, SCRAPE_INTERVAL_S = (
    2.0,
    10.0,
    5.0,
)  # as apps/ui/views and a usual Prometheus ask
CLIENT_REQUESTS_PER_S = 200  # what rest.requests_per_s allows unless configured


class Pages:
    """``pages`` open pages, inside a ``with``: a third shows the fabric, a third a VLAN, a third a VN.

    Prometheus scrapes at the same time, and a client sends requests at its rate limit. ``requests`` counts them all.
    """

    def __init__(self, controller: ControllerProcess, vns: list[dict[str, Any]], pages: int) -> None:
        self.requests = 0
        self._controller = controller
        self._shown_vns = [vns[number * len(vns) // pages] for number in range(pages)]
        self._streams = Streams(controller.url, [self._query(number) for number in range(pages)])
        self._stopped = threading.Event()

    def __enter__(self) -> Pages:
        self._streams.__enter__()
        works: dict[Callable[[], None], float] = {
            self._request_explanations: EXPLANATIONS_INTERVAL_S,
            self._request_vns: VNS_INTERVAL_S,
            lambda: self._request("/metrics"): SCRAPE_INTERVAL_S,
            self._request_one_vn: 1.0 / CLIENT_REQUESTS_PER_S,
        }
        self._threads = ThreadPoolExecutor(len(works))
        self._repeated = [self._threads.submit(self._repeat, work, every_s) for work, every_s in works.items()]
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._threads.shutdown()
        self._streams.__exit__(*exception)
        for repeated in self._repeated:
            repeated.result()

    @property
    def received_bytes(self) -> int:
        """Bytes that the streams have sent to all pages."""
        return self._streams.received_bytes

    def _query(self, number: int) -> str:
        """Return the query of a page's stream: of the fabric, of a VLAN, or of a VN with its pairs."""
        vn = self._shown_vns[number]
        vn_path = f"{vn['vlan_vid']}/{vn['switch']}/{vn['port_no']}"
        vn_query = f"&vlan={vn['vlan_vid']}&switch={vn['switch']}&pairs_of={vn_path}"
        return "?interval_ms=1000" + ("", f"&vlan={vn['vlan_vid']}", vn_query)[number % 3]

    def _repeat(self, work: Callable[[], None], every_s: float) -> None:
        """Do a page's work every ``every_s`` seconds until stopped."""
        lower_priority()
        due_s = time.monotonic()
        while not self._stopped.is_set():
            work()
            due_s = max(due_s + every_s, time.monotonic())
            self._stopped.wait(max(due_s - time.monotonic(), 0.0))

    def _request(self, path: str) -> None:
        """Request a REST resource and count the request."""
        self._controller.read(path)
        self.requests += 1

    def _request_explanations(self) -> None:
        """Request the explanations of all VNs that pages show."""
        for vn in self._shown_vns[2::3]:
            self._request(f"/v1/vns/{vn['vlan_vid']}/{vn['switch']}/{vn['port_no']}/explanations")

    def _request_vns(self) -> None:
        """Request the VNs of all VLANs that pages show."""
        for vn in self._shown_vns[1::3]:
            self._request(f"/v1/vns?vlan={vn['vlan_vid']}")

    def _request_one_vn(self) -> None:
        """Request one VN, another one each time."""
        vn = self._shown_vns[self.requests % len(self._shown_vns)]
        self._request(f"/v1/vns/{vn['vlan_vid']}/{vn['switch']}/{vn['port_no']}")
