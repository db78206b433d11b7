"""The configuration that a process starts with is read once."""

from __future__ import annotations

from pathlib import Path

from apps.runtime import first_config

CONFIG = "vlans: {10: {send_limit: 40M, receive_limit: 40M}}\nswitches: {s1: {dpid: 1}}\n"


def test_what_is_known_is_taken_once_and_then_read_again(tmp_path: Path) -> None:
    path = tmp_path / "dets.yaml"
    path.write_text(CONFIG)
    known = first_config.preload(str(path))
    path.write_text(CONFIG.replace("dpid: 1", "dpid: 2"))
    assert first_config.pop(str(path)) is known
    assert known.switches["s1"].dpid == 1
    assert first_config.pop(str(path)).switches["s1"].dpid == 2
