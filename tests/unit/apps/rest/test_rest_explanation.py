"""Explanations by REST and by ``dets explain``."""

from __future__ import annotations

import io
import json
import urllib.error
import urllib.parse
import urllib.request

import pytest
from support.configs import star
from support.fabrics import ControlLoop, Fabric

from apps import cli
from apps.rest import Service, create_app

SENTENCE = (
    "VLAN 10, s1:1 to s1:9: 10.0 Mb/s; bound by s1:9's receive limit of VLAN 10, share 1 of 4; "
    "next bound: its own send limit at 40.0 Mb/s; "
    "s1:1's send limit drops 60.0 Mb/s of the 100.0 Mb/s that it sends in all"
)
ENTRY = "/v1/pairs/10/s1/1/s1/9/explanation"


@pytest.fixture
def rest():
    """A client of a controller in which four hosts send more than the one at port 9 may receive."""
    net = Fabric(star(9, capacity="100M", limits={10: "40M", 20: "50M"}))
    net.start()
    loop = ControlLoop(net)
    for port in (1, 2, 3, 4):
        loop.add((1, port), (1, 9), 10, 100e6)
    loop.run(30)
    app = create_app(Service(net.central, lambda: net.now_s))
    return app.test_client()


@pytest.fixture
def command(rest, monkeypatch):
    """``dets`` whose requests go to that controller."""

    def open_(self, request, timeout):
        parts = urllib.parse.urlsplit(request.full_url)
        answer = rest.open(parts.path, query_string=parts.query, method=request.method, data=request.data)
        stream = io.BytesIO(answer.data)
        if answer.status_code >= 400:
            raise urllib.error.HTTPError(request.full_url, answer.status_code, answer.status, {}, stream)
        return stream

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", open_)
    return cli.main


def test_an_entry_is_explained(rest):
    answer = rest.get(ENTRY).get_json()
    assert answer["sentence"] == SENTENCE
    assert (answer["vlan_vid"], answer["sender"]["port_no"], answer["receiver"]["port_no"]) == (10, 1, 9)
    assert (answer["limit_bps"], answer["next_limit_bps"]) == (10_000_000, 40_000_000)
    assert (answer["rank"], answer["sharers"]) == (1, 4)
    assert answer["offered_send_bps"] == pytest.approx(100e6, rel=0.01)
    assert answer["send_limit_dropped_bps"] == pytest.approx(60e6, rel=0.01)


def test_what_a_send_limit_drops_is_shown_of_vns(rest):
    """What four hosts send, 100 Mb/s each at a limit of 40, is what is wanted: 400, not the 160 that pass."""
    receiver, sender = (rest.get(f"/v1/vns/10/s1/{port}").get_json() for port in (9, 1))
    assert receiver["offered_receive_bps"] == pytest.approx(400e6, rel=0.02)
    assert (receiver["offered_send_bps"], receiver["send_limit_dropped_bps"]) == (0, 0)
    assert sender["offered_send_bps"] == pytest.approx(100e6, rel=0.02)
    assert sender["send_limit_dropped_bps"] == pytest.approx(60e6, rel=0.02)
    assert sender["measured_send_bps"] + sender["dropped_send_bps"] == pytest.approx(40e6, rel=0.05)


@pytest.mark.parametrize(("port", "entries"), [(9, 4), (1, 1), (8, 0)])
def test_a_vns_entries_are_explained(rest, port, entries):
    answer = rest.get(f"/v1/vns/10/s1/{port}/explanations").get_json()
    assert (len(answer["explanations"]), answer["pair_count"]) == (entries, entries)
    if entries:
        assert answer["explanations"][0] == rest.get(ENTRY).get_json()
        assert answer["explanations"][0] == rest.get(ENTRY.replace("/1/", "/s1-1/").replace("/9/", "/s1-9/")).get_json()


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/pairs/10/s1/9/s1/1/explanation", "pair"),
        ("/v1/pairs/20/s1/1/s1/9/explanation", "pair"),
        ("/v1/pairs/30/s1/1/s1/9/explanation", "vlan_vid"),
        ("/v1/pairs/10/s2/1/s1/9/explanation", "switch"),
        ("/v1/pairs/10/s1/1/s1/19/explanation", "port_no"),
        ("/v1/vns/10/s1/19/explanations", "port_no"),
    ],
)
def test_what_is_not_there_is_told(rest, path, field):
    answer = rest.get(path)
    assert answer.status_code == 404
    assert json.loads(answer.text)["errors"][0]["field"] == field


def test_the_command_prints_the_sentence(command, capsys):
    """Without a receiver it prints those of all pairs of the sender."""

    def said(*words):
        assert command(["explain", "--vlan", "10", *words]) == 0
        return capsys.readouterr().out

    assert said("--from", "s1:1", "--to", "s1:9") == said("--from", "s1:1") == SENTENCE + "\n"
    assert json.loads(said("--from", "s1:1", "--to", "s1:9", "-o", "json"))["sentence"] == SENTENCE
    assert said("--from", "s1:9") == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from", "s1:1", "--to", "s1:8"], "is not active in VLAN 10"),
        (["--from", "s1"], "--from: 's1' is not the name of an edge port"),
        (["--from", "s1:1", "--to", "s1:x y"], "--to: 's1:x y' is not SWITCH:PORT"),
    ],
)
def test_the_command_refuses_in_one_line(command, capsys, arguments, words):
    assert command(["explain", "--vlan", "10", *arguments]) == 2
    complaint = capsys.readouterr().err
    assert words in complaint
    assert complaint.count("\n") == 1
