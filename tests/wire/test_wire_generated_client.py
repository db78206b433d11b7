"""A client that a stock generator makes from the description changes limits, also in one transaction, and conflicts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from support.paths import ROOT
from support.rest_server import CONFIG, RestProcess

from apps.settings.tokens import Tokens

GENERATOR = ROOT / "scripts" / "openapi-python-client"
NOT_THERE = 127
SCRIPT = """\
import sys
from dets_controller_client import AuthenticatedClient
from dets_controller_client.api.limits import change_limits as change_many
from dets_controller_client.api.vns import change_vn as change
from dets_controller_client.api.vns import get_vn as show
from dets_controller_client.models import ManyLimits, ManyLimitsLimitsItem, VnPatch

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2])
with client as client:
    before = show.sync_detailed(10, "s1", 1, client=client)
    assert before.parsed.receive_limit_bps == 40_000_000
    tag = before.headers["ETag"]
    done = change.sync_detailed(10, "s1", 1, client=client, body=VnPatch(receive_limit_bps=30_000_000))
    assert (done.status_code, done.parsed.receive_limit_bps) == (200, 30_000_000), done
    again = VnPatch(receive_limit_bps=20_000_000)
    conflict = change.sync_detailed(10, "s1", 1, client=client, body=again, if_match=tag)
    assert conflict.status_code == 412, conflict
    tag = show.sync_detailed(10, "s1", 1, client=client).headers["ETag"]
    assert change.sync_detailed(10, "s1", 1, client=client, body=again, if_match=tag).status_code == 200
    items = [ManyLimitsLimitsItem(vlan_vid=10, switch="s1", port_no=n, send_limit_bps=10_000_000) for n in (1, 2)]
    many = change_many.sync_detailed(client=client, body=ManyLimits(limits=items))
    assert (many.status_code, many.parsed.changed) == (200, 2), many
    assert show.sync(10, "s1", 2, client=client).send_limit_bps == 10_000_000
print("done")
"""


def test_a_generated_client_changes_limits(tmp_path: Path) -> None:
    if subprocess.run([GENERATOR, "--version"], capture_output=True, check=False).returncode == NOT_THERE:
        pytest.skip("OPENAPI-PYTHON-CLIENT CANNOT BE HAD: no client is generated")
    store = tmp_path / "x.db"
    with RestProcess(CONFIG, store, tokens=True) as server:
        tokens = Tokens(str(store))
        token = tokens.create("client", "write")
        tokens.close()
        document = server.request("GET", "/v1/openapi.json")[2]
        (tmp_path / "openapi.json").write_text(json.dumps(document))
        folder = ["--output-path", "made/dets_controller_client", "--meta", "none", "--fail-on-warning"]
        made = subprocess.run(
            [GENERATOR, "generate", "--path", "openapi.json", *folder],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stdout + made.stderr
        url = f"http://127.0.0.1:{server.port}"
        ran = subprocess.run(
            [GENERATOR, "python", "-c", SCRIPT, url, token],
            cwd=tmp_path / "made",
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.stdout == "done\n", ran.stdout + ran.stderr
