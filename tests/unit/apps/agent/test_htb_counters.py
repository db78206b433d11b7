"""What pairs sent and dropped, from counters that HTB keeps in packets and in 32 bits."""

from __future__ import annotations

import numpy as np
import pytest

from apps.agent import htb
from apps.agent.classifier import TAG_BYTES
from apps.agent.netlink import ClassCounters
from apps.agent.shaper import ShapedPair

PAIR, OTHER = ShapedPair(10, b"\2" * 6), ShapedPair(10, b"\4" * 6)
FRAME_BYTES = 1000


class FakeNetlink:
    """The classes of an interface by minor number: bytes, packets, dropped packets, queued bytes."""

    def __init__(self) -> None:
        self.classes: dict[int, tuple[int, int, int, int]] = {}

    def change(self, _requests) -> None:
        pass

    def class_counters(self, _interface: int) -> ClassCounters:
        rows = [(minor, *counts) for minor, counts in self.classes.items()]
        return ClassCounters(*np.array(rows, dtype=np.int64).reshape(-1, 5).T)


class FakeMap:
    """A classifier's map in which nothing is looked up."""

    def __init__(self, *_sizes: int) -> None:
        pass

    def put(self, _key: bytes, _minor: int) -> None:
        pass

    def delete(self, _key: bytes) -> None:
        pass


class Classes:
    """A shaper with a class for PAIR, and the class's counters."""

    def __init__(self) -> None:
        self.shaper = htb.HtbShaper("eth0", [10], 10**9)
        self.shaper.set_rates([(PAIR, 10**8)])
        self.octets = self.packets = self.dropped = 0

    def count(self, packets: int, dropped: int = 0, frame_bytes: int = FRAME_BYTES) -> tuple[int, int]:
        """Send and drop packets; return the bytes that the pair has sent and dropped since the start."""
        self.octets += packets * frame_bytes
        self.packets, self.dropped = (self.packets + packets) % 2**32, (self.dropped + dropped) % 2**32
        minor = self.shaper._minor_of[PAIR]
        self.shaper._netlink.classes = {minor: (self.octets, self.packets, self.dropped, 0)}
        return self.read()

    def read(self, pair: ShapedPair = PAIR) -> tuple[int, int]:
        counters = self.shaper.counters([pair])
        return int(counters.sent_octets[0]), int(counters.dropped_octets[0])


@pytest.fixture
def classes(monkeypatch: pytest.MonkeyPatch) -> Classes:
    monkeypatch.setattr(htb, "Netlink", FakeNetlink)
    monkeypatch.setattr(htb, "HashMap", FakeMap)
    monkeypatch.setattr(htb, "claim_root", lambda *_, **__: 1)
    monkeypatch.setattr(htb.HtbShaper, "_build", lambda *_: None)
    return Classes()


def test_dropped_bytes_are_of_the_frames_that_were_sent_meanwhile(classes) -> None:
    assert classes.count(100, 10) == (100 * (FRAME_BYTES + TAG_BYTES), 10 * (FRAME_BYTES + TAG_BYTES))
    assert classes.count(0)[1] == 10 * (FRAME_BYTES + TAG_BYTES)


@pytest.mark.parametrize("sizes", [(60, 1500), (1500, 60)])
def test_frames_of_another_size_drop_nothing_by_themselves(classes, sizes) -> None:
    before = classes.count(10**6, 10**6, sizes[0])
    for _ in range(5):
        assert classes.count(500, 0, sizes[1])[1] == before[1]


def test_counters_that_wrap_around_count_on(classes) -> None:
    before = classes.count(2**32 - 5, 2**32 - 3)
    after = classes.count(10, 7)
    assert after[0] - before[0] == 10 * (FRAME_BYTES + TAG_BYTES)
    assert after[1] - before[1] == 7 * (FRAME_BYTES + TAG_BYTES)


def test_a_class_made_again_counts_from_zero(classes) -> None:
    classes.count(100, 50)
    classes.octets = classes.packets = classes.dropped = 0
    assert classes.count(10, 1) == (10 * (FRAME_BYTES + TAG_BYTES), FRAME_BYTES + TAG_BYTES)


def test_the_next_pair_with_the_number_of_a_class_starts_at_zero(classes) -> None:
    classes.count(100, 50)
    classes.shaper._netlink.classes = {}
    classes.shaper.remove([PAIR])
    classes.read()
    classes.shaper.set_rates([(OTHER, 10**8)])
    classes.shaper._netlink.classes = {classes.shaper._minor_of[OTHER]: (2000 * FRAME_BYTES, 2000, 1, 0)}
    assert classes.read(OTHER) == (2000 * (FRAME_BYTES + TAG_BYTES), FRAME_BYTES + TAG_BYTES)


def test_a_pair_without_a_class_has_counted_nothing(classes) -> None:
    classes.count(100, 50)
    assert classes.read(OTHER) == (0, 0)
