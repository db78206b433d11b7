"""What REST has acknowledged survives ``kill -9``."""

from __future__ import annotations

import http.client
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from support.rest_server import RestProcess

MANY = (
    "vlans:\n"
    + "".join(f"  {vid}: {{send_limit: 1M, receive_limit: 1M}}\n" for vid in range(1, 26))
    + (
        "switches:\n  s1:\n    dpid: 1\n    ports:\n"
        + "".join(f"      {no}: {{capacity: 1G, trunk: {list(range(1, 26))}}}\n" for no in range(1, 41))
    )
)
PLACES = [(vid, port_no) for port_no in range(1, 41) for vid in range(1, 26)]


@pytest.mark.parametrize("seed", range(2))
def test_what_was_acknowledged_survives_a_kill_amid_a_thousand_writes(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rate_of = {place: chance.randrange(2_000, 40_000) * 1000 for place in PLACES}
    jobs = [PLACES[at : at + 10] for at in range(0, 200, 10)] + [[place] for place in PLACES[200:]]
    chance.shuffle(jobs)
    killed_after = chance.randrange(len(jobs) // 10, len(jobs) * 3 // 4)
    acknowledged: list[tuple[int, int]] = []
    with RestProcess(MANY, tmp_path / "x.db") as server:

        def write(mine: list[list[tuple[int, int]]]) -> None:
            for places in mine:
                try:
                    status = _write(server, places, rate_of)
                except (OSError, http.client.HTTPException):
                    return  # killed
                assert status == 200
                acknowledged.extend(places)
                if len(acknowledged) >= killed_after:
                    server.kill()

        writers = [threading.Thread(target=write, args=(jobs[n::16],)) for n in range(16)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
    assert killed_after <= len(acknowledged) < 1000
    with RestProcess(MANY, tmp_path / "x.db") as server:
        shown = _all_vns(server)
    limits = {(vn["vlan_vid"], vn["port_no"]): (vn["send_limit_bps"], vn["receive_limit_bps"]) for vn in shown}
    new = {place: (rate_bps, rate_bps) for place, rate_bps in rate_of.items()}
    assert {place: limits[place] for place in acknowledged} == {place: new[place] for place in acknowledged}
    for places in jobs:  # of what was not acknowledged: all of it, or nothing
        assert {limits[place] == new[place] for place in places} in ({True}, {False})
        assert all(limits[place] in (new[place], (1_000_000, 1_000_000)) for place in places)


def _all_vns(server: RestProcess) -> list[dict[str, Any]]:
    vns: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = server.request("GET", "/v1/vns" + (f"?cursor={cursor}" if cursor else ""))[2]
        vns += page["vns"]
        cursor = page["next"]
    return vns


def _write(server: RestProcess, places: list[tuple[int, int]], rate_of: dict[tuple[int, int], int]) -> int:
    limits = [
        {"vlan_vid": vid, "switch": "s1", "port_no": port_no}
        | {f"{way}_limit_bps": rate_of[vid, port_no] for way in ("send", "receive")}
        for vid, port_no in places
    ]
    if len(places) > 1:
        return server.request("POST", "/v1/limits", {"limits": limits})[0]
    vid, port_no = places[0]
    body = {name: value for name, value in limits[0].items() if name.endswith("_bps")}
    return server.request("PATCH", f"/v1/vns/{vid}/s1/{port_no}", body)[0]
