"""What one controller leaves to the next one of what its tests of a switch have shown."""

from __future__ import annotations

import pytest

from controller.capability.capabilities import Ability, Capabilities, ProbeResult
from controller.errors import InvalidValueError
from controller.fabric.config_model import MeterSettings
from controller.fabric.meter_bounds import MeterBounds
from controller.openflow.constants import MeterFlags
from controller.openflow.meters import MeterFeatures
from controller.openflow.multipart import SwitchDesc
from controller.partition.probe_results import encode_probe_results, import_probe_results

FEATURES = MeterFeatures(1000, 2, MeterFlags.KBPS | MeterFlags.STATS, 1, 0)
DESCRIPTION = SwitchDesc("Nicira", "Open vSwitch", "3.1.0", "None", "")
WORKS, FAILS = Ability(ProbeResult.WORKS), Ability(ProbeResult.FAILS, "it is refused")


def switch() -> Capabilities:
    return Capabilities(features=FEATURES, description=DESCRIPTION, meters=WORKS, counters=WORKS, set_queue=FAILS)


def test_what_was_tested_elsewhere_is_known_without_a_test() -> None:
    data, can = encode_probe_results(switch()), Capabilities()
    assert data is not None
    import_probe_results(can, data)
    assert (can.tested, can) == (True, switch())


def test_bounds_of_meters_are_passed_on_and_what_was_told_here_counts_more() -> None:
    tested, can = switch(), Capabilities(configured_bounds=MeterSettings(max_burst_bits=40_000_000))
    tested.learn_bounds(MeterBounds(rate_step_kbps=65, max_burst_kbits=32_000))
    data = encode_probe_results(tested)
    assert data is not None
    import_probe_results(can, data)
    assert can.bounds == MeterBounds(rate_step_kbps=65, max_burst_kbits=40_000)
    for bad in (b"[1, 0, 1, 1, 1]", b"[1, 1, 1]", b'["x"]'):
        with pytest.raises(InvalidValueError):
            import_probe_results(Capabilities(), data.replace(b"[1, 4294967295, 65, 1, 32000]", bad))


def test_nothing_is_passed_on_of_meters_that_do_not_work_or_were_not_tested() -> None:
    for meters, counters in ((FAILS, WORKS), (WORKS, FAILS), (WORKS, Ability()), (Ability(), Ability())):
        can = switch()
        can.meters, can.counters = meters, counters
        assert encode_probe_results(can) is None
    assert encode_probe_results(Capabilities(profile="full")) is None


def test_a_test_here_counts_more() -> None:
    data, can = encode_probe_results(switch()), switch()
    assert data is not None
    can.set_queue = WORKS
    import_probe_results(can, data)
    assert can.set_queue == WORKS


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"description": [1], "features": [1, 2, 3, 4, 5]}', b"\xff"])
def test_what_is_not_that_is_refused_and_changes_nothing(data: bytes) -> None:
    can = Capabilities()
    with pytest.raises(InvalidValueError, match="is not a switch's test results"):
        import_probe_results(can, data)
    assert can == Capabilities()
