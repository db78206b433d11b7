"""The real application against peers of its OpenFlow port that mean no good: the other switches never notice."""

from __future__ import annotations

import re
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.application import Application
from support.skipped_rounds import few_skipped
from support.wire import WireRun, configuration

from apps.cli.support.certificates import create_authority, issue
from controller.openflow.constants import MessageType, MultipartType
from experiments.bench.attack import attacks
from experiments.bench.attack.hostile_peer import HostilePeer, message, multipart_reply, open_connections

pytestmark = pytest.mark.long
HOSTILE = attacks.HOSTILE_DPID
LINK = [((1, 10), (2, 10))]
ATTACK_S = 2.0
UNREAD_S = 8.0  # until 32 MB of replies are unread, also where other tests leave the controller half a processor
MAX_GROWTH_MB = 64


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireRun]:
    """Two switches under control; a third one is configured, and is the attacker's."""
    edges = {1: [1, 2], 2: [1, 2], HOSTILE: [1, 2]}
    with WireRun(tmp_path_factory.mktemp("hostile"), edges, LINK) as run:
        run.fabric.disconnect(HOSTILE, reconnect=False)
        run.app.wait_for(lambda: state(run, HOSTILE) == "disconnected", "closed")
        yield run


def state(run: WireRun, dpid: int) -> str:
    return str(run.app.get("/v1/health")["switches"][f"s{dpid}"])


def address(run: WireRun) -> tuple[str, int]:
    host, _, port = run.config["openflow"]["listen"].partition(":")
    return host, int(port)


def memory_mb(run: WireRun) -> float:
    status = Path(f"/proc/{run.app.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1000


def wait_counted(run: WireRun, name: str, reason: str, before: dict[tuple[str, ...], float]) -> None:
    """Wait until a metric with that reason has grown."""
    key = (f"dets_openflow_{name}_total", reason)
    run.app.wait_for(lambda: run.app.metrics().get(key, 0) > before.get(key, 0), f"{name}: {reason}", 30)


@contextmanager
def unharmed(run: WireRun) -> Iterator[None]:
    """What happens inside costs neither intervals nor memory nor the other switches their connections."""
    memory, last = memory_mb(run), run.app.last_event()
    connections = [run.fabric.connections(dpid) for dpid in (1, 2)]
    with few_skipped(run.app):
        yield
    assert memory_mb(run) - memory < MAX_GROWTH_MB
    assert [run.fabric.connections(dpid) for dpid in (1, 2)] == connections
    assert [state(run, dpid) for dpid in (1, 2)] == ["ready", "ready"]
    closed = [event["text"] for event in run.app.events("switch-down", last)]
    assert all(f"switch s{HOSTILE} " in text for text in closed), closed
    assert run.app.events("link-down", last) == []


def test_unharmed_sees_a_loop_that_stands_still(run: WireRun) -> None:
    with pytest.raises(AssertionError, match="skipped"), unharmed(run):  # noqa: PT012 - what happens inside
        run.app.send_signal(signal.SIGSTOP)
        time.sleep(3.0)
        run.app.send_signal(signal.SIGCONT)


def attacked(run: WireRun, name: str, duration_s: float = ATTACK_S) -> None:
    attacks.ATTACKS[name].run(address(run), time.monotonic() + duration_s)


def cut_off_for(run: WireRun, last: int, reason: str) -> Callable[[], bool]:
    return lambda: any(reason in event["text"] for event in run.app.events("switch-evicted", last))


# -- switches under control


@pytest.mark.parametrize(
    "name",
    [name for name in attacks.ATTACKS if name.startswith(("switch's", "comes", "strang", "7 MB", "crowd", "relayed"))],
)
def test_attacks_harm_nobody_else(run: WireRun, name: str) -> None:
    with unharmed(run):
        attacked(run, name)


def test_a_switch_that_does_not_read_is_cut_off_and_may_come_back(run: WireRun) -> None:
    last = run.app.last_event()
    with unharmed(run):
        attacked(run, "stops reading", UNREAD_S)
        run.app.wait_for(cut_off_for(run, last, "does not read"), "told")
    run.app.wait_for(lambda: state(run, HOSTILE) == "disconnected", "closed")
    run.fabric.reconnect(HOSTILE)
    run.app.wait_ready()
    run.fabric.disconnect(HOSTILE, reconnect=False)
    run.app.wait_for(lambda: state(run, HOSTILE) == "disconnected", "closed")


@pytest.mark.parametrize(
    ("name", "reason"), [("20,000 ports", "too many ports"), ("endless reply", "a reply too long")]
)
def test_a_switch_that_says_too_much_is_cut_off(run: WireRun, name: str, reason: str) -> None:
    last = run.app.last_event()
    with unharmed(run):
        attacked(run, name)
        run.app.wait_for(cut_off_for(run, last, reason), "told")


def test_names_of_a_switch_forge_no_line_of_the_log(run: WireRun) -> None:
    before = len(run.app.log())
    with unharmed(run):
        attacked(run, "hostile names")
    lines = run.app.log()[before:].splitlines()
    assert any(f"switch s{HOSTILE} " in line for line in lines)
    for line in lines:
        assert line.isprintable(), line
        assert re.match(r"\d{4}-\d\d-\d\dT\S+Z \[(info|warning|error) +\] |    ", line), line


def test_a_port_without_a_number_is_left_alone(run: WireRun) -> None:
    """Ports begin at 1 (OpenFlow 1.3.5, section 7.2.1); a hello cannot go out of any other."""
    with HostilePeer(address(run)) as peer:
        switch = peer.become_ready(HOSTILE)
        assert switch is not None
        run.app.wait_for(lambda: state(run, HOSTILE) == "ready", "ready")
        switch.send_raw(message(MessageType.PORT_STATUS, bytes(8) + attacks.port(0)))
        assert not peer.behave(switch, lambda: False, 3.0)
        assert (peer.closed, state(run, HOSTILE)) == (False, "ready")
    assert "Traceback" not in run.app.log()


def test_rounds_do_not_wait_again_and_again_for_a_switch_that_never_tells_its_counters(run: WireRun) -> None:
    before = run.app.get("/v1/loop")
    with unharmed(run):
        attacked(run, "no counters")
    spread = run.app.get(f"/v1/loop?after={before['rounds']}")["poll_ms"]
    assert spread["p50"] < spread["max"] / 2  # it is waited for once a second


# -- whose a dpid is


def test_who_claims_the_dpid_of_a_switch_that_answers_is_cut_off(run: WireRun) -> None:
    last = run.app.last_event()
    closed = message(MessageType.PORT_STATUS, b"\1" + bytes(7) + attacks.port(1))
    with unharmed(run):
        with HostilePeer(address(run)) as peer:
            assert peer.shake_hands(1)
            peer.send(closed)  # that port of the switch stays: this is not the switch's connection
            assert peer.wait_closed(5.0)
        run.app.wait_for(lambda: run.app.events("dpid-conflict", last), "told")
    run.introduce(1, 1, 0xC1)
    limit_bps = run.app.get("/v1/vns/10/s1/1")["send_limit_bps"]
    run.app.patch("/v1/vns/10/s1/1", send_limit_bps=limit_bps // 2)
    run.wait(lambda: limit_bps // 2000 in [rate for rate, _ in run.meters(1).values()], "set on the true switch")
    run.app.patch("/v1/vns/10/s1/1", send_limit_bps=limit_bps)


def test_a_switch_that_connects_again_wins_over_its_dead_connection(run: WireRun) -> None:
    run.fabric.reconnect(HOSTILE)
    run.app.wait_ready()
    before = run.app.metrics()
    run.fabric.set_silent(HOSTILE, True)  # its connection stands, and nobody is there
    try:
        with unharmed(run), HostilePeer(address(run)) as peer:
            assert peer.become_ready(HOSTILE) is not None
            wait_counted(run, "evictions", "the switch has connected again", before)
            told = run.app.events("dpid-conflict")  # once a minute: an attack before this may have been the reason
            assert any("the first one is dead" in event["text"] for event in told)
            run.app.wait_for(lambda: state(run, HOSTILE) == "ready", "ready")
            run.fabric.disconnect(HOSTILE, reconnect=False)
    finally:
        run.fabric.disconnect(HOSTILE, reconnect=False)
        run.fabric.set_silent(HOSTILE, False)
    run.app.wait_for(lambda: state(run, HOSTILE) == "disconnected", "closed")


def test_an_auxiliary_connection_is_cut_off(run: WireRun) -> None:
    before = run.app.metrics()
    with unharmed(run):
        with HostilePeer(address(run)) as peer:
            peer.shake_hands(1, auxiliary_id=1)
            assert peer.wait_closed(5.0)
        wait_counted(run, "evictions", "auxiliary connection", before)


# -- before the handshake


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("unknown types", "type"),
        ("unasked replies", "nobody asked"),
        ("errors", "before the handshake"),
        ("handshake's errors", "before the handshake"),
    ],
)
def test_before_the_handshake_nothing_else_is_read(run: WireRun, name: str, why: str) -> None:
    before = run.app.metrics()
    flood = threading.Thread(target=attacked, args=(run, name))
    with unharmed(run):
        flood.start()
        wait_counted(run, "dropped_messages", why, before)
        run.introduce(2, 1, 0xD0 + len(name))
        flood.join()


@pytest.mark.parametrize("data", [b"", message(MessageType.HELLO)[:5], message(MessageType.HELLO)])
def test_a_handshake_that_is_not_done_ends(run: WireRun, data: bytes) -> None:
    before = run.app.metrics()
    with HostilePeer(address(run)) as peer:
        peer.send(data)
        assert peer.wait_closed(30.0)
    wait_counted(run, "evictions", "no handshake in time", before)


def test_the_first_message_is_text_because_mininet_decodes_it(run: WireRun) -> None:
    """Mininet asks by telnet whether a controller listens, and ends if it cannot decode what the controller sends."""
    for _ in range(10):
        with HostilePeer(address(run)) as peer:
            hello = peer.await_message(MessageType.HELLO, 5.0)
            assert hello is not None
            assert hello.isascii()


def test_few_connections_may_be_without_a_handshake(run: WireRun) -> None:
    before = run.app.metrics()
    with unharmed(run), open_connections(address(run), 100):
        wait_counted(run, "evictions", "too many connections without a handshake", before)
        run.fabric.reconnect(HOSTILE)
        run.app.wait_for(lambda: state(run, HOSTILE) == "ready", "let in all the same")
        run.fabric.disconnect(HOSTILE, reconnect=False)
    run.app.wait_for(lambda: state(run, HOSTILE) == "disconnected", "closed")


@pytest.mark.parametrize("version", [0, 1, 3])
def test_who_speaks_no_common_version_is_told_so(run: WireRun, version: int) -> None:
    with unharmed(run), HostilePeer(address(run)) as peer:
        peer.send(message(MessageType.HELLO, version=version))
        error = peer.await_message(MessageType.ERROR, 5.0)
        assert error is not None
        assert error[8:12] == bytes(4)  # HELLO_FAILED, INCOMPATIBLE
        assert peer.wait_closed(5.0)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (0x2A, b""),  # the lower of both versions is spoken then
        (6, b"\0\1\0\x08" + (1 << 4 | 1 << 6).to_bytes(4)),
        (4, b"\0\7\0\0" * 3),  # elements without a length: Ryu's own parser never ends
    ],
)
def test_later_versions_and_odd_hellos_are_no_hindrance(run: WireRun, version: int, body: bytes) -> None:
    with unharmed(run), HostilePeer(address(run)) as peer:
        peer.send(message(MessageType.HELLO, body, version=version))
        assert peer.await_message(MessageType.FEATURES_REQUEST, 5.0) is not None


def test_a_message_that_cannot_be_ends_the_connection(run: WireRun) -> None:
    with HostilePeer(address(run)) as peer:
        peer.send(b"\4\0\0\3\0\0\0\0")
        assert peer.wait_closed(5.0)


@pytest.mark.parametrize("name", ["unknown versions", "handshake's errors"])
def test_nothing_of_it_is_a_traceback_and_the_log_stays_short(run: WireRun, name: str) -> None:
    lines = len(run.app.log().splitlines())
    attacked(run, name)
    assert len(run.app.log().splitlines()) - lines < 20
    assert "Traceback" not in run.app.log()


def test_over_tls_the_same_holds(tmp_path: Path) -> None:
    create_authority(tmp_path, "test CA", 30)
    issue(tmp_path, "controller", 30, ["127.0.0.1"])
    issue(tmp_path, "switch", 30, None)
    files = {"certificate": "controller.pem", "key": "controller.key", "client_ca": "ca.pem"}
    config = configuration({1: [1, 2]}, openflow={key: str(tmp_path / name) for key, name in files.items()})
    host, _, port = config["openflow"]["listen"].partition(":")
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    context.load_cert_chain(tmp_path / "switch.pem", tmp_path / "switch.key")
    with Application(config, tmp_path) as app:
        app.wait_for(lambda: app.get("/v1/health"), "serving")
        stranger = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        with HostilePeer((host, int(port)), tls=stranger) as peer:
            assert peer.wait_closed(30.0)
        app.wait_for(lambda: "did not return a certificate" in app.log(), "told of the refusal")
        with HostilePeer((host, int(port))) as plain:
            plain.send(message(MessageType.HELLO))
            assert plain.wait_closed(30.0)
        before = app.metrics()
        with HostilePeer((host, int(port))) as silent, HostilePeer((host, int(port)), tls=context) as switch:
            assert switch.become_ready(1) is not None
            app.wait_for(lambda: app.get("/v1/health")["switches"] == {"s1": "ready"}, "ready")
            flood = message(MessageType.ECHO_REQUEST, bytes(60_000))
            while switch.send(flood):  # until it is cut off for not reading
                pass
            assert silent.wait_closed(30.0)
        after = app.metrics()
        for reason in ("does not read", "no handshake in time"):
            key = ("dets_openflow_evictions_total", reason)
            assert after[key] == before.get(key, 0) + 1
        assert "Traceback" not in app.log()


# -- the process itself


def test_few_file_descriptors_are_shared_with_rest(tmp_path: Path) -> None:
    with WireRun(tmp_path, {1: [1, 2]}, files=64) as run, open_connections(address(run), 80):
        assert state(run, 1) == "ready"
        run.fabric.disconnect(1)
        run.wait(lambda: run.fabric.connections(1) >= 2, "back", 30)
        run.app.wait_ready()


def test_a_stopped_process_skips_intervals_and_blames_nobody(run: WireRun) -> None:
    run.introduce(1, 1, 0xA1)
    before, last = run.app.get("/v1/loop"), run.app.last_event()
    connections = [run.fabric.connections(dpid) for dpid in (1, 2)]
    run.app.send_signal(signal.SIGSTOP)
    time.sleep(6.0)
    run.app.send_signal(signal.SIGCONT)
    run.app.wait_for(lambda: run.app.get("/v1/loop")["rounds"] > before["rounds"] + 20, "going on")
    skipped = run.app.get("/v1/loop")["skipped_rounds"] - before["skipped_rounds"]
    assert skipped >= int(6.0 / 0.055) - 2
    assert run.app.events("link-down", last) == run.app.events("switch-down", last) == []
    assert [run.fabric.connections(dpid) for dpid in (1, 2)] == connections


def test_an_application_that_serves_http_unguarded_is_warned_of(tmp_path: Path) -> None:
    beside = (Path("ryu.app.ofctl_rest"), Path("--wsapi-host=127.0.0.1"), Path("--wsapi-port=0"))
    with WireRun(tmp_path, {1: [1, 2]}, beside=beside) as run:
        assert "RestStatsApi of this process serves HTTP at 127.0.0.1:0 without authentication" in run.app.log()


def test_the_port_description_of_the_handshake_may_come_in_parts(run: WireRun) -> None:
    """Whatever is refused to others, a switch with many ports gets in."""
    with unharmed(run), HostilePeer(address(run)) as peer:
        peer.send(message(MessageType.HELLO))
        asked = peer.await_message(MessageType.FEATURES_REQUEST)
        assert asked is not None
        xid = int.from_bytes(asked[4:8])
        peer.send(attacks.features_reply(HOSTILE, xid))
        asked = peer.await_message(MessageType.MULTIPART_REQUEST)
        assert asked is not None
        xid = int.from_bytes(asked[4:8])
        for number in range(1, 31):
            ports = b"".join(map(attacks.port, range(100 * number, 100 * number + 100)))
            peer.send(multipart_reply(MultipartType.PORT_DESC, ports, xid, more=number < 30))
        assert peer.await_message(MessageType.MULTIPART_REQUEST) is not None
