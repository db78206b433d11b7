"""Tokens in the web UI: who may only read sees no controls, and a token is nowhere but in memory."""

from __future__ import annotations

from playwright.sync_api import expect
from support.rest_server import CONFIG, VN

from apps.settings.tokens import Tokens

PAGE = "/ui#/vn/10/s1/1"
REFUSED = ("status of 401",)


def log_in(page, token, keep=False):
    page.get_by_label("Token").fill(token)
    if keep:
        page.get_by_label("Keep it").check()
    page.get_by_role("button", name="Log in").click()


def test_scopes_and_wrong_tokens(open_page, serve, tmp_path):
    store = tmp_path / "x.db"
    server = serve(CONFIG, store, tokens=True)
    tokens = Tokens(str(store))
    reads, writes = tokens.create("reader", "read"), tokens.create("writer", "write")
    tokens.close()
    url = f"http://127.0.0.1:{server.port}"
    page = open_page(url, PAGE, expected=REFUSED)
    log_in(page, "dets_nobodys")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("unknown or was revoked")
    log_in(page, reads)
    expect(page.get_by_text("token reader, may read")).to_be_visible()
    expect(page.get_by_role("heading", name="About it")).to_be_visible()
    expect(page.get_by_role("heading", name="Limits")).to_have_count(0)
    page.keyboard.press("e")
    expect(page.get_by_label("Receive limit", exact=True)).not_to_be_focused()
    for where in ("sessionStorage", "localStorage"):
        assert reads not in page.evaluate(f"JSON.stringify({where})")
    assert reads not in page.url
    assert page.context.cookies() == []
    page.reload()
    log_in(page, writes, keep=True)
    expect(page.get_by_text("token writer, may change")).to_be_visible()
    expect(page.get_by_role("heading", name="Limits")).to_be_visible()
    page.reload()
    expect(page.get_by_text("token writer, may change")).to_be_visible()
    assert writes not in page.evaluate("JSON.stringify(localStorage)")


def test_what_the_page_is_served_with(serve):
    server = serve(CONFIG)
    status, headers, text = server.request("GET", "/ui")
    assert status == 200
    assert '<script src="ui/vendor/uPlot' in text
    assert "style=" not in text
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-cache", "no-referrer")
    assert headers["X-Content-Type-Options"] == "nosniff"
    etag = server.request("GET", "/ui/app.js")[1]["ETag"]
    again = server.request("GET", "/ui/app.js", headers={"If-None-Match": etag})
    assert again[0] == 304
    for path in ("/ui/", "/ui/../dets.py", "/ui/views", "/ui/views/none.js"):
        assert server.request("GET", path)[0] == 404, path
    assert server.request("POST", "/ui/app.js", {})[0] == 405
    assert server.request("GET", VN)[0] == 200
