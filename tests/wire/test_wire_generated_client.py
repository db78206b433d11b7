"""Clients that stock generators make from the description change limits, also in one transaction, and conflicts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from support.paths import ROOT
from support.rest_server import CONFIG, RestProcess

from apps.settings.tokens import Tokens

GENERATOR = ROOT / "scripts" / "openapi-client"
NOT_THERE = 127
BORROWS = CONFIG.replace("receive_limit: 40M}", "receive_limit: 40M, algorithm: max-min}")
PYTHON = """\
import sys
from dets_client import AuthenticatedClient
from dets_client.api.limits import change_limits as change_many
from dets_client.api.vns import change_vn as change
from dets_client.api.vns import get_vn as show
from dets_client.models import ManyLimits, ManyLimitsLimitsItem, VnPatch

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
TYPESCRIPT = """\
import { changeLimits, changeVn, getVn } from "./dets_client";
import { client } from "./dets_client/client.gen";

declare const process: { argv: string[] };
const [baseUrl, token] = process.argv.slice(2);
client.setConfig({ baseUrl, auth: token });
const path = { vlan_vid: "10", switch: "s1", port_no: "1" };
const expect = (found: unknown, expected: unknown) => {
  if (found !== expected) throw new Error(`${found}, and not ${expected}`);
};
async function main(): Promise<void> {
  const before = await getVn({ path });
  expect(before.data?.receive_limit_bps, 40_000_000);
  const tag = before.response!.headers.get("ETag")!;
  const done = await changeVn({ path, body: { receive_limit_bps: 30_000_000 } });
  expect(done.data?.receive_limit_bps, 30_000_000);
  const again = { receive_limit_bps: 20_000_000 };
  const conflict = await changeVn({ path, body: again, headers: { "If-Match": tag } });
  expect(conflict.response!.status, 412);
  expect(conflict.error?.status, 412);
  const newer = (await getVn({ path })).response!.headers.get("ETag")!;
  expect((await changeVn({ path, body: again, headers: { "If-Match": newer } })).response!.status, 200);
  const limits = [1, 2].map((port_no) => ({ vlan_vid: 10, switch: "s1", port_no, send_limit_bps: 10_000_000 }));
  expect((await changeLimits({ body: { limits } })).data?.changed, 2);
  expect((await getVn({ path: { ...path, port_no: "2" } })).data?.send_limit_bps, 10_000_000);
  console.log("done");
}
main();
"""
GO = """\
package main

import (
\t"context"
\t"fmt"
\t"net/http"
\t"os"

\t"dets.example/use/dets"
\t"github.com/oapi-codegen/nullable"
)

func expect(found, expected any) {
\tif found != expected {
\t\tpanic(fmt.Sprintf("%v, and not %v", found, expected))
\t}
}

func must[T any](value T, err error) T {
\tif err != nil {
\t\tpanic(err)
\t}
\treturn value
}

func main() {
\tctx := context.Background()
\tauthorize := func(_ context.Context, request *http.Request) error {
\t\trequest.Header.Set("Authorization", "Bearer "+os.Args[2])
\t\treturn nil
\t}
\tclient := must(dets.NewClientWithResponses(os.Args[1], dets.WithRequestEditorFn(authorize)))
\tshow := func() *dets.GetVnResponse { return must(client.GetVnWithResponse(ctx, "10", "s1", "1")) }
\tchange := func(tag *string, body dets.VnPatch) *dets.ChangeVnResponse {
\t\treturn must(client.ChangeVnWithResponse(ctx, "10", "s1", "1", &dets.ChangeVnParams{IfMatch: tag}, body))
\t}
\tlimit := func(bps int64) dets.VnPatch { return dets.VnPatch{ReceiveLimitBps: &bps} }
\tbefore := show()
\texpect(before.JSON200.ReceiveLimitBps, int64(40_000_000))
\ttag := before.HTTPResponse.Header.Get("ETag")
\texpect(change(nil, limit(30_000_000)).JSON200.ReceiveLimitBps, int64(30_000_000))
\texpect(change(&tag, limit(20_000_000)).StatusCode(), 412)
\ttag = show().HTTPResponse.Header.Get("ETag")
\texpect(change(&tag, limit(20_000_000)).StatusCode(), 200)
\tceiling := dets.VnPatch{ReceiveCeilingBps: nullable.NewNullableWithValue(int64(50_000_000))}
\texpect(change(nil, ceiling).StatusCode(), 200)
\texpect(must(show().JSON200.ReceiveCeilingBps.Get()), int64(50_000_000))
\texpect(change(nil, dets.VnPatch{ReceiveCeilingBps: nullable.NewNullNullable[int64]()}).StatusCode(), 200)
\texpect(show().JSON200.ReceiveCeilingBps.IsNull(), true)
\tfmt.Println("done")
}
"""
PROGRAMS = {"python": ("use.py", PYTHON), "typescript": ("use.ts", TYPESCRIPT), "go": ("main.go", GO)}


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([GENERATOR, *command], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_generated_client_changes_limits(tmp_path: Path, language: str) -> None:
    if run(tmp_path, language, "version").returncode == NOT_THERE:
        pytest.skip(f"NO GENERATOR FOR {language.upper()}: make setup could not fetch it, no client is generated")
    store = tmp_path / "x.db"
    with RestProcess(BORROWS, store, tokens=True) as server:
        tokens = Tokens(str(store))
        token = tokens.create("client", "write")
        tokens.close()
        version = "3.0" if language == "go" else "3.1"
        document = server.request("GET", f"/v1/openapi.json?version={version}")[2]
        (tmp_path / "openapi.json").write_text(json.dumps(document))
        made = run(tmp_path, language, "generate")
        assert made.returncode == 0, made.stdout + made.stderr
        name, program = PROGRAMS[language]
        (tmp_path / name).write_text(program)
        ran = run(tmp_path, language, "run", name, f"http://127.0.0.1:{server.port}", token)
        assert ran.stdout == "done\n", ran.stdout + ran.stderr
