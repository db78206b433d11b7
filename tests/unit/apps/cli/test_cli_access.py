"""The operator's commands against a REST interface that asks who is there: tokens, TLS, certificates of clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.rest_server import CONFIG, RestProcess

SET = ["limit", "set", "--vlan", "10", "--port", "s1:1", "--send", "30M"]


def test_tokens_made_by_the_command_let_it_in(dets: Any, tmp_path: Path) -> None:
    store = tmp_path / "dets.db"
    in_store, files = ["--store", str(store)], {}
    for name, scope in (("portal", "read"), ("ops", "write")):
        status, token, _ = dets("token", "create", name, "--scope", scope, *in_store)
        assert (status, token[:5]) == (0, "dets_")
        files[name] = tmp_path / name
        files[name].write_text(token)
    shown = [row.split()[:2] for row in dets("token", "list", *in_store)[1].splitlines()]
    assert (shown[0], sorted(shown[1:])) == (["name", "scope"], [["ops", "write"], ["portal", "read"]])
    twice = "dets: --name: 'ops' is the name of a token already: revoke that first\n"
    assert dets("token", "create", "ops", *in_store)[::2] == (2, twice)
    with RestProcess(CONFIG, store, tokens=True) as server:
        here = ["--url", f"http://127.0.0.1:{server.port}"]
        status, _, err = dets("vn", "list", *here)
        assert status == 2
        assert "dets token" in err
        assert len(err.splitlines()) == 1
        portal, ops = ([*here, "--token-file", str(files[name])] for name in ("portal", "ops"))
        assert dets("vn", "list", *portal)[0] == 0
        assert "portal may only read" in dets(*SET, *portal)[2]
        assert dets(*SET, "--wait", *ops)[:2] == (0, "VLAN 10, s1:1: send 30M (revision 2, in force)\n")
        assert json.loads(dets("history", "-o", "json", *portal)[1])[0]["who"] == "token ops"
        assert dets("token", "revoke", "ops", *in_store)[:2] == (0, "revoked ops\n")
        assert dets("token", "revoke", "ops", *in_store)[0] == 2
        assert dets("vn", "list", *ops)[0] == 2


def test_certificates_made_by_the_command_let_it_in(dets: Any, tmp_path: Path) -> None:
    pki = tmp_path / "pki"
    assert dets("cert", "ca", "--folder", str(pki))[0] == 0
    assert dets("cert", "server", "server", "--host", "127.0.0.1", "--folder", str(pki))[0] == 0
    assert dets("cert", "client", "anna", "--folder", str(pki))[0] == 0
    ca, cert, key = (["--cacert", str(pki / "ca.pem")], str(pki / "anna.pem"), str(pki / "anna.key"))
    tls = {"certificate": str(pki / "server.pem"), "key": str(pki / "server.key"), "client_ca": str(pki / "ca.pem")}
    with RestProcess(CONFIG, tls=tls) as server:
        here = ["--url", f"https://127.0.0.1:{server.port}"]
        status, _, err = dets("vn", "list", *here)
        assert status == 1
        assert "CERTIFICATE_VERIFY_FAILED" in err
        assert "--cacert names the CA" in err
        status, _, err = dets("vn", "list", *here, *ca)
        assert (status, len(err.splitlines())) == (1, 1)
        assert dets(*SET, *here, *ca, "--cert", cert, "--key", key)[0] == 0
        assert json.loads(dets("history", "-o", "json", *here, *ca, "--cert", cert, "--key", key)[1])[0]["who"] == (
            "certificate anna"
        )
        status, _, err = dets("vn", "list", *here, *ca, "--cert", cert, "--key", str(pki / "server.key"))
        assert status == 2
        assert "no certificate and key that belong together" in err


def test_the_store_is_the_one_of_the_configuration(dets: Any, tmp_path: Path) -> None:
    config = tmp_path / "lab.yaml"
    config.write_text(CONFIG)
    assert dets("token", "create", "ops", "--config", str(config))[0] == 0
    assert (tmp_path / "lab.db").stat().st_mode & 0o777 == 0o600
    assert "ops" in dets("token", "list", "--store", str(tmp_path / "lab.db"))[1]
    config.write_text(CONFIG.replace("40M", "400M"))
    status, out, err = dets("token", "list", "--config", str(config))
    assert (status, out) == (2, "")
    assert str(config) in err
    assert dets("token", "create", "ops", "--config", str(tmp_path / "absent.yaml"))[0] == 2
