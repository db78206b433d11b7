"""Responses about the controller itself: its health, its loop, the progress of changes, recordings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from apps.rest.schema.fabric_responses import Partial
from apps.rest.schema.rest_model import RestModel


class BackgroundLoop(RestModel):
    """One loop of the application."""

    failures: int = Field(description="number of rounds that failed since the start")
    fault: str | None = Field(description="present fault; null: none")


class ClusterHealth(RestModel):
    """The state of this node of a cluster, and its last information on the active node."""

    node: str
    role: Literal["active", "standby", "sharded", "no-etcd"] = Field(
        description="sharded: the node owns switches; no-etcd: etcd does not answer, so the node writes nothing"
    )
    active: str | None = Field(
        description="the active node, as last read from etcd; in sharded mode the node that accepts changes"
    )
    active_url: str | None = Field(description="URL of the active node's REST interface, for changes")
    generation: int | None = Field(description="generation id under which this node is master; null: it is not master")
    etcd: str | None = Field(description="error of the last request to etcd; null: none")
    lease_age_s: float | None = Field(description="seconds since etcd last refreshed this node's lease")
    frozen: bool = Field(
        description="whether grants may not rise now, because a switch has changed owners or just connected"
    )
    owners: dict[str, str | None] | None = Field(
        default=None, description="sharded mode: owning node by switch; null: the switch has no owner"
    )
    nodes: dict[str, str] | None = Field(default=None, description="sharded mode: URL of the REST interface by node")


class Health(RestModel):
    """The health of the controller."""

    status: Literal["ready", "degraded"]
    switches: dict[str, str] = Field(description="state by switch: ready, connecting, ...")
    faults: dict[str, list[str]] = Field(
        default_factory=dict, description="faults of switches that are ready, by switch"
    )
    enforceable: dict[str, int] = Field(
        default_factory=dict, description="number of edge ports by enforceability: yes, partly, no"
    )
    full_vns: int = Field(
        default=0,
        description="number of VNs at their limit of learned hosts; it does not affect status, since tenants cause it",
    )
    loops: dict[str, BackgroundLoop] = Field(default_factory=dict, description="the loops of the application, by name")
    cluster: ClusterHealth | None = Field(default=None, description="state of this node in a cluster; null: no cluster")


class Probe(RestModel):
    """The result of a liveness or readiness probe."""

    status: Literal["live", "ready"]


class LastRound(RestModel):
    """One round of the control loop; times in milliseconds, except ``started_s``."""

    number: int
    started_s: float = Field(description="beginning, on the controller's clock, seconds")
    poll_ms: float
    step_ms: float
    push_ms: float
    pair_count: int = Field(description="number of pairs of VNs with a meter")
    read_meters: int
    modified_meters: int
    timeouts: int = Field(description="number of switches that did not reply in time")
    skipped: int = Field(description="number of rounds due since the previous round that never began")


class Percentiles(RestModel):
    """Milliseconds of the sampled rounds."""

    p50: float
    p99: float
    max: float


class Loop(RestModel):
    """The control loop: one round per interval, which polls the counters, decides, and pushes messages."""

    interval_ms: float
    rounds: int = Field(description="number of rounds since the start")
    skipped_rounds: int = Field(description="number of due rounds that never began since the start")
    poll_timeouts: int = Field(
        description="number of polls of a switch without a reply in the interval since the start"
    )
    read_meters: int = Field(description="number of meters read since the start")
    modified_meters: int = Field(description="number of meters set to another rate or burst since the start")
    sampled_rounds: int = Field(description="number of rounds that the times below cover, a thousand at most")
    poll_ms: Percentiles | None = Field(description="time until all switches have replied")
    step_ms: Percentiles | None = Field(description="time of the control step")
    push_ms: Percentiles | None = Field(description="time to queue the messages for sending")
    total_ms: Percentiles | None = Field(description="time of a whole round")
    last: LastRound | None = Field(description="the last sampled round")


class Recording(RestModel):
    """The recording of the control intervals; only one runs at a time."""

    running: bool
    overrun: bool = Field(description="whether it stopped because its records were not fetched in time")


class Records(Recording):
    """A part of a recording."""

    records: str = Field(description="the records, base64; see controller/whatif/recording.py")


class Revision(RestModel):
    """The progress of changes at the switches."""

    revision: int = Field(description="number of the last change")
    installed_revision: int = Field(description="number of the last change that all connected switches have confirmed")
    unconfirmed_switches: list[str] = Field(description="connected switches that have not confirmed the last change")
    disconnected_switches: list[str] = Field(
        description="switches that are not connected: they get the changes when they connect"
    )
    unreachable_nodes: Partial = None
