"""A configuration in several files is that of one file, and what is wrong is named with the file that it is in."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from apps import config_reader
from controller.config import included_files
from controller.config.loader import load_config, parse_config
from controller.config.yaml_document import ConfigError

MAIN = """\
include: [tenants.yaml, "racks/*.yaml"]
control: {interval_ms: 60}
vlans:
  10-20: {send_limit: 10M, receive_limit: 10M}
links:
  - {between: ["s1:9", "s2:9"], capacity: 10G}
"""
TENANTS = "vlans:\n  12: {name: gold, send_limit: 20M}\n"
RACK_1 = "switches:\n  s1: {dpid: 1, ports: {1-4: {capacity: 1G, access: 12}}}\n"
RACK_2 = """\
links:
  - {between: ["s1:8", "s2:8"], capacity: 10G}
switches:
  s2: {dpid: 2, ports: {1: {capacity: 1G, trunk: [10-20]}}}
"""
WHOLE = """\
control: {interval_ms: 60}
vlans:
  10-20: {send_limit: 10M, receive_limit: 10M}
  12: {name: gold, send_limit: 20M}
links:
  - {between: ["s1:9", "s2:9"], capacity: 10G}
  - {between: ["s1:8", "s2:8"], capacity: 10G}
switches:
  s1: {dpid: 1, ports: {1-4: {capacity: 1G, access: 12}}}
  s2: {dpid: 2, ports: {1: {capacity: 1G, trunk: [10-20]}}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "racks").mkdir()
    for name, text in {"dets": MAIN, "tenants": TENANTS, "racks/1": RACK_1, "racks/2": RACK_2}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def refused(name: str = "dets.yaml") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(name)
    return str(caught.value).splitlines()


def test_several_files_are_one_configuration(folder: Path) -> None:
    whole = dataclasses.asdict(parse_config(WHOLE, "dets.yaml"))
    assert dataclasses.asdict(load_config("dets.yaml")) == whole
    os.chdir("/")  # what is included is beside the main file, wherever the process is
    assert load_config(folder / "dets.yaml").links == parse_config(WHOLE).links


def test_a_small_file_that_includes_others_is_read_in_a_process(folder: Path) -> None:
    found = config_reader.read("dets.yaml", lambda function, *arguments: function(*arguments))
    assert found == load_config("dets.yaml")
    assert not config_reader._is_small("dets.yaml")
    assert config_reader._is_small("tenants.yaml")


@pytest.mark.parametrize(
    ("file", "old", "new", "line"),
    [
        ("tenants", "20M", "20X", "tenants.yaml:2:32: vlans.12.send_limit: '20X' is not a rate"),
        ("racks/2", '"s2:8"', '"s3:8"', "racks/2.yaml:2:24: links[0].between"),
        ("racks/2", "dpid: 2", "dpid: 1", "racks/2.yaml:4:14: switches.s2.dpid: 0000000000000001 is also the dpid of "),
        ("racks/2", "s2: {", "s1: {", "racks/2.yaml:4:3: switches.s1: is in two files (line 2 of racks/1.yaml)"),
        ("tenants", "12:", "10-20:", "tenants.yaml:2:3: vlans.10-20: is in two files (line 4 of dets.yaml)"),
        ("tenants", "12: {name", "19-21: {name", "tenants.yaml:2:11: vlans.19-21.name: cannot apply to all of 19-21"),
        ("tenants", "vlans:", "control:", "tenants.yaml:1:1: control: is not for an included file: these hold vlans,"),
        ("tenants", TENANTS, "vlans: 7", "tenants.yaml:1:8: vlans: is no section"),
        ("tenants", TENANTS, "links: {a: 1}", "tenants.yaml:1:8: links: is no list"),
        ("tenants", TENANTS, "7", "dets.yaml:1:11: include[0]: tenants.yaml holds no sections"),
        ("tenants", TENANTS, "", "tenants.yaml: the file is empty"),
        ("tenants", "12:", "12: [", "tenants.yaml:"),
        ("dets", "tenants.yaml", "absent.yaml", "dets.yaml:1:11: include[0]: absent.yaml: cannot be read: No such"),
        ("dets", "tenants.yaml", "racks", "dets.yaml:1:11: include[0]: racks: cannot be read: Is a directory"),
        ("dets", "tenants.yaml", "dets.yaml", "dets.yaml:1:11: include[0]: dets.yaml is read already"),
        ("dets", "tenants.yaml", "racks/1.yaml", "dets.yaml:1:25: include[1]: racks/1.yaml is read already"),
        ("dets", "racks/*", "rack/*", "dets.yaml:1:25: include[1]: no file is called rack/*.yaml"),
        ("dets", "tenants.yaml", "7", "dets.yaml:1:11: include[0]: 7 is not the name of a file"),
        ("dets", '[tenants.yaml, "racks/*.yaml"]', "7", "dets.yaml:1:10: include: 7 is not a list: write [7]"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(folder: Path, file: str, old: str, new: str, line: str) -> None:
    path = folder / f"{file}.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    assert [one for one in refused() if one.startswith(line)], refused()


def test_all_files_together_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(included_files, "MAX_FILES", 2)
    assert "dets.yaml:1:25: include[1]: racks/2.yaml is one file too many: there can be 2 at most" in refused()
    monkeypatch.setattr(included_files, "MAX_FILES", 9)
    monkeypatch.setattr(included_files, "MAX_FILE_BYTES", 320)
    assert "dets.yaml:1:25: include[1]: makes the files larger than 320 bytes in all" in refused()


def test_a_text_that_is_in_no_folder_includes_nothing(folder: Path) -> None:
    with pytest.raises(ConfigError, match="is not the name of a file that can be included here"):
        parse_config(MAIN)
