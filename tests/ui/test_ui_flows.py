"""What operators do with the web UI, in a real browser, against a running controller with traffic."""

from __future__ import annotations

import json
import re
import signal

import pytest
import yaml
from playwright.sync_api import expect
from support.rest_server import CONFIG

VN = "/v1/vns/10/s2/1"
SWITCH_GONE = ("ERR_", "Failed to load")  # what the browser itself writes when nobody listens


def receive_limit(page):
    return page.get_by_label("Receive limit", exact=True)


def change_receive_limit(page, text):
    field = receive_limit(page)
    field.fill(text)
    field.press("Enter")
    page.get_by_role("button", name="Change it").click()


def reset(lab):
    lab.app.request("DELETE", f"{VN}/overrides")


def test_from_the_fabric_to_the_reason_of_a_rate(lab, open_page):
    page = open_page(lab.url)
    expect(page.get_by_role("heading", name="Fabric")).to_be_visible()
    expect(page.locator(".switch")).to_have_count(3)
    expect(page.locator(".port")).to_have_count(4)
    expect(page.locator(".link")).to_have_count(2)
    expect(page.locator(".link .load").filter(has_text=re.compile("2[3-7] %"))).to_have_count(2)  # 500 of 2000 Mb/s
    expect(page.get_by_text("1 congested")).to_be_visible()
    page.get_by_label("Show only VLAN").select_option("20")
    expect(page.locator(".port.faded")).to_have_count(0)  # both VLANs are at all ports
    page.get_by_role("link", name="10", exact=True).click()
    expect(page).to_have_url(re.compile("#/vlan/10$"))
    expect(page.get_by_role("heading", name="VLAN 10, blue")).to_be_visible()
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="s2:1"))
    state = re.compile("congested|violated")  # a busy machine keeps no guarantee
    expect(row).to_contain_text(state)
    expect(row).to_contain_text(re.compile("(39|40)[0-9.]*M"))
    row.get_by_text(state).click()  # anywhere in the row
    expect(page).to_have_url(re.compile("#/vn/10/s2/1$"))
    expect(page.get_by_text("It throttles s1:1, s1:2.")).to_be_visible()
    why = re.compile("s1:1 is limited to 200 Mb/s by s2:1's receive limit of VLAN 10")
    expect(page.get_by_text(why)).to_be_visible()
    expect(page.locator("figure canvas")).to_be_visible()
    expect(page.locator(".summary")).to_contain_text("of 400 Mb/s")
    page.get_by_text("The chart as a table").click()
    expect(page.locator("figure tbody tr").first).to_contain_text("400M")
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="VLAN 10, blue")).to_be_visible()


def test_the_states_of_ports_are_shown(lab, open_page):
    page = open_page(lab.url)
    page.get_by_text("The map as tables").click()
    rows = page.get_by_label("Rows: Edge ports").locator("tbody tr:not(.space)")
    expect(rows).to_have_count(4)
    expect(rows.first).to_contain_text("eth1")
    expect(rows.first).to_contain_text("up")


def test_a_narrow_screen_has_tables_instead_of_the_map(lab, open_page):
    page = open_page(lab.url, viewport={"width": 600, "height": 800})
    expect(page.get_by_role("row").filter(has_text="s1:9 – c1:1")).to_contain_text("up")
    expect(page.get_by_label("Switches", exact=True).get_by_role("row").filter(has_text="c1")).to_contain_text("ready")
    expect(page.locator(".map")).to_be_hidden()
    expect(page.get_by_text("The map as tables")).to_be_hidden()
    page.set_viewport_size({"width": 601, "height": 800})
    expect(page.locator(".map")).to_be_visible()


@pytest.mark.parametrize("view", ["#/", "#/vlan/10", "#/vn/10/s2/1", "#/guarantees"])
def test_no_column_is_cut_at_1280_pixels(lab, open_page, view):
    page = open_page(lab.url, f"/ui{view}")
    if view == "#/":
        page.get_by_text("The map as tables").click()
    expect(page.locator("td").filter(has_text=re.compile("s[12]:1")).first).to_be_visible()
    expect(page.locator(".health")).not_to_have_text(re.compile("connect"))
    cut = """[...document.querySelectorAll(".virtual, .scroll")].map((one) =>
      [one.getAttribute("aria-label"), one.scrollWidth, one.clientWidth]).filter(([, all, shown]) => all > shown)"""
    assert page.evaluate(cut) == []


def test_addresses_take_names(lab, open_page):
    page = open_page(lab.url, "/ui#/vlan/blue", expected=("status of 404",))
    expect(page.get_by_role("heading", name="VLAN 10, blue")).to_be_visible()
    expect(page).to_have_url(re.compile("#/vlan/10$"))
    page.goto(f"{lab.url}/ui#/vn/blue/s2/s2-1")
    expect(receive_limit(page)).to_have_value("400M")
    expect(page).to_have_url(re.compile("#/vn/10/s2/1$"))
    page.goto(f"{lab.url}/ui#/vn/10/s2/s2-9")
    expect(page.get_by_role("alert")).to_contain_text('s2-9" is not an edge port of switch s2')
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="VLAN 10 at s2:1")).to_be_visible()


def test_a_limit_is_checked_confirmed_in_force_and_taken_back(lab, open_page):
    reset(lab)
    page = open_page(lab.url, "/ui#/vn/10/s2/1")
    field = receive_limit(page)
    expect(field).to_have_value("400M")
    field.fill("100Mbit/s")
    expect(page.locator("#exact-receive_limit_bps")).to_have_text(re.compile("100.000.000 bit/s"))
    field.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("receive limit: 400M → 100M; all of port s2:1 600M of 1G")
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    assert lab.app.get(VN)["receive_limit_bps"] == 400_000_000
    page.get_by_role("button", name="Change it").click()
    expect(page.locator("#limit-answer")).to_contain_text("in force (revision")
    assert lab.app.get(VN)["receive_limit_bps"] == 100_000_000
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#limit-answer")).to_contain_text("in force (revision")
    expect(field).to_have_value("400M")
    assert lab.app.get(VN)["overridden"] == []


def test_the_limit_flow_by_keys_alone(lab, open_page):
    reset(lab)
    page = open_page(lab.url, "/ui#/vlan/10")
    expect(page.get_by_role("link", name="s2:1")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("s2:1")
    expect(page.get_by_text("1 of 4")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(receive_limit(page)).to_have_value("400M")
    page.keyboard.press("e")
    page.keyboard.type("150M")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#limit-answer")).to_contain_text("in force (revision")
    assert lab.app.get(VN)["receive_limit_bps"] == 150_000_000
    page.keyboard.press("Tab")
    reset(lab)


def test_a_refusal_says_what_fits(lab, open_page):
    reset(lab)
    page = open_page(lab.url, "/ui#/vn/10/s2/1", expected=("status of 422",))
    expect(receive_limit(page)).to_have_value("400M")
    receive_limit(page).fill("600M")
    receive_limit(page).press("Enter")
    expect(page.locator("#limit-answer")).to_contain_text("at most 500000000 (500M) fits")
    expect(page.get_by_role("dialog")).to_have_count(0)
    receive_limit(page).fill("many")
    expect(page.locator("#exact-receive_limit_bps")).to_contain_text("write a rate in bit/s")


def test_a_change_meanwhile_is_said_and_not_overwritten(lab, open_page):
    reset(lab)
    page = open_page(lab.url, "/ui#/vn/10/s2/1", expected=("status of 412",))
    expect(receive_limit(page)).to_have_value("400M")
    receive_limit(page).fill("200M")
    receive_limit(page).press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    lab.app.patch(VN, receive_limit_bps=300_000_000)
    page.get_by_role("button", name="Change it").click()
    expect(page.locator("#limit-answer")).to_contain_text("changed meanwhile, by anonymous (revision")
    assert lab.app.get(VN)["receive_limit_bps"] == 300_000_000
    expect(receive_limit(page)).to_have_value("300M")
    reset(lab)


def test_two_tabs_see_each_others_changes(lab, open_page):
    reset(lab)
    first, second = (open_page(lab.url, "/ui#/vn/10/s2/1") for _ in range(2))
    expect(receive_limit(second)).to_have_value("400M")
    expect(receive_limit(first)).to_have_value("400M")
    change_receive_limit(first, "250M")
    expect(receive_limit(second)).to_have_value("250M")
    reset(lab)
    expect(receive_limit(second)).to_have_value("400M")


def test_changes_guarantees_and_events(lab, open_page):
    reset(lab)
    lab.app.patch(VN, receive_limit_bps=350_000_000)
    page = open_page(lab.url, "/ui#/changes")
    page.locator(".changes summary").first.click()
    expect(page.locator(".changes table").first).to_contain_text("receive limit")
    expect(page.locator(".changes table").first).to_contain_text("350M")
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Guarantees").click()
    row = page.get_by_label("Edge ports").get_by_role("row").filter(has_text="s2:1").first
    expect(row).to_contain_text("850M")  # 350 + 500 promised to receive
    expect(row).to_contain_text("150M")  # would fit
    links = page.get_by_label("Links", exact=True).get_by_role("row").filter(has_text="s1:9").first
    expect(links).to_contain_text("1.75G")
    page.get_by_role("link", name="Events").click()
    expect(page.locator(".events li").first).to_be_visible()
    page.get_by_label("Kind").fill("limit-changed")
    expect(page).to_have_url(re.compile(r"#/events\?kind=limit-changed$"))
    expect(page.locator(".events .kind").first).to_have_text("limit-changed")
    assert set(page.locator(".events .kind").all_inner_texts()) == {"limit-changed"}
    before = page.locator(".events li").count()
    page.locator(".events").hover()
    reset(lab)
    expect(page.locator("main .hint")).to_contain_text("Paused")
    assert page.locator(".events li").count() == before
    page.mouse.move(1, 1)
    expect(page.locator(".events li")).to_have_count(before + 1)


def test_a_reload_of_the_configuration_shows_without_a_reload_of_the_page(lab, open_page):
    page = open_page(lab.url, "/ui#/vlan/20")
    expect(page.get_by_role("link", name="s2:2")).to_be_visible()
    before = lab.app.config()
    after = json.loads(json.dumps(before))
    after["vlans"] = {int(vid): one for vid, one in after["vlans"].items()}
    after["switches"]["s2"]["ports"] = {1: before["switches"]["s2"]["ports"][1], 2: {"capacity": "1G", "trunk": [10]}}
    after["switches"]["s1"]["ports"] = before["switches"]["s1"]["ports"]
    try:
        lab.app.config_path.write_text(yaml.safe_dump(after))
        assert lab.app.request("POST", "/v1/reload")[0] == 200
        expect(page.get_by_role("link", name="s2:2")).to_have_count(0)
        expect(page.get_by_role("link", name="s2:1")).to_be_visible()
    finally:
        lab.app.configure(before)
        assert lab.app.request("POST", "/v1/reload")[0] == 200
    expect(page.get_by_role("link", name="s2:2")).to_be_visible()


def test_a_controller_that_dies_and_comes_back(lab, open_page):
    page = open_page(lab.url, expected=SWITCH_GONE)
    expect(page.locator("body.stale")).to_have_count(0)
    page.evaluate("window.stays = true")
    lab.app.send_signal(signal.SIGKILL)
    lab.app.wait_ended()
    expect(page.locator("body.stale")).to_be_attached(timeout=5000)
    expect(page.locator(".health.faulty")).to_have_text(re.compile("stale|no connection"))
    lab.app.start()
    expect(page.locator("body.stale")).to_have_count(0, timeout=60_000)
    expect(page.locator(".health")).not_to_have_text(re.compile("stale|connect"))
    assert page.evaluate("window.stays") is True


def test_markup_in_names_is_text(open_page, serve):
    """Names as they come from elsewhere are shown, whatever stands in them and however long they are."""
    evil = "<img src=x onerror=alert(1)>" + "x" * 35
    url = f"http://127.0.0.1:{serve(CONFIG).port}"
    page = open_page(url, viewport={"width": 320, "height": 640})

    def rename(route):
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace('"vlan10"', json.dumps(evil)))

    page.route("**/v1/vlans/10", rename)
    page.goto(f"{url}/ui#/vlan/10")
    expect(page.get_by_role("heading", name="VLAN 10")).to_contain_text(evil)
    assert page.locator("main img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_port_that_is_configured_by_name_is_called_by_it(open_page, serve):
    url = f"http://127.0.0.1:{serve(CONFIG.replace('1: {capacity', 'eth1: {capacity', 1)).port}"
    page = open_page(url, "/ui#/vn/10/s1/eth1")
    expect(page.get_by_role("heading", name="VLAN 10 at s1:eth1")).to_be_visible()
    expect(page).to_have_title("VLAN 10 at s1:eth1 – DETS")
    change_receive_limit(page, "30M")
    expect(page.get_by_text("in force (revision 2)")).to_be_visible()
    expect(page.get_by_text("VLAN 10 at s1:eth1: in force")).to_be_attached()
