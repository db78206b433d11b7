"""Gatekeeper in the real application: drops come by OpenFlow, senders are held, and REST changes what holds."""

from __future__ import annotations

from pathlib import Path

from support.wire import WireRun

M = 1e6
MACS = {1: 0x0200_0000_0001, 2: 0x0200_0000_0002, 3: 0x0200_0000_0003}
OFFERED_BPS = 900 * M
RECEIVER = "/v1/vns/10/s1/3"
# Without `served`, and with a slow rise, senders stay near their parts of the guarantee.
VLANS = {
    10: {
        "send_limit": "400M",
        "receive_limit": "400M",
        "algorithm": "gatekeeper",
        "parameters": {"served": 0, "slope": 0.05},
    },
    20: {"send_limit": "400M", "receive_limit": "400M", "algorithm": "fs"},
}


def test_limit_ceiling_and_weight_change_under_a_flood(tmp_path: Path) -> None:
    with WireRun(tmp_path, {1: [1, 2, 3]}, vlans=VLANS) as run:
        app = run.app

        def set_queue(rate_bps: float) -> None:  # as the controller would, over OVSDB
            with run.fabric.locked():
                run.switch(1).ports[3].set_queue(10, rate_bps, rate_bps)
                run.switch(1).ports[3].set_queue(20, 400 * M, 1000 * M)

        def limits_bps() -> list[float]:
            entries = [app.entry(port, 3, 10) for port in (1, 2)]
            return [entry["limit_bps"] if entry else float("inf") for entry in entries]

        def wait_limits(expected_mbps: list[float], what: str) -> None:
            wanted_bps = [one * M for one in expected_mbps]

            def there() -> bool:
                near = zip(limits_bps(), wanted_bps, strict=True)
                return all(0.99 * wanted <= bps <= 1.25 * wanted for bps, wanted in near)

            app.wait_for(there, what)

        set_queue(400 * M)
        for port, mac in MACS.items():
            run.introduce(1, port, mac)
        for port in (1, 2):
            run.offer((1, port), MACS[port], MACS[3], OFFERED_BPS)
        wait_limits([200, 200], "both at half of the guarantee")
        (event,) = app.events("congestion-notification-sent")
        assert "of its senders of congestion" in event["text"], event
        assert app.get(RECEIVER)["notifications"] >= 2

        app.patch("/v1/vns/10/s1/1", weight=3.0)
        wait_limits([300, 100], "parts by weight")

        app.patch(RECEIVER, receive_limit_bps=200_000_000)
        set_queue(200 * M)
        wait_limits([150, 50], "parts of the new guarantee")

        app.patch(RECEIVER, receive_limit_bps=100_000_000, receive_ceiling_bps=120_000_000)
        set_queue(120 * M)
        app.wait_for(lambda: max(limits_bps()) <= 120 * M, "nobody above the ceiling")
        wait_limits([75, 25], "parts of the guarantee below the ceiling")
