"""``/metrics``: what it says of VNs and VLANs, and that Prometheus can read it whatever names people give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.configs import star
from support.fabrics import ControlLoop, Fabric
from support.metrics import metrics_of

from apps.vn_metrics import BATCH_SIZE, MetricColumn, samples, vlan_columns
from controller.forwarding.pairs import Host

LIMIT_BPS = 10_000_000
JUDGED_S = 38 * 0.055  # of 40 intervals: 19 fill a second


def values(page):
    """Every sample by name and labels."""
    families = text_string_to_metric_families(b"".join(page).decode())
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def vn(name, port, vlan=10):
    return f"dets_vn_{name}", (("port", str(port)), ("switch", "s1"), ("vlan", str(vlan)))


@pytest.fixture
def blast():
    net = Fabric(star(3, vlans={10: {"receive_limit": "10M", "send_limit": "10M", "algorithm": "fs"}}))
    net.start()
    loop = ControlLoop(net)
    for port in (1, 2):
        loop.add((1, port), (1, 3), 10, 8e6)
    loop.run(60)
    return net.central


def test_a_blast_as_prometheus_sees_it(blast):
    page = values(metrics_of(blast).page())
    assert page[vn("receive_limit_bits_per_second", 3)] == LIMIT_BPS
    took_s = 40 * 0.055  # as long as it was looked at
    assert page[vn("received_bytes_total", 3)] * 8 == pytest.approx(LIMIT_BPS * took_s, rel=0.02)
    assert page[vn("offered_bytes_total", 3)] * 8 == pytest.approx(16e6 * took_s, rel=0.02)
    assert page[vn("dropped_bytes_total", 3)] * 8 == pytest.approx(6e6 * took_s, rel=0.05)
    assert page[vn("granted_bytes_total", 3)] * 8 == pytest.approx(LIMIT_BPS * took_s, rel=0.02)
    assert page[vn("send_offered_bytes_total", 1)] * 8 == pytest.approx(8e6 * took_s, rel=0.02)
    assert page[vn("send_limit_dropped_bytes_total", 1)] == 0
    assert (page[vn("congested", 3)], page[vn("congested", 1)]) == (1, 0)
    assert page[vn("congested_seconds_total", 3)] == pytest.approx(JUDGED_S)
    assert page[vn("guarantee_violated_seconds_total", 3)] == 0
    assert page[vn("granted_bytes_total", 1)] == 0  # it is not congested: there is no grant
    vlan = (("name", "vlan10"), ("vlan", "10"))
    assert page["dets_vlan_sent_bytes_total", vlan] * 8 == pytest.approx(LIMIT_BPS * took_s, rel=0.02)
    met = page["dets_vlan_guarantee_seconds_total", (("name", "vlan10"), ("outcome", "met"), ("vlan", "10"))]
    assert met == pytest.approx(JUDGED_S)
    assert page["dets_vlan_receive_limit_bits_per_second", vlan] == 3 * LIMIT_BPS
    assert page["dets_metered_pairs", ()] == len(blast.state.entries)
    assert page["dets_events_total", (("kind", "congestion-began"),)] == 1
    assert page["dets_openflow_messages_total", (("direction", "sent"), ("switch", "s1"))] == 5
    assert page["dets_openflow_error_replies_total", (("switch", "s1"),)] == 1
    assert page["dets_task_failures_total", (("task", "audits"),)] == 2
    assert (page["dets_ovsdb_transactions_total", ()], page["dets_ovsdb_failures_total", ()]) == (3, 1)
    assert page["dets_switch_ready", (("switch", "s1"),)] == 1
    assert page["dets_openflow_evictions_total", (("reason", "does not read"),)] == 4
    assert page["dets_openflow_dropped_messages_total", (("reason", "type"),)] == 7
    assert page["dets_openflow_unmanaged_connections", ()] == 1
    assert page["dets_rest_requests_total", (("code", "429"),)] == 2
    assert page["dets_config_reloads_total", (("result", "failed"),)] == 1
    assert page["dets_config_info", (("sha256", "abc"),)] == 1
    assert page["process_resident_memory_bytes", ()] > 1e6
    assert page["dets_port_committed_bits_per_second", (("direction", "receive"), ("port", "3"), ("switch", "s1"))] > 0
    assert 0 <= page["dets_port_enforceable", (("port", "1"), ("switch", "s1"))] <= 1


def test_a_vn_with_as_many_hosts_as_it_may_learn_is_told(blast):
    row = blast.vns.row_of(10, 1, 2)
    for number in range(blast.config.max_macs_per_vn - 1):
        blast.network.place_remote_host(Host(10, 0x06_00_00_00_00_00 + number), row)
    page = values(metrics_of(blast).page())
    assert [page[vn("hosts_full", port)] for port in (1, 2, 3)] == [0, 1, 0]


def test_marks_are_counted_and_bottlenecks_named_where_a_policy_reports_them(blast):
    assert not any(
        name[0].startswith(("dets_vn_marked", "dets_bottlenecked_pairs")) for name in values(metrics_of(blast).page())
    )
    wide = {"send_ceiling": "100M", "receive_ceiling": "100M"}
    vlans = {10: {**wide, "algorithm": "seawall"}, 20: {}}
    net = Fabric(star(3, capacity="100M", limits={10: "10M", 20: "10M"}, vlans=vlans))
    net.start()
    loop = ControlLoop(net)
    for port in (1, 2):
        loop.add((1, port), (1, 3), 10, 80e6)
    loop.run(200)
    page = values(metrics_of(net.central).page())
    marked, received = (page[vn(f"{name}_bytes_total", 3)] for name in ("marked", "received"))
    assert 0.05 < marked / received < 0.15
    assert page["dets_vlan_marked_bytes_total", (("name", "vlan10"), ("vlan", "10"))] == marked
    assert vn("marked_bytes_total", 1) not in page  # nobody sends to it
    assert vn("marked_bytes_total", 3, 20) not in page
    assert vn("lost_bytes_total", 3) not in page  # nobody counts losses there
    assert page["dets_bottlenecked_pairs", (("bottleneck", "link s1:3 (receiving)"),)] == 2


def test_who_is_kept_below_its_limit_is_shown(blast):
    entries = blast.state.entries
    starved = np.full(len(blast.vns), 1e6)
    for _ in range(60):
        blast.fabric.guarantees = blast.fabric.guarantees.updated(
            np.full(len(blast.vns), 16e6), starved, blast.vns.receive_limit_bps, 0.055
        )
    assert len(entries)
    page = values(metrics_of(blast).page())
    assert page[vn("guarantee_violated", 3)] == 1
    assert page[vn("guarantee_violated_seconds_total", 3)] == pytest.approx(JUDGED_S)
    labels = (("name", "vlan10"), ("outcome", "violated_grants"), ("vlan", "10"))
    assert page["dets_vlan_guarantee_seconds_total", labels] == pytest.approx(3 * JUDGED_S)  # all three VNs


def test_samples_come_in_pieces_and_unknown_ones_not_at_all():
    column = np.arange(2.5 * BATCH_SIZE)
    column[::2] = np.nan
    labels = [f'{{port="{port}"}}' for port in range(len(column))]
    pieces = list(samples(labels, [MetricColumn("dets_x", "An x.", "gauge", column)]))
    assert pieces[0] == b"# HELP dets_x An x.\n# TYPE dets_x gauge\n"
    assert max(piece.count(b"\n") for piece in pieces) <= BATCH_SIZE
    lines = b"".join(pieces[1:]).decode().splitlines()
    assert lines[:2] == ['dets_x{port="1"} 1', 'dets_x{port="3"} 3']
    assert len(lines) == len(column) // 2


def test_vlans_are_the_sums_of_their_vns():
    vids = np.array([20, 10, 20])
    (summed,) = vlan_columns(vids, [MetricColumn("dets_vn_x", "An x.", "gauge", np.array([1.0, 2.0, np.nan]))])
    assert (summed.name, summed.values.tolist()) == ("dets_vlan_x", [2.0, 1.0])


def test_names_people_give_do_not_break_the_page_and_series_of_vns_can_be_left_out(blast, monkeypatch):
    object.__setattr__(blast.config.vlans[10], "name", 'a "name" \\ of\ntwo lines')
    whole = values(metrics_of(blast).page())
    assert 'a "name" \\ of\ntwo lines' in {dict(labels).get("name") for _, labels in whole}
    config = replace(blast.config, vn_metrics=False)
    monkeypatch.setattr(type(blast), "config", property(lambda central: config))
    page = values(metrics_of(blast).page())
    assert page.keys() == {key for key in whole if not key[0].startswith("dets_vn_")}
    assert any(name.startswith("dets_vlan_received") for name, _ in page)
