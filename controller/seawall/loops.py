"""One control loop for each sending VN on each link that it uses (Seawall, section 4.3).

The entity that shares a link is the sending VN, whatever its number of receivers, flows or protocols. So all its pairs
through a link have one loop there, and the loop's rate is divided among them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.allocation.interface import BoolArray, FloatArray, IntArray
from controller.errors import ColumnError, InvalidValueError

# Paper, section 4.3: the part of a loop's rate that follows its destinations' received rates. Section 4.6 has "beta >
# .8".
BETA = 0.9


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops of some pairs. A *use* is one link of one pair.

    ``sender`` and ``link`` (loops,) identify each loop, sorted by sender, then link. ``offsets`` (entries + 1,) are the
    first uses of the pairs, ``sizes`` (pairs,) the number of uses of each, ``use_loop`` and ``use_link`` (uses,) the
    loop and the link of each use.
    """

    sender: IntArray
    link: IntArray
    offsets: IntArray
    sizes: IntArray
    use_loop: IntArray
    use_link: IntArray

    @classmethod
    def build(cls, sender: IntArray, offsets: IntArray, link: IntArray, links: int) -> Loops:
        """Return the loops of pairs, from VNs ``sender`` (pairs,) over ``link[offsets[e]:offsets[e + 1]]`` for pair e.

        ``links`` is the number of links of the fabric.

        Raises InvalidValueError if the columns do not fit each other, ColumnError for a link that does not exist.
        """
        if len(offsets) != len(sender) + 1 or offsets[-1] != len(link):
            raise InvalidValueError("offsets", len(offsets), f"must fit {len(sender)} entries and {len(link)} uses")
        bad = np.flatnonzero((link < 0) | (link >= links))
        if len(bad):
            raise ColumnError("link", int(bad[0]), int(link[bad[0]]), f"does not exist: there are {links}")
        sizes = np.diff(offsets)
        # A loop's key is its sender and link in one number; sorted keys give the order of the loops.
        keys, use_loop = np.unique(np.repeat(sender, sizes) * max(links, 1) + link, return_inverse=True)
        return cls(keys // max(links, 1), keys % max(links, 1), offsets, sizes, use_loop.reshape(-1), link)

    def __len__(self) -> int:
        return len(self.sender)

    @property
    def entries(self) -> int:
        """The number of pairs."""
        return len(self.offsets) - 1

    @property
    def entry_of_use(self) -> IntArray:
        """The pair of each use, (uses,)."""
        return np.repeat(np.arange(self.entries), self.sizes)

    def at_uses(self, by_entry: FloatArray) -> FloatArray:
        """Return (uses,) the value of each use's pair."""
        return np.repeat(by_entry, self.sizes)

    def sum(self, by_use: FloatArray | BoolArray) -> FloatArray:
        """Return (loops,) the sums over each loop's uses."""
        return np.bincount(self.use_loop, by_use, minlength=len(self)).astype(np.float64, copy=False)

    def sum_of_entries(self, by_entry: FloatArray | BoolArray) -> FloatArray:
        """Return (loops,) the sums over each loop's pairs."""
        return self.sum(self.at_uses(by_entry.astype(np.float64, copy=False)))

    def sum_of_loops(self, by_loop: FloatArray, links: int) -> FloatArray:
        """Return (links,) the sums over each link's loops."""
        return np.bincount(self.link, by_loop, minlength=links).astype(np.float64, copy=False)

    def lowest(self, by_use: FloatArray) -> FloatArray:
        """Return (pairs,) the lowest value of each pair's uses; infinite for a pair without uses."""
        lowest = np.full(self.entries, np.inf)
        used = self.sizes > 0
        if used.any():
            lowest[used] = np.minimum.reduceat(by_use, self.offsets[:-1][used])
        return lowest


def shares(loops: Loops, received_bps: FloatArray, active: BoolArray) -> FloatArray:
    """Return (uses,) p: the part of an entity's traffic through a link that goes to each of its destinations.

    ``received_bps`` and ``active`` (pairs,) are the rates through the meters and the active mask. The parts of each
    loop sum to 1, or to 0 without traffic and active destinations.

    Deviation: the paper divides by what all destinations of the entity received. Then the parts through one link do not
    sum to 1, and a tunnel over a separate uncongested link is limited to its part of another link. Here the sum is over
    the destinations behind the link. Choice: where nothing was received, each active destination has an equal part; the
    paper divides 0 by 0.
    """
    got_bps = loops.at_uses(received_bps)
    sum_bps = loops.sum(got_bps)[loops.use_loop]
    has_traffic = loops.at_uses(active.astype(np.float64))
    count = loops.sum(has_traffic)[loops.use_loop]
    equal = np.divide(has_traffic, count, out=np.zeros(len(has_traffic)), where=count > 0)
    result: FloatArray = np.divide(got_bps, sum_bps, out=equal, where=sum_bps > 0)
    return result


def entry_rates(
    loops: Loops, rate_bps: FloatArray, part: FloatArray, beta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the rate of each pair, (pairs,), and the rate that each link allows it, (uses,) (section 4.3).

    ``rate_bps`` and ``beta`` (loops,), ``part`` (uses,) from ``shares``. The part ``beta`` of a loop's rate is divided
    among its destinations by ``part``, the rest equally, so that each can show a higher demand. The rates of an
    entity's pairs through a link sum to at most its rate there.
    """
    ones = np.ones(len(loops.use_loop))
    count = loops.sum(ones)[loops.use_loop]
    within = beta[loops.use_loop]
    left_bps: FloatArray = rate_bps[loops.use_loop] * (within * part + (1.0 - within) / count)
    return loops.lowest(left_bps), left_bps
