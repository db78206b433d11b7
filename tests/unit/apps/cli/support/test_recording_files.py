"""Recordings over REST and as files, and the commands that make and replay them."""

from __future__ import annotations

import base64
import csv
import errno
import json
import os
import re
import signal
import zipfile
from pathlib import Path

import pytest
from support.configs import star
from support.fabrics import ControlLoop, Fabric
from support.paths import ROOT

from apps import cli
from apps.cli.support import recording_files
from apps.cli.support.rest_client import Client
from apps.rest import Service, create_app
from controller.errors import InvalidValueError, ProtocolError
from controller.whatif.recording import Interval, Recorder, decode
from controller.whatif.replay import replay

PATH = "/v1/recording"


class Desk:
    """A controller with a client; every request of ``dets record`` finds seven more intervals gone by."""

    def __init__(self):
        net = Fabric(star(9, capacity="100M", limits={10: "40M", 20: "50M"}))
        net.start()
        self.central = net.central
        self.loop = ControlLoop(net)
        for port in (1, 2, 3):
            self.loop.add((1, port), (1, 9), 10, 30e6)
        self.loop.run(5)
        self.rest = create_app(Service(net.central, lambda: net.now_s)).test_client()
        self.actions = []

    def do(self, action, status=200):
        answer = self.rest.post(PATH, json={"action": action})
        assert answer.status_code == status, answer.text
        return json.loads(answer.text)

    def call(self, path, *, method, body, **_):
        self.actions.append(body["action"])
        if body["action"] != "start":
            self.loop.run(7)
        return self.do(body["action"])


@pytest.fixture
def desk(monkeypatch):
    monkeypatch.setattr(recording_files.time, "sleep", lambda _: None)
    return Desk()


@pytest.fixture
def file(desk, tmp_path, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(recording_files.time, "monotonic", lambda: next(clock) * 0.25)
    path = tmp_path / "run.dets"
    assert recording_files.record(desk, path, 2.0) > 7
    return path


def test_intervals_are_recorded_between_start_and_stop(desk):
    assert desk.rest.get(PATH).get_json() == {"running": False, "overrun": False}
    assert desk.do("start") == {"running": True, "overrun": False, "records": ""}
    assert desk.rest.get(PATH).get_json()["running"]
    desk.loop.run(3)
    taken = desk.do("take")
    desk.loop.run(2)
    rest = desk.do("stop")
    assert (taken["running"], rest["running"]) == (True, False)
    records = [list(decode(base64.b64decode(one["records"]))) for one in (taken, rest)]
    assert [len(some) for some in records] == [4, 2]  # the first begins with a start record
    assert desk.central.recorder is None


@pytest.mark.parametrize("action", ["take", "stop"])
def test_what_is_not_recorded_cannot_be_taken(desk, action):
    assert desk.do(action, 422)["errors"][0]["field"] == "action"


def test_one_recording_at_a_time(desk):
    desk.do("start")
    desk.do("start", 422)
    desk.central.recorder = Recorder(most_bytes=10)
    desk.loop.run(1)
    assert desk.rest.get(PATH).get_json() == {"running": False, "overrun": True}
    desk.do("start")


@pytest.mark.parametrize("body", [{}, {"action": "pause"}, {"action": "start", "file": "/etc/passwd"}, {"action": 1}])
def test_bad_actions_are_refused(desk, body):
    assert desk.rest.post(PATH, json=body).status_code == 422
    assert desk.central.recorder is None


def test_a_file_holds_the_run_and_is_decided_again(file, desk, capsys):
    assert desk.actions[0] == "start"
    assert desk.actions[-1] == "stop"
    intervals = sum(isinstance(record, Interval) for record in recording_files.read(file))
    assert intervals == 7 * (len(desk.actions) - 1)
    result = recording_files.replayed(file, None)
    assert (result["intervals"], result["same"], result["differences"]) == (intervals, True, [])
    assert cli.main(["replay", str(file)]) == 0
    assert "every decision is the recorded one, bit for bit" in capsys.readouterr().out


def test_another_algorithm_makes_a_table(file, capsys):
    assert cli.main(["replay", str(file), "--algorithm", "max-min", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["differences"]) == 3
    assert {row["to"] for row in result["differences"]} == {"s1:9"}
    assert cli.main(["replay", str(file), "--algorithm", "max-min"]) == 0
    assert "as max-min would set them" in capsys.readouterr().out
    assert cli.main(["replay", str(file), "--algorithm", "max-min", "--parameter", "probe=4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == {"probe": 4}
    assert cli.main(["replay", str(file), "--algorithm", "max-min", "--parameter", "probe=1"]) == 2
    assert "--parameter: 'probe=1' must be above 1" in capsys.readouterr().err
    assert cli.main(["replay", str(file), "--parameter", "probe=4"]) == 2
    assert "--parameter: 'probe' means nothing without --algorithm" in capsys.readouterr().err
    assert cli.main(["replay", str(file), "--algorithm", "best"]) == 2
    assert "--algorithm: 'best' is not an allocation algorithm" in capsys.readouterr().err


def test_what_was_decided_otherwise_is_told(file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("controller.dets.rate_allocator.CONGESTED_ABOVE", 0.5)
    monkeypatch.setattr("controller.metering.enforcement.MIN_BURST_BITS", 0.0)
    monkeypatch.setattr("controller.dets.fair_share.FairShare.allocate", lambda self, r, s: (r.available_bps, s))
    assert cli.main(["replay", str(file)]) == 1
    assert "decided otherwise, first in interval 0" in capsys.readouterr().out


def test_every_intervals_decisions_are_printed_as_csv(file, capsys):
    def rows(*words):
        assert cli.main(["replay", str(file), "--csv", *words]) == 0
        return list(csv.DictReader(capsys.readouterr().out.splitlines()))

    again = list(replay(recording_files.read(file)))
    plain = rows()
    assert [int(row["interval"]) for row in plain] == [n for n, one in enumerate(again) for _ in one.limit_bps]
    assert [float(row["limit_bps"]) for row in plain] == [round(bps) for one in again for bps in one.limit_bps.tolist()]
    assert {(row["vlan"], row["from"], row["to"]) for row in plain} == {
        ("10", f"s1:{port}", "s1:9") for port in (1, 2, 3)
    }
    assert {(row["same"], row["alternative_bps"]) for row in plain} == {("1", "")}
    other = rows("--algorithm", "fs")
    assert {float(row["alternative_bps"]) > 0 for row in other} == {True}
    assert len(other) == len(plain)
    assert cli.main(["replay", str(file), "--csv", "--json"]) == 2
    assert "--csv" in capsys.readouterr().err


def test_the_page_names_the_columns(file, capsys):
    assert cli.main(["replay", str(file), "--csv"]) == 0
    heads = capsys.readouterr().out.splitlines()[0].split(",")
    page = (ROOT / "docs" / "allocation.md").read_text().partition("## Record and replay")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert re.findall(r"`(\w+)`", "".join(rows)) == heads


@pytest.mark.parametrize(
    ("name", "reason"), [("taken", "exists already"), ("nowhere/run", "cannot be written: No such file or directory")]
)
def test_a_file_that_cannot_be_made_records_nothing(desk, tmp_path, name, reason):
    (tmp_path / "taken").write_text("kept")
    with pytest.raises(InvalidValueError, match=reason):
        recording_files.record(desk, tmp_path / name, 1.0)
    assert (desk.actions, (tmp_path / "taken").read_text()) == ([], "kept")


def test_a_recording_goes_to_the_standard_output(desk, tmp_path, monkeypatch):
    with (tmp_path / "out").open("wb") as out:
        monkeypatch.setattr(recording_files.sys, "stdout", out)
        assert recording_files.record(desk, Path("-"), 0.1) > 0
        assert not out.closed
    monkeypatch.undo()
    assert recording_files.replayed(tmp_path / "out", None)["same"]


def test_a_terminal_gets_no_recording(desk, monkeypatch):
    desk.actions.clear()
    parent, child = os.openpty()
    with open(parent, "rb"), open(child, "w") as terminal:
        monkeypatch.setattr(recording_files.sys, "stdout", terminal)
        with pytest.raises(InvalidValueError, match="is a terminal"):
            recording_files.record(desk, Path("-"), 0.1)
    assert desk.actions == []


def test_a_file_that_is_none_is_told(tmp_path, capsys):
    bad = tmp_path / "bad"
    bad.write_bytes(b"not a zip")
    with pytest.raises(InvalidValueError, match="is not a recording"):
        list(recording_files.read(bad))
    with zipfile.ZipFile(tmp_path / "old", "w") as archive:
        archive.writestr("format.json", json.dumps({"format": "dets-recording", "version": 0}))
    with pytest.raises(InvalidValueError, match="is of format"):
        list(recording_files.read(tmp_path / "old"))
    for path in (bad, tmp_path / "old", tmp_path / "nowhere", tmp_path):
        assert cli.main(["replay", str(path)]) == 2
        assert capsys.readouterr().err.startswith(f"dets: FILE: '{path}' ")


def test_records_that_were_lost_are_told(desk, tmp_path, monkeypatch):
    def call(path, *, method, body, **_):
        answer = Desk.call(desk, path, method=method, body=body)
        return {**answer, "overrun": body["action"] != "start"}

    monkeypatch.setattr(desk, "call", call)
    with pytest.raises(ProtocolError, match="records were lost"):
        recording_files.record(desk, tmp_path / "run", 5.0)
    assert desk.actions == ["start", "take", "stop"]


def test_a_member_that_grows_when_it_is_unpacked_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(recording_files, "_MAX_RECORDS_BYTES", 1_000_000)
    with zipfile.ZipFile(tmp_path / "bomb", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("format.json", json.dumps(recording_files.FORMAT))
        archive.writestr("records/000000", bytes(1_000_001))
    assert (tmp_path / "bomb").stat().st_size < 10_000
    with pytest.raises(InvalidValueError, match="records/000000 has 1000001 bytes of 1000000"):
        list(recording_files.read(tmp_path / "bomb"))


def test_a_full_disk_ends_the_recording(desk, tmp_path, monkeypatch):
    def write(file, taken):
        next(taken)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recording_files, "write", write)
    with pytest.raises(OSError, match="No space left"):
        recording_files.record(desk, tmp_path / "run", 5.0)
    assert desk.actions == ["start", "take", "stop"]
    assert desk.central.recorder is None


def test_no_controller_leaves_no_file(tmp_path, capsys):
    assert cli.main(["record", "-o", str(tmp_path / "run"), "--url", "http://127.0.0.1:1"]) == 1
    assert "no controller answers at http://127.0.0.1:1" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_command_records(desk, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Client, "call", lambda self, path, **request: desk.call(path, **request))
    assert cli.main(["record", "-o", str(tmp_path / "run"), "--duration", "0.01"]) == 0
    assert f"recorded {7 * (len(desk.actions) - 1)} intervals in" in capsys.readouterr().out
    assert cli.main(["record", "-o", str(tmp_path / "other"), "--duration", "0"]) == 2


def test_the_command_ends_as_by_ctrl_c_when_it_is_terminated(desk, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Client, "call", lambda self, path, **request: desk.call(path, **request))
    monkeypatch.setattr(recording_files.time, "sleep", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert cli.main(["record", "-o", str(tmp_path / "run")]) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "recorded 7 intervals in" in capsys.readouterr().out
    assert desk.actions == ["start", "stop"]
