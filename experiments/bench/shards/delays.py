"""How long a message between nodes takes: drawn from what was measured on loopback, by the links that nodes use.

``python -m experiments.bench.shards.delays`` measures again (it needs pyzmq, not root) and prints DELAYS_MS. So many
nodes as the model has peers say something to one node at the same moment, as nodes do whose intervals coincide: a
message waits for the others' decryption as well.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from controller.columns import FloatArray
from experiments.machine.controller_process import free_ports

if TYPE_CHECKING:  # not everybody has ZeroMQ
    from apps.cluster.links import Links

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
DELAYS_MS = {
    1_000: (0.06, 0.94, 1.17, 1.4, 1.68, 1.93, 3.82, 5.78),
    20_000: (0.12, 1.48, 2.06, 2.7, 3.49, 5.04, 10.19, 13.94),
    200_000: (5.31, 10.7, 12.31, 15.21, 18.73, 21.44, 26.03, 31.21),
}
"""by the octets of a message: the QUANTILES of what was measured, on two cores that all 64 ends shared"""
SPEAKERS, TURNS = 63, 40
_CONNECT_S, _MOST_S = 20.0, 5.0


def draw(random: np.random.Generator, octets: int) -> float:
    """Return how long a message of so many octets takes, seconds; sizes in between lie in between."""
    sizes = sorted(DELAYS_MS)
    at = random.random()
    by_size = [float(np.interp(at, QUANTILES, DELAYS_MS[size])) for size in sizes]
    return float(np.interp(octets, sizes, by_size)) / 1e3


def measure(octets: int, speakers: int = SPEAKERS, turns: int = TURNS) -> FloatArray:
    """Return how long messages of so many octets took, ms, (speakers x turns,): one at once from each speaker."""
    from apps.cluster.links import Links

    ports = free_ports(speakers + 1)
    hearer, *others = [Links(f"127.0.0.1:{port}") for port in ports]
    try:
        hearer.set_peers({str(n): (f"127.0.0.1:{ports[n + 1]}", one.public_key) for n, one in enumerate(others)})
        for one in others:
            one.set_peers({"hearer": (f"127.0.0.1:{ports[0]}", hearer.public_key)})
        _connect(hearer, others)
        return np.concatenate([_turn(hearer, others, bytes(octets)) for _ in range(turns)])
    finally:
        for one in (hearer, *others):
            one.close()


def _connect(hearer: Links, others: list[Links]) -> None:
    deadline_s, missing = time.monotonic() + _CONNECT_S, {str(n): one for n, one in enumerate(others)}
    while missing:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{len(missing)} of {len(others)} links do not connect within {_CONNECT_S:g} s")
        for one in missing.values():
            one.send("hearer", b"hello")
        for name, _ in hearer.receive():
            missing.pop(name, None)
        time.sleep(0.01)
    time.sleep(0.2)
    while hearer.receive():  # what was said twice
        time.sleep(0.05)


def _turn(hearer: Links, others: list[Links], data: bytes) -> FloatArray:
    began_s, took_ms = np.zeros(len(others)), list[float]()
    for number, one in enumerate(others):
        began_s[number] = time.monotonic()
        assert one.send("hearer", data)
    deadline_s = time.monotonic() + _MOST_S
    while len(took_ms) < len(others) and time.monotonic() < deadline_s:
        for name, _ in hearer.receive(1):
            took_ms.append(1e3 * (time.monotonic() - began_s[int(name)]))
    return np.array(took_ms)


def main() -> None:
    """Measure, and print the table."""
    for octets in (1_000, 20_000, 200_000):
        took_ms = measure(octets)
        print(f"    {octets}: {tuple(round(float(one), 2) for one in np.quantile(took_ms, QUANTILES))},", flush=True)


if __name__ == "__main__":
    main()
