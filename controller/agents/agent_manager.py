"""Agents and the control loop: their reports become readings, effective limits become Set Rate and Keep Alive.

In every interval:

1) Received reports are written to the rows of the pairs that they name. A report counts only for pairs that send from
   the port at which it was received.
2) A pair is *shaped* once its agent reports the rate that the agent was sent. The rates of the pair then come from
   reports; the meter of the pair, if any, is a backstop.
3) After the step each agent is sent the rates of its pairs (``controller.agents.agent_outbox``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from controller.agents.addressable_pairs import AddressablePairs
from controller.agents.agent_counters import AgentCounters
from controller.agents.agent_outbox import AgentOutbox, AgentRates
from controller.agents.agent_port import DISTRUST_S, NOT_TRUSTED, REFUSED_CAUSES, TIMEOUT_INTERVALS, TOO_MANY, AgentPort
from controller.agents.control_frames import ControlFrame, FrameRejection, Opcode, ReportFlag, decode, mac_numbers
from controller.agents.verification import Verification
from controller.central.fabric_state import FabricState
from controller.central.no_agents import NoAgents
from controller.columns import NEW_ROW, BoolArray, FloatArray, IntArray, reindex
from controller.events import EventKind
from controller.fabric.agent_ports import AgentFrame, AgentSeen, AgentState, Shaping
from controller.fabric.pair_table import find_pairs
from controller.fabric.topology import PortId
from controller.forwarding.pairs import Pair
from controller.metering.counters import MeterReadings, Readings, columns_of
from controller.metering.enforcement import RATE_STEP_BPS, whole_rates

# Allowed frames of a port per interval, as a multiple of what an agent sends in frames of the shortest kind.
FRAMES_FACTOR = 4
# Maximum reports of one pair, and of unknown pairs, in an interval; further ones are ignored.
MAX_REPORTS, MAX_UNKNOWN = 3, 256
# Intervals without a report after which a pair is sent to its agent again.
STALE_INTERVALS = 2.5


class AgentManager(NoAgents):
    """All agents of a fabric that has agents. ``epoch`` is random at the controller's start."""

    def __init__(self, fabric: FabricState, epoch: int) -> None:
        super().__init__(fabric, epoch)
        self.ports: dict[PortId, AgentPort] = {
            PortId(switch.dpid, port.port_no): AgentPort(port)
            for switch, port in fabric.config.ports()
            if port.agent != "none"
        }
        self._speech = AgentOutbox(fabric.config, fabric.vns, self.ports, epoch)
        self._agents = list(self.ports.values())
        self._number_of_vn = self._ports_of_vns()
        self._received: list[tuple[int, ControlFrame]] = []  # Traffic Reports of this interval, with the VN's row
        self._entries = fabric.state.entries
        self._reports = AgentCounters.initial(len(self._entries))
        self._verification = Verification.initial(len(self._entries))
        self._shaped = np.zeros(len(self._entries), dtype=np.bool_)
        # The send limit that each VN's agent reported, and when; the rate that agents must apply to each pair.
        self._own_kbps = np.full(len(fabric.vns), -1, dtype=np.int64)
        self._own_heard_s = np.full(len(fabric.vns), -math.inf)
        self._meant_kbps = np.full(len(self._entries), -1, dtype=np.int64)
        self._addressable: AddressablePairs | None = None
        self._addressable_for: int | None = None  # the count of host changes at that time
        self._unknown: dict[tuple[int, bytes, bytes], None] = {}  # reported pairs that do not exist: VN, both addresses
        self._stepped_s: float | None = None

    def _ports_of_vns(self) -> IntArray:
        """Return for each VN, shape (vns,), the number of the agent port that the VN is behind; -1 for none."""
        vns = self._fabric.vns
        found = np.full(len(vns), -1, dtype=np.int64)
        for number, (port, agent) in enumerate(self.ports.items()):
            for vid in agent.port.vlan_vids:
                row = vns.row_of(vid, *port)
                if row is not None:
                    found[row] = number
        return found

    def _agent_of(self, vn: int) -> AgentPort | None:
        number = int(self._number_of_vn[vn])
        return None if number < 0 else self._agents[number]

    def inherit(self, before: NoAgents) -> None:
        """Take over the state of the agents at ports that ``before`` had as well.

        An agent whose mode has changed begins again, and only its frames are numbered on.
        """
        super().inherit(before)
        self._speech.epoch = self.epoch
        if isinstance(before, AgentManager):
            self._stepped_s = before._stepped_s
            self._inherit_pairs(before)
        known_ports = before.ports if isinstance(before, AgentManager) else {}
        for port, agent in self.ports.items():
            was = known_ports.get(port)
            if was is not None and was.mode == agent.mode:
                known = {name: getattr(was, name) for name in AgentPort.__dataclass_fields__ if name != "port"}
                for name, value in known.items():
                    setattr(agent, name, value)
            elif was is not None:
                agent.sequence = was.sequence
            if agent.distrusted_s is not None:
                self._fabric.network.allow_agent_frames(port, False)

    def _inherit_pairs(self, before: AgentManager) -> None:
        """Take over what agents have reported of the VNs and pairs that ``before`` had as well."""
        vns, entries = self._fabric.vns, self._entries
        old_vn = vns.rows_in(before._fabric.vns)
        self._own_kbps = reindex(before._own_kbps, old_vn, -1)
        self._own_heard_s = reindex(before._own_heard_s, old_vn, -math.inf)
        before._follow_entries()
        old_row = find_pairs(before._entries, old_vn[entries.sender], old_vn[entries.receiver])
        self._reports, self._verification = before._reports.reindexed(old_row), before._verification.reindexed(old_row)
        self._shaped = reindex(before._shaped, old_row, False)
        self._meant_kbps = reindex(before._meant_kbps, old_row, -1)
        new_vn = before._fabric.vns.rows_in(vns)
        self._received = [(int(new_vn[row]), frame) for row, frame in before._received if new_vn[row] != NEW_ROW]

    # -- what is known

    def agent_status(self, port: PortId) -> AgentSeen | None:
        """Return the agent behind an edge port, None where there is none."""
        agent = self.ports.get(port)
        return None if agent is None else agent.status(-math.inf if self._stepped_s is None else self._stepped_s)

    def shaping(self) -> list[Shaping]:
        """Return who shapes each pair: an agent or a meter."""
        self._follow_entries()
        metered = self._fabric.state.entries.meter_id > 0
        return [
            (Shaping.BOTH if has_meter else Shaping.AGENT) if by_agent else Shaping.METER
            for by_agent, has_meter in zip(self._shaped.tolist(), metered.tolist(), strict=True)
        ]

    def is_covered(self, sender: int) -> bool:
        """Return whether the agent of a VN (row) is present, so that a pair of the VN can do without a meter."""
        agent = self._agent_of(sender)
        return agent is not None and agent.present

    def is_sole_shaper(self, sender: int) -> bool:
        """Return whether pairs of a VN (row) need no meter, because the VN's agent is present and trusted."""
        agent = self._agent_of(sender)
        return agent is not None and agent.present and agent.mode == "trust"

    def counts(self) -> dict[str, int]:
        """Return the number of agents in each state."""
        found = Counter(agent.state for agent in self.ports.values())
        return {str(state): found[state] for state in AgentState}

    def refused(self) -> Counter[str]:
        """Return the number of rejected frames by cause."""
        found = Counter(dict.fromkeys(REFUSED_CAUSES, 0))
        for refused in (super().refused(), *(agent.refused for agent in self.ports.values())):
            found.update(refused)
        return found

    # -- frames

    def receive_frame(self, port: PortId, octets: bytes, now_s: float) -> bool:
        """Process a frame that was received at an edge port; never raises, whatever the bytes.

        Return whether the frame was processed: frames beyond the port's allowance, and of distrusted agents, are not.
        """
        agent = self.ports.get(port)
        if agent is None:
            return super().receive_frame(port, octets, now_s)
        if agent.distrusted_s is not None:
            agent.count_rejected(NOT_TRUSTED)
            return False
        agent.allowance -= 1
        if agent.allowance < 0:
            agent.count_rejected(TOO_MANY)
            return False
        frame = decode(octets)
        if isinstance(frame, FrameRejection):
            agent.count_rejected(frame.cause)
            return True
        vid = agent.accepts(frame, now_s)
        if vid is None:
            return True
        if agent.state in (AgentState.ABSENT, AgentState.DISTRUSTED):
            agent.state = AgentState.HELLO
            self._fabric.note(EventKind.AGENT_UP, f"{self._name(port)}: agent connected", now_s)
        if frame.opcode is Opcode.TRAFFIC_REPORT:
            agent.state = AgentState.TRUSTED
            row = self._fabric.vns.row_of(vid, *port)
            if row is not None:
                self._received.append((row, frame))
        return True

    def drain_frames(self) -> list[AgentFrame]:
        """Return the frames to send, and clear them."""
        return self._speech.drain()

    # -- the interval

    def meter_changes(self) -> tuple[list[Pair], list[Pair]]:
        """Return the pairs that no longer need their meters, and the pairs without a meter that need one again."""
        entries = self._fabric.state.entries
        self._follow_entries()
        trusted, present = self._by_vn(lambda agent: agent.mode == "trust"), self._by_vn(lambda agent: agent.present)
        metered = entries.meter_id > 0
        free = metered & self._shaped & trusted[entries.sender] & present[entries.sender]
        bare = ~metered & ~present[entries.sender]
        return self._pairs(free), self._pairs(bare)

    def before_step(self, readings: Readings, now_s: float) -> tuple[Readings, BoolArray | None]:
        """Replace readings by reports; return the readings, and the mask of the pairs that agents shape."""
        columns = columns_of(readings)
        self._follow_entries()
        self._check_floods(now_s)
        self._check_lost(now_s)
        self._apply_reports(now_s)
        self._decide_shaped(now_s)
        self._verify(columns, now_s)
        self._reports.override_readings(columns, self._shaped)
        return columns, self._shaped

    def after_step(self, rate_bps: FloatArray, now_s: float) -> None:
        """Send each agent the rates ``rate_bps`` (pairs,) of its pairs, and the maximum of each of its sending VNs.

        Also answer hellos, and deactivate the reported pairs that do not exist.
        """
        self._meant_kbps = np.rint(whole_rates(rate_bps) / RATE_STEP_BPS).astype(np.int64)
        addressed = self._addressable_pairs()
        self._refill(addressed)
        for port, agent in self.ports.items():
            if agent.answer_hello and agent.present:
                agent.answer_hello = False
                self._speech.hello(port, agent, now_s)
        present = self._by_vn(lambda agent: agent.present)
        heard_since_s = now_s - STALE_INTERVALS * self._fabric.config.interval_s
        mine = present[addressed.sender]
        row, sender, sender_mac, receiver_mac = (
            column[mine] for column in (addressed.row, addressed.sender, addressed.sender_mac, addressed.receiver_mac)
        )
        reports = self._reports
        reported = reports.received_s[row] >= heard_since_s
        pairs = AgentRates(sender, sender_mac, receiver_mac, self._meant_kbps[row], reports.limit_kbps[row], reported)
        # A VN's own maximum is a row whose sender and receiver have the same address; ``reported`` now is of these.
        senders, first = np.unique(sender, return_index=True)
        most_kbps = np.rint(whole_rates(self._fabric.vns.send_max_bps[senders]) / RATE_STEP_BPS).astype(np.int64)
        macs, reported = sender_mac[first], self._own_heard_s[senders] >= heard_since_s
        self._speech.send_rates(
            AgentRates(senders, macs, macs, most_kbps, self._own_kbps[senders], reported), pairs, now_s
        )
        unknown, self._unknown = self._unknown, {}
        self._speech.deactivate(unknown, now_s)

    # -- inside

    def _by_vn(self, is_so: Callable[[AgentPort], bool]) -> BoolArray:
        """Return the mask of the VNs (rows) whose agent meets the condition."""
        # The last entry is for VNs without an agent.
        answers = np.array([*map(is_so, self._agents), False], dtype=np.bool_)
        found: BoolArray = answers[self._number_of_vn]
        return found

    def _refill(self, pairs_of_agents: AddressablePairs) -> None:
        """Set how many frames each port may send in the next interval, by the number of its VNs and pairs."""
        pairs = np.bincount(self._number_of_vn[pairs_of_agents.sender], minlength=len(self._agents))
        for agent, count in zip(self._agents, pairs.tolist(), strict=True):
            agent.most_frames = FRAMES_FACTOR * (count + len(agent.port.vlan_vids) + 1)
            agent.allowance = agent.most_frames

    def _name(self, port: PortId) -> str:
        return self._fabric.port_name(port)

    def _follow_entries(self) -> None:
        """Reindex all columns to the pair table, which is sorted by (receiver, sender)."""
        now, before = self._fabric.state.entries, self._entries
        if now is before and len(self._shaped) == len(now):
            return
        old_row = find_pairs(before, now.sender, now.receiver)
        self._reports, self._verification = self._reports.reindexed(old_row), self._verification.reindexed(old_row)
        for name, initial in (("_shaped", False), ("_meant_kbps", -1)):
            column = getattr(self, name)
            column = column if len(column) == len(before) else np.full(len(before), initial, dtype=column.dtype)
            setattr(self, name, reindex(column, old_row, initial))
        self._entries = now

    def _addressable_pairs(self) -> AddressablePairs:
        """Return the pairs that frames to agents can name; they change with the pair table and the known hosts."""
        entries, vns, network = self._fabric.state.entries, self._fabric.vns, self._fabric.network
        if (
            self._addressable is None
            or self._addressable.entries is not entries
            or self._addressable_for != network.host_changes
        ):
            behind = self._number_of_vn >= 0
            self._addressable = AddressablePairs.select(
                vns, entries, behind, network.known.count, network.known.lowest_mac
            )
            self._addressable_for = network.host_changes
        return self._addressable

    def _check_floods(self, now_s: float) -> None:
        """Let switches drop the frames of ports that send too many, before frames of other ports are delayed.

        A switch without meters sends all such frames up, and all its ports share one queue and one connection.
        """
        before_s = now_s if self._stepped_s is None else self._stepped_s
        elapsed_intervals = max(now_s - before_s, 0.0) / self._fabric.config.interval_s
        for port, agent in self.ports.items():
            if agent.distrusted_s is not None:
                if now_s - agent.distrusted_s >= DISTRUST_S:
                    agent.distrusted_s = None
                    self._fabric.network.allow_agent_frames(port, True)
            elif agent.exceeds_allowance(elapsed_intervals):
                self._distrust(port, agent, "sends too many control frames", now_s)

    def _distrust(self, port: PortId, agent: AgentPort, why: str, now_s: float) -> None:
        """Stop using an agent, and let its switch drop the agent's frames."""
        agent.state, agent.distrusted_s, agent.excess = AgentState.DISTRUSTED, now_s, 0.0
        self._fabric.network.allow_agent_frames(port, False)
        text = f"{self._name(port)}: its host's agent {why}; its frames are dropped for {DISTRUST_S:g} s"
        self._fabric.note(EventKind.AGENT_DISTRUSTED, text, now_s)

    def _check_lost(self, now_s: float) -> None:
        """Note agents that have sent no frame for TIMEOUT_INTERVALS; update the ports with an agent."""
        there = frozenset(port for port, agent in self.ports.items() if agent.present)
        if there != self._fabric.agent_ports:
            self._fabric.agent_ports = there
        silence_s = TIMEOUT_INTERVALS * self._fabric.config.interval_s
        for port, agent in self.ports.items():
            if agent.present and now_s - agent.last_seen_s > silence_s:
                agent.state = AgentState.ABSENT
                text = f"{self._name(port)}: no frame of its agent for {TIMEOUT_INTERVALS} intervals"
                self._fabric.note(EventKind.AGENT_LOST, text, now_s)

    def _apply_reports(self, now_s: float) -> None:
        """Write received reports to the rows of the pairs that they name; queue ended pairs to be deactivated.

        An entry with equal ends is the agent's own rate. Several entries of one pair are applied in order, in batches
        with one entry of each pair.
        """
        reported, self._received = self._received, []
        if not reported:
            return
        entries = np.concatenate([frame.entries for _, frame in reported])
        counts = [len(frame.entries) for _, frame in reported]
        sender = np.repeat(np.array([row for row, _ in reported], dtype=np.int64), counts)
        clock_s = np.repeat(np.array([frame.clock_ms / 1000 for _, frame in reported]), counts)
        is_own_rate = (entries["sender"] == entries["receiver"]).all(axis=1)
        self._own_kbps[sender[is_own_rate]] = entries["limit_kbps"][is_own_rate]
        self._own_heard_s[sender[is_own_rate]] = now_s
        row = self._addressable_pairs().find(sender, mac_numbers(entries["receiver"]))
        is_known = row >= 0
        for index in np.flatnonzero(~is_known & ~is_own_rate)[:MAX_UNKNOWN].tolist():
            ends = entries["sender"][index].tobytes(), entries["receiver"][index].tobytes()
            self._unknown[int(sender[index]), *ends] = None
        remaining = np.flatnonzero(is_known & ~is_own_rate)
        for _ in range(MAX_REPORTS):
            _, first = np.unique(row[remaining], return_index=True)  # the first remaining entry of each pair
            batch = remaining[np.sort(first)]
            self._reports.update(row[batch], entries[batch], clock_s[batch], now_s)
            remaining = remaining[~np.isin(remaining, batch)]

    def _decide_shaped(self, now_s: float) -> None:
        """Determine which pairs agents shape; the counters of pairs that change their shaper are discarded.

        A pair is shaped from the time when a present agent reports the rate that it was sent, and as long as it reports
        that it shapes the pair: a new rate need not be reported first.
        """
        reports, entries = self._reports, self._fabric.state.entries
        present = self._by_vn(lambda agent: agent.present)
        alive = now_s - reports.received_s <= TIMEOUT_INTERVALS * self._fabric.config.interval_s
        holds = present[entries.sender] & alive & (reports.flags & ReportFlag.SHAPED_HERE != 0)
        shaped = holds & (self._shaped | (reports.limit_kbps == self._meant_kbps))
        changed = np.flatnonzero(shaped != self._shaped)
        if len(changed):
            self._fabric.invalidate_rows(changed)
        self._shaped = shaped

    def _verify(self, readings: MeterReadings, now_s: float) -> None:
        """Compare what meters count with what agents report, at ports where agents are not trusted."""
        entries, interval_s = self._fabric.state.entries, self._fabric.config.interval_s
        elapsed_s = interval_s if self._stepped_s is None else max(now_s - self._stepped_s, 0.0)
        self._stepped_s = now_s
        watched = self._shaped & (entries.meter_id > 0) & self._by_vn(lambda one: one.mode == "verify")[entries.sender]
        reported = self._reports.mean_octets_per_s * elapsed_s
        limit_bps = np.maximum(self._meant_kbps, 0) * RATE_STEP_BPS
        counted = readings.byte_in_count, readings.duration_s
        lied = self._verification.updated(watched, *counted, reported, limit_bps, elapsed_s)
        for row in np.unique(entries.sender[lied]).tolist():
            agent = self._agent_of(row)
            if agent is not None and agent.state is not AgentState.DISTRUSTED:
                _, dpid, port_no = self._fabric.vns.key(row)
                self._distrust(PortId(dpid, port_no), agent, "reports less than its meters count", now_s)
