"""Runs are recorded and decided again: bit for bit, and with another algorithm."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.configs import star
from support.fabrics import started_loop

from controller.central.reconfiguration import reconfigure
from controller.errors import InvalidValueError, ProtocolError
from controller.fabric.config_model import MeterSettings
from controller.loop import control_step
from controller.metering.counters import MeterReadings
from controller.monitoring.pair_explanation import explain_pair
from controller.policy.policy_groups import PolicyChoice
from controller.whatif.recording import Interval, Recorder, Start, decode, encode_interval, encode_start
from controller.whatif.replay import differences, replay

M = 1e6
HUB = (1, 9)
BORROWING = ("max-min", "seawall", "seawall-exact", "seawall-cubic", "seawall-dctcp", "seawall-strawman")
ALGORITHMS = ("fs", "sp", "fp", "fe", *BORROWING)


def loop_of(algorithm, senders=3, meters=None):
    vlan = {"algorithm": algorithm, "receive_ceiling": "60M", "send_ceiling": "60M"}
    if algorithm not in BORROWING:
        vlan["shadow"] = "max-min"  # which uses the ceilings
    config = star(9, capacity="100M", limits={10: "40M", 20: "40M"}, vlans={10: vlan})
    if meters is not None:
        switches = {name: dataclasses.replace(one, meters=meters) for name, one in config.switches.items()}
        config = dataclasses.replace(config, switches=switches)
    loop = started_loop(config)
    for port in range(1, senders + 1):
        loop.add((1, port), HUB, 10, 25 * M * port)
    return loop


def eventful(loop):
    """A run in which everything happens that changes a control state from outside."""
    central = loop.fabric.central
    loop.run(10)  # before the recording
    recorder = central.recorder = Recorder()
    loop.run(10)
    loop.add((1, 4), HUB, 10, 30 * M)
    loop.add((1, 5), HUB, 20, 60 * M)
    loop.run(10)
    loop.fabric.operator.set_vn(central.vns.row_of(10, *HUB), loop.fabric.now_s, receive_limit_bps=30_000_000)
    loop.run(10)
    loop.fabric.operator.set_vlan(20, loop.fabric.now_s, algorithm="sp", parameters={"inflation": 0.2})
    loop.senders[0].rate_bps = 0.0
    loop.run(10)
    loop.fabric.operator.set_vlan(20, loop.fabric.now_s, algorithm="max-min")
    loop.run(10)
    return recorder.drain()


@pytest.fixture(scope="module")
def recording():
    """An eventful run, whose bytes nobody changes."""
    return eventful(loop_of("fp"))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_run_is_decided_again_bit_for_bit(algorithm):
    loop = loop_of(algorithm)
    data = eventful(loop)
    again = list(replay(decode(data)))
    assert len(again) == 50
    assert all(one.same for one in again)
    central = loop.fabric.central
    assert again[-1].limit_bps.tobytes() == control_step.effective_limits_bps(central.state, central.vns).tobytes()
    assert np.isnan(again[-1].alternative_bps).all()
    for row in range(len(central.state.entries)):
        why = explain_pair(central.fabric, row)
        assert why.constraint
        assert why.next_constraint
        assert why.next_limit_bps >= why.limit_bps * (1 - 1e-6)
    starts = [record for record in decode(data) if isinstance(record, Start)]
    assert 4 <= len(starts) <= 8  # not one per interval
    changed = sum(len(record.changes.rows) for record in decode(data) if isinstance(record, Interval))
    assert changed > 5  # there was something to decide


def test_a_run_on_a_switch_that_bounds_meters_is_decided_again_bit_for_bit():
    loop = loop_of("fs", meters=MeterSettings(rate_step_bps=65_000, max_burst_bits=3_000_000))
    data = eventful(loop)
    assert all(one.same for one in replay(decode(data)))
    enforcement = loop.fabric.central.state.enforcement
    assert not (enforcement.rate_kbps % 65).any()
    assert enforcement.burst_kbits.max() <= 3_000
    (first, *_) = [record for record in decode(data) if isinstance(record, Start)]
    assert first.vns.meter_bounds is not None
    assert set(first.vns.meter_bounds.rate_step_kbps.tolist()) == {65}


def test_the_last_bit_counts():
    records = list(decode(eventful(loop_of("max-min"))))
    at = [n for n, record in enumerate(records) if isinstance(record, Interval)][7]
    limit_bps = records[at].limit_bps.copy()
    limit_bps[0] = np.nextafter(limit_bps[0], np.inf)
    records[at] = dataclasses.replace(records[at], limit_bps=limit_bps)
    assert [one.same for one in replay(records)] == [n != 7 for n in range(50)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_same_algorithm_beside_makes_no_difference(algorithm):
    loop = loop_of(algorithm)
    loop.fabric.central.recorder = recorder = Recorder()
    loop.run(30)
    again = list(replay(decode(recorder.drain()), PolicyChoice(algorithm)))
    assert all(one.same for one in again)
    assert len(differences(again)) == 3
    assert max(row.largest_bps for row in differences(again)) == 0.0


def test_another_algorithm_is_compared():
    """Of 40 Mb/s fs gives thirds; max-min lends the others what the first, of 5 Mb/s, leaves, up to 60."""
    loop = loop_of("fs")
    loop.senders[0].rate_bps = 5 * M
    loop.run(20)
    loop.fabric.central.recorder = recorder = Recorder()
    loop.run(20)
    again = list(replay(decode(recorder.drain()), PolicyChoice("max-min")))
    assert all(one.same for one in again)
    rows = {row.sender: row for row in differences(again)}
    assert set(rows) == {"s1:1", "s1:2", "s1:3"}
    assert rows["s1:1"].receiver == "s1:9"
    assert (rows["s1:1"].vlan_vid, rows["s1:1"].intervals) == (10, 20)
    assert rows["s1:1"].mean_bps == pytest.approx(40 / 3 * M, rel=0.01)
    assert rows["s1:1"].alternative_mean_bps == pytest.approx(40 / 3 * M, rel=0.01)
    assert rows["s1:2"].alternative_mean_bps == pytest.approx((60 - 5.5) / 2 * M, rel=0.02)


def test_records_are_what_they_were(recording):
    records = list(decode(recording))
    again = b"".join(encode_start(r) if isinstance(r, Start) else encode_interval(r) for r in records)
    assert [type(r) for r in decode(again)] == [type(r) for r in records]
    start = next(record.state for record in records if isinstance(record, Start))
    counts = (start.measured.silent_intervals, start.machines.intervals_since_message, start.enforcement.evidence)
    assert {column.dtype for column in (*counts, start.unread_intervals)} == {np.dtype(np.int16)}  # as kernels want
    assert again == b"".join(encode_start(r) if isinstance(r, Start) else encode_interval(r) for r in decode(again))


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: b"x" + d, lambda d: b"{}\n" + d, lambda d: d + b"1\n"])
def test_damage_is_told(recording, damage):
    with pytest.raises(ProtocolError, match="recording: the record at byte"):
        list(decode(damage(recording)))


@pytest.mark.parametrize(
    "record",
    [
        b'{"kind": "interval", "columns": [], "now_s": "x"}\n',
        b'{"kind": "interval", "columns": [], "now_s": "0x1p99999"}\n',
        b'{"kind": "interval", "columns": [["limit_bps", "<f8", 1' + b"0" * 30 + b"]]}\n",
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_record_that_cannot_be_read_is_named_by_its_first_byte(record):
    start = encode_start(next(decode(eventful(loop_of("fs")))))
    with pytest.raises(ProtocolError, match=f"recording: the record at byte {len(start)} cannot be read"):
        list(decode(start + record))


@pytest.fixture(scope="module")
def records():
    """A start record and the interval after it, with three pairs."""
    loop = loop_of("fs")
    loop.run(10)
    loop.fabric.central.recorder = recorder = Recorder()
    loop.run(1)
    return list(decode(recorder.drain()))


def shortened(table, name):
    return dataclasses.replace(table, **{name: getattr(table, name)[:-1]})


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(MeterReadings)])
def test_readings_that_lack_a_pair_are_told(records, name):
    _, interval = records
    with pytest.raises(ProtocolError, match=f"column readings.{name} has 2 rows instead of 3"):
        list(decode(encode_interval(dataclasses.replace(interval, readings=shortened(interval.readings, name)))))


@pytest.mark.parametrize("table", ["counters", "measured", "enforcement", "unread_intervals"])
def test_a_state_that_lacks_a_pair_is_told(records, table):
    start, _ = records
    value = getattr(start.state, table)
    short = value[:-1] if table == "unread_intervals" else value._replace(**{value._fields[0]: value[0][:-1]})
    with pytest.raises(ProtocolError, match=rf"column {table}[a-z._]* has 2 rows instead of 3"):
        list(decode(encode_start(dataclasses.replace(start, state=start.state._replace(**{table: short})))))


def test_an_interval_of_other_pairs_is_told(records):
    start, interval = records
    readings = MeterReadings(**{name: column[:-1] for name, column in vars(interval.readings).items()})
    other = dataclasses.replace(interval, readings=readings, limit_bps=interval.limit_bps[:-1])
    with pytest.raises(ProtocolError, match="an interval has 2 pairs, not 3"):
        list(replay([start, other]))


@pytest.mark.parametrize("row", [-1, 10**6])
def test_entries_of_vns_that_are_not_there_are_told(recording, row):
    start = next(decode(recording))
    entries = dataclasses.replace(start.state.entries, sender=np.full(len(start.state.entries), row))
    damaged = dataclasses.replace(start, state=start.state._replace(entries=entries))
    with pytest.raises(ProtocolError, match=r"entries\.sender has rows outside"):
        list(decode(encode_start(damaged)))


def test_a_recording_without_its_start_and_an_unknown_algorithm_are_told(recording):
    with pytest.raises(ProtocolError, match="begins in the middle"):
        list(replay(record for record in decode(recording) if isinstance(record, Interval)))
    with pytest.raises(InvalidValueError, match="is not an allocation algorithm"):
        list(replay(decode(recording), PolicyChoice("best")))


def test_the_other_algorithm_has_its_parameters():
    """With a headroom of 1, a sender of 2 Mb/s would be left 4; without one it would be squeezed as all."""
    loop = loop_of("fs")
    loop.senders[0].rate_bps = 2 * M
    loop.run(20)
    loop.fabric.central.recorder = recorder = Recorder()
    loop.run(20)
    data = recorder.drain()
    as_default, with_headroom = (
        {
            row.sender: row.alternative_mean_bps
            for row in differences(replay(decode(data), PolicyChoice("sp", parameters)))
        }
        for parameters in ({}, {"headroom": 1.0})
    )
    assert with_headroom["s1:1"] == pytest.approx(4 * M, rel=0.01)
    assert as_default["s1:1"] < 3 * M
    with pytest.raises(InvalidValueError, match=r"parameters\.headroom: 11 must be at least 0 and at most 10"):
        list(replay(decode(data), PolicyChoice("sp", {"headroom": 11})))


def test_a_recorder_whose_records_nobody_takes_stops():
    loop = loop_of("fs")
    loop.fabric.central.recorder = recorder = Recorder(most_bytes=20_000)
    loop.run(200)
    assert recorder.overrun
    assert 0 < len(recorder.drain()) <= 20_000


def test_recording_changes_nothing():
    recorded, plain = loop_of("max-min"), loop_of("max-min")
    recorded.fabric.central.recorder = Recorder()
    for loop in (recorded, plain):
        loop.run(40)
    assert recorded.received == plain.received


@pytest.mark.parametrize("algorithm", ["fs", "max-min"])
@pytest.mark.parametrize("ports", [8, 6])
def test_another_algorithm_begins_again_where_a_reload_changed_the_vns(ports, algorithm):
    """The first recorded VNs have other rows after the reload, or none."""
    loop = started_loop(star(7, capacity="100M", limits={10: "40M", 20: "40M"}))
    net = loop.fabric
    for sender in (3, 4):
        loop.add((1, sender), (1, 5), 10, 30 * M)
    loop.run(10)
    recorder = net.central.recorder = Recorder()
    loop.run(5)
    reconfigure(net.central, star(ports, capacity="100M", limits={10: "40M", 20: "40M"}), net.now_s).finish(net.central)
    loop.run(5)
    records = list(decode(recorder.drain()))
    (reload,) = [n for n, record in enumerate(records) if n and isinstance(record, Start)]
    again = list(replay(records, PolicyChoice(algorithm)))
    assert all(one.same for one in again)
    alone = list(replay(records[reload:], PolicyChoice(algorithm)))
    for one, other in zip(again[5:], alone, strict=True):
        assert one.alternative_bps.tolist() == other.alternative_bps.tolist()
