"""The meter settings of a switch in the file."""

from __future__ import annotations

from controller.config.section_reader import read_section
from controller.config.sections import MetersSection
from controller.config.yaml_document import Path, Problem
from controller.fabric.config_model import MeterSettings
from controller.units import format_rate

MIN_BURST_LIMIT_BITS = 40_000  # three frames of 1,522 bytes, in whole kb


def read_meters(path: Path, data: object) -> tuple[MeterSettings, list[Problem]]:
    """Return the settings, and their problems."""
    section, problems = read_section(MetersSection, path, data)
    max_burst, low, high, step = section.max_burst, section.min_rate, section.max_rate, section.rate_step
    if max_burst is not None and max_burst < MIN_BURST_LIMIT_BITS:
        message = f"{format_rate(max_burst)} is below {format_rate(MIN_BURST_LIMIT_BITS)} bits, three frames"
        problems.append(Problem((*path, "max_burst"), message))
    if low is not None and high is not None and low > high:
        message = f"{format_rate(high)} is below min_rate, {format_rate(low)}"
        problems.append(Problem((*path, "max_rate"), message))
    if step is not None and high is not None and step > high:
        message = f"{format_rate(step)} is above max_rate, {format_rate(high)}"
        problems.append(Problem((*path, "rate_step"), message))
    return MeterSettings(max_burst, low, high, step, section.count, section.fail), problems
