"""The heap keeps what it has: rounds that allocate the same columns again cause no page faults."""

import gc
import subprocess
import sys

from apps.runtime.memory_tuning import gc_paused

ROUNDS = """
import resource, sys
import numpy as np
from apps.runtime.memory_tuning import disable_heap_trimming
if sys.argv[1] == "keep":
    assert disable_heap_trimming()
def a_round():
    return [np.ones(100_000) for _ in range(40)]
a_round(); a_round()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    a_round()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", ROUNDS, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_columns_of_the_last_round_are_used_again() -> None:
    assert faults("keep") < 20
    assert faults("default") > 20 * 100_000 * 8 // 4096, "without it all pages are faulted in again every round"


PEAK = """
from pathlib import Path
import numpy as np
from apps.runtime.memory_tuning import trim_heap, disable_heap_trimming

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

disable_heap_trimming()
large, kept = [], []
for _ in range(640):
    large.append(np.ones(100_000, np.uint8))
    kept.append(np.ones(100, np.uint8))
del large
before = resident_bytes()
trim_heap()
print(before - resident_bytes())
"""


def test_what_a_peak_took_goes_back_though_something_stays_between() -> None:
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 40e6


def test_a_collector_that_rests_goes_on_resting() -> None:
    states = []
    try:
        for before in (gc.enable, gc.disable):
            before()
            with gc_paused():
                states.append(gc.isenabled())
            states.append(gc.isenabled())
    finally:
        gc.enable()
    assert states == [False, True, False, False]
