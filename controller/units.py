"""Rates and numbers as text, rates in bits per second (k, M and G are powers of 1000, as in OpenFlow and OVSDB).

Bounds of weights and of the control interval.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from controller.errors import InvalidValueError

BITS_PER_BYTE = 8
_SCALE = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_RATE_FORMS = "is not a rate: write bits per second, such as 400M, 1.5G or 64000"
_UNITS = "there are k, M, G and T, and bit/s, b/s, bps or bit may follow (here kbps is kilobits, in tc it is kilobytes)"
_OTHER_UNIT = re.compile(r"[0-9.]+\s*([^\W\d].*)")
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kMGT]?)(?:bit/s|bps|bit|b/s)?")

# OFPMT_BAND_DROP carries the rate as a uint32 of kb/s (OpenFlow 1.3.5, section 7.3.4.4), so this is the largest rate
# that a meter can be set to, and one kb/s the smallest.
MIN_RATE_BPS = 1_000
MAX_RATE_BPS = (2**32 - 1) * 1_000

# A larger ratio of weights is a mistake, and their sums would lose small weights to rounding.
MIN_WEIGHT = 1e-6
MAX_WEIGHT = 1e6

# The control interval: a shorter one has no time for slow switches, a longer one controls nothing.
MIN_INTERVAL_MS, MAX_INTERVAL_MS = 10, 10_000


def parse_rate(text: object, key: str = "rate") -> int:
    """Return bits per second for ``400M``, ``1.5G``, ``64k`` or a whole number of bits per second.

    ``bit/s``, ``b/s``, ``bps`` or ``bit`` may follow, as other tools write it: ``400Mbit``.

    Raises InvalidValueError, naming ``key``, for anything else and for rates a meter cannot carry.
    """
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise InvalidValueError(key, text, _RATE_FORMS)
    match = _RATE.fullmatch(str(text).strip())
    if match is None:
        other = _OTHER_UNIT.fullmatch(str(text).strip())
        unknown = f"; {other[1][:20]!r} is no unit: {_UNITS}" if other is not None else ""
        raise InvalidValueError(key, text, _RATE_FORMS + unknown)
    exact = Decimal(match[1]) * _SCALE[match[2]]
    if exact != int(exact):
        raise InvalidValueError(key, text, "is not a whole number of bits per second")
    return check_rate_bps(int(exact), key, text)


def check_rate_bps(rate_bps: int, key: str, shown: object = None) -> int:
    """Return ``rate_bps`` if a meter can carry it; otherwise raise InvalidValueError naming ``key`` and the limit."""
    if not MIN_RATE_BPS <= rate_bps <= MAX_RATE_BPS:
        reason = (
            f"is outside {format_rate(MIN_RATE_BPS)} to {format_rate(MAX_RATE_BPS)}, what an OpenFlow meter can carry"
        )
        raise InvalidValueError(key, rate_bps if shown is None else shown, reason)
    return rate_bps


def exact_rate(rate_bps: int) -> str:
    """Return the exact rate as text for input: ``37.5M``, ``123.456789M``."""
    for suffix in ("T", "G", "M", "k"):
        if rate_bps >= _SCALE[suffix]:
            return f"{Decimal(rate_bps) / _SCALE[suffix]:f}{suffix}"
    return str(rate_bps)


def format_rate(rate_bps: float) -> str:
    """Return a rate as text with at most four significant digits: ``37.5M``."""
    for suffix in ("T", "G", "M", "k"):
        if abs(rate_bps) >= _SCALE[suffix]:
            return f"{rate_bps / _SCALE[suffix]:.4g}{suffix}"
    return f"{rate_bps:.4g}"


def with_whole_numbers(value: Any) -> Any:
    """Return whole floats as int, also those in a mapping, so that 2 is not shown as 2.0; other values unchanged."""
    if isinstance(value, Mapping):
        return {key: with_whole_numbers(one) for key, one in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_interval_ms(interval_ms: int) -> int:
    """Return a control interval; raise InvalidValueError for one out of bounds."""
    if not MIN_INTERVAL_MS <= interval_ms <= MAX_INTERVAL_MS:
        reason = f"is outside {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS}"
        raise InvalidValueError("interval_ms", interval_ms, reason)
    return interval_ms
