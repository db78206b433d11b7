"""Responses about the controller itself: its health, its loop, the progress of changes, recordings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from apps.rest.schema.fabric_responses import Partial
from apps.rest.schema.rest_model import RestModel


class BackgroundLoop(RestModel):
    """One loop of the application."""

    failures: int = Field(description="rounds that failed, so far")
    fault: str | None = Field(description="what is wrong with it now; null: nothing")


class ClusterHealth(RestModel):
    """The state of this node of a cluster, and of the active node as far as it knows."""

    node: str
    role: Literal["active", "standby", "sharded", "no-etcd"]
    active: str | None = Field(description="the active node, as etcd said last; one that shares switches takes changes")
    active_url: str | None = Field(description="where changes are made: the active node's REST interface")
    generation: int | None = Field(description="generation id under which this node is master; null: it is not")
    etcd: str | None = Field(description="why etcd did not answer last; null: it did")
    lease_age_s: float | None = Field(description="seconds since etcd last refreshed this node's lease")
    frozen: bool = Field(description="whether no grant may rise now, since a switch has another owner or has just come")
    owners: dict[str, str | None] | None = Field(
        default=None, description="where switches are shared out: each switch's node; null: nobody has it"
    )
    nodes: dict[str, str] | None = Field(default=None, description="where switches are shared out: the nodes' REST")


class Health(RestModel):
    """Whether the controller is able to do its work."""

    status: Literal["ready", "degraded"]
    switches: dict[str, str] = Field(description="state of each switch by its name: ready, connecting, ...")
    faults: dict[str, list[str]] = Field(
        default_factory=dict, description="what is wrong with switches that are ready, by name"
    )
    enforceable: dict[str, int] = Field(
        default_factory=dict, description="how many edge ports are enforceable: yes, partly, no"
    )
    full_vns: int = Field(
        default=0, description="how many VNs have as many hosts as they may learn; what tenants do is no ill health"
    )
    loops: dict[str, BackgroundLoop] = Field(default_factory=dict, description="the loops of the application, by name")
    cluster: ClusterHealth | None = Field(default=None, description="in a cluster: this node's part in it")


class Probe(RestModel):
    """The result of a liveness or readiness probe."""

    status: Literal["live", "ready"]


class LastRound(RestModel):
    """One round of the control loop; times in milliseconds, except ``started_s``."""

    number: int
    started_s: float = Field(description="the controller's clock, seconds")
    poll_ms: float
    step_ms: float
    push_ms: float
    pair_count: int = Field(description="pairs of VNs with a meter")
    read_meters: int
    modified_meters: int
    timeouts: int = Field(description="switches that did not answer in time")
    skipped: int = Field(description="rounds that were due since the one before, and never began")


class Percentiles(RestModel):
    """Milliseconds of the sampled rounds."""

    p50: float
    p99: float
    max: float


class Loop(RestModel):
    """The control loop: one round per interval, which polls the counters, decides, and pushes messages."""

    interval_ms: float
    rounds: int = Field(description="rounds so far")
    skipped_rounds: int = Field(description="rounds that were due and never began, so far")
    poll_timeouts: int = Field(description="times that a switch did not answer within its interval, so far")
    read_meters: int = Field(description="meters read, so far")
    modified_meters: int = Field(description="meters set to another rate or burst, so far")
    sampled_rounds: int = Field(description="how many rounds, a thousand at most, the times below are of")
    poll_ms: Percentiles | None = Field(description="until all switches had answered")
    step_ms: Percentiles | None = Field(description="deciding")
    push_ms: Percentiles | None = Field(description="handing the messages over for sending")
    total_ms: Percentiles | None
    last: LastRound | None = Field(description="the last of the rounds looked at")


class Recording(RestModel):
    """The recording of the control intervals, of which there is one at a time."""

    running: bool
    overrun: bool = Field(description="whether it stopped because its records were not taken in time")


class Records(Recording):
    """A part of a recording."""

    records: str = Field(description="the records taken, base64; see controller/whatif/recording.py")


class Revision(RestModel):
    """The progress of changes at the switches."""

    revision: int = Field(description="of the last change to anything")
    installed_revision: int = Field(description="the last change that all connected switches have confirmed")
    unconfirmed_switches: list[str] = Field(description="switches that have still to confirm")
    disconnected_switches: list[str] = Field(
        description="switches that are not connected: they get what is due when they are"
    )
    unreachable_nodes: Partial = None
