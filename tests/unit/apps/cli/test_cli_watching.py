"""The operator's commands that watch, ``dets top`` and ``dets events``, against a stand-in for the controller."""

import io
import json
from typing import Any

import pytest
from rich.console import Console
from support.fake_rest_server import VLAN, VN, FakeRestServer, PreparedResponse, lines

from apps import cli
from apps.cli.commands import monitoring
from apps.cli.support.rest_client import Client, RequestError

EVENT = {"number": 7, "at_s": 1.5, "at": "2026-01-01T00:00:00Z", "kind": "limit-changed", "text": "VLAN 10 at sw1:3"}


def stream(*states: tuple[str, Any]) -> PreparedResponse:
    text = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in states)
    return PreparedResponse(raw=(": hello\n\n" + text).encode(), content_type="text/event-stream")


def live_vns(revision: int, columns: dict[str, list[int | None]], **more: Any) -> list[tuple[str, Any]]:
    keys = {"columns": list(columns), "vns": [[10, "sw1", 3], [10, "sw1", 4]]}
    return [("keys", keys), ("state", {"revision": revision, "rows": list(columns.values()), "congested": [], **more})]


def live_vlans(vlans: dict[int, int], columns: dict[str, list[int | None]]) -> list[tuple[str, Any]]:
    keys = {"columns": list(columns), "vlans": [[vid, f"tenant-{vid}"] for vid in vlans]}
    return [("keys", keys), ("state", {"revision": 0, "rows": list(columns.values()), "congested": [*vlans.values()]})]


def test_top_shows_the_busiest_first_with_what_was_set_of_them(desk: FakeRestServer, dets: Any) -> None:
    live: dict[str, list[int | None]] = {"received": [1000, 2000], "offered": [2000, 2000], "dropped": [1000, 1000]}
    live |= {"granted": [None, None], "sent": [0, 0], "send_limit_dropped": [3000, 0]}
    live |= {"flooded": [100, 100], "flood_dropped": [10_000, 10_000]}
    (keys, first), (_, second) = (live_vns(revision, live) for revision in (1, 2))
    desk.on("GET", "/v1/stream", stream(keys, first, ("event", EVENT), first, second))
    rows = [VN, {**VN, "port_no": 4}]
    desk.on(
        "GET",
        "/v1/vns",
        {"vns": rows, "next": None},
        {"vns": [{**row, "send_limit_bps": 10**6} for row in rows], "next": None},
    )
    status, out, _ = dets("top", "--vlan", "10", "--count", "3", "--interval", "0.5")
    assert status == 0
    assert desk.asked[0].query == {"vlan": "10", "interval_ms": "500", "count": "3"}
    table = lines(out)
    assert len(table) == 9
    assert table[1] == ["10", "sw1:4", "400M", "0", "0", "100k", "10M", "1.5G", "2M", "2M", "1M", "-", "-", "-", "no"]
    assert table[2] == ["10", "sw1:3", "400M", "0", "3M", "100k", "10M", "1.5G", "2M", "1M", "1M", "-", "-", "-", "no"]
    assert table[7][2] == "1M"
    assert len([one for one in desk.asked if one.path == "/v1/vns"]) == 2


def test_top_shows_what_policies_report_and_only_where_one_does(desk: FakeRestServer, dets: Any) -> None:
    columns: dict[str, list[int | None]] = {"received": [8, 0], "marked": [1, None], "lost": [None, None]}
    desk.on("GET", "/v1/stream", stream(*live_vns(1, columns, bottlenecks=["link sw1:9 (receiving)", None])))
    desk.lists("/v1/vns", VN)
    heads, row, _ = dets("top", "--vlan", "10", "--count", "1")[1].splitlines()
    assert "granted  marked  bottleneck              queue drops" in heads
    assert "   12.5%  link sw1:9 (receiving)  " in row
    desk.on("GET", "/v1/stream", stream(*live_vlans({10: 0}, {"received": [6], "marked": [0], "lost": [3]})))
    desk.lists("/v1/vlans", VLAN)
    heads, row = dets("top", "--count", "1")[1].splitlines()
    assert heads.split()[-2:] == ["marked", "lost"]
    assert row.split()[-2:] == ["0.0%", "50.0%"]


def test_top_shows_vlans(desk: FakeRestServer, dets: Any) -> None:
    columns: dict[str, list[int | None]] = {"received": [5], "offered": [5], "granted": [6], "dropped": [0]}
    columns["send_limit_dropped"] = [7]
    desk.on("GET", "/v1/stream", stream(*live_vlans({10: 1}, columns)))
    desk.lists("/v1/vlans", VLAN)
    status, out, err = dets("top")
    assert lines(out)[1] == ["10", "tenant-10", "fp", "3", "1", "5k", "5k", "0", "6k", "7k"]
    assert (status, err) == (1, "dets: the controller has ended the stream\n")


def test_top_leaves_a_state_out_that_is_of_other_keys(desk: FakeRestServer, dets: Any) -> None:
    keys, state = live_vlans({10: 1}, {"received": [5]})
    other = ("state", {**state[1], "rows": [[5, 6]]})
    desk.on("GET", "/v1/stream", stream(keys, other, state))
    desk.lists("/v1/vlans", VLAN)
    assert len(lines(dets("top", "--count", "1")[1])) == 2


def test_top_fits_the_height_of_a_terminal(desk: FakeRestServer, dets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=120, height=3, color_system=None)
    monkeypatch.setattr(monitoring, "console", lambda: terminal)
    desk.on("GET", "/v1/stream", stream(*live_vlans({10: 0, 30: 0, 20: 0}, {"received": [10, 30, 20]})))
    desk.lists("/v1/vlans")
    assert dets("top", "--count", "1")[:2] == (0, "")
    shown = screen.getvalue()
    assert [word for word in ("10", "20", "30") if f" {word} " in shown] == ["20", "30"]


@pytest.mark.parametrize("of_vlans", [False, True])
def test_top_fits_80_columns(desk: FakeRestServer, dets: Any, monkeypatch: pytest.MonkeyPatch, of_vlans: bool) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=80, height=24, color_system=None)
    monkeypatch.setattr(monitoring, "console", lambda: terminal)
    columns: dict[str, list[int | None]] = {name: [987654] for name in ("received", "offered", "granted", "dropped")}
    if of_vlans:
        desk.on("GET", "/v1/stream", stream(*live_vlans({10: 0}, columns)))
        desk.lists("/v1/vlans", VLAN)
    else:
        desk.on("GET", "/v1/stream", stream(*live_vns(1, {name: 2 * of for name, of in columns.items()})))
        desk.lists("/v1/vns", VN)
    assert dets("top", "--count", "1", *(() if of_vlans else ("--vlan", "10")))[:2] == (0, "")
    heads = next(line for line in screen.getvalue().splitlines() if "VLAN" in line)
    assert all(title in heads for title in ("offered", "received", "dropped", "granted", "congested"))
    assert ("receive limit" in heads) != of_vlans
    assert "notifications" not in heads
    assert "send limit drops" not in heads


def test_events_are_told(desk: FakeRestServer, dets: Any) -> None:
    desk.on("GET", "/v1/events", {"events": [EVENT], "last": 7})
    out = dets("events", "--after", "3")[1]
    assert lines(out)[1] == ["7", "2026-01-01T00:00:00Z", "limit-changed", "VLAN", "10", "at", "sw1:3"]
    assert desk.last().query == {"after": "3"}


def test_events_are_followed_over_a_restart_of_the_controller(
    desk: FakeRestServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(monitoring, "POLL_INTERVAL_S", 0.0)
    first, second, anew = ({**EVENT, "number": number} for number in (7, 8, 1))
    answers = iter(
        [
            {"events": [first], "last": 7},
            {"events": [second], "last": 8},
            RequestError("no controller answers"),
            RequestError("no controller answers"),
            {"events": [], "last": 1},
            {"events": [anew], "last": 1},
            RequestError("the token is worthless", 401),
        ]
    )
    seen = []

    def call(self: Client, path: str, *, query: Any = None, shape: Any) -> Any:
        seen.append((query or {}).get("after"))
        answer = next(answers)
        if isinstance(answer, RequestError):
            raise answer
        return answer

    monkeypatch.setattr(Client, "call", call)
    assert cli.main(["events", "--follow", "-o", "json"]) == 2
    said = capsys.readouterr()
    assert [json.loads(line)["number"] for line in said.out.splitlines()] == [7, 8, 1]
    assert seen == [0, 7, 8, 8, 8, None, 1]
    assert said.err == "dets: no controller answers; waiting for it\ndets: the token is worthless\n"
