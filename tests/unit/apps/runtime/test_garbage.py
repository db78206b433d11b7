"""The heap keeps what it has: rounds that allocate the same columns again cause no page faults."""

import subprocess
import sys

ROUNDS = """
import resource, sys
import numpy as np
from apps.runtime.garbage import keep_memory
if sys.argv[1] == "keep":
    assert keep_memory()
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


def test_the_defaults_fault_pages_in_again_every_round() -> None:
    assert faults("default") > 20 * 100_000 * 8 // 4096
