"""``dets bench loop``: cost of one interval of the real controller, by the number of metered pairs.

For every size there are two processes: the controller (``dets run``, under Ryu) and its switches (``switch_process``),
connected by OpenFlow over loopback. The switches hold flows and meters when the controller connects, as after a
restart, so it adopts them. Then every pair is measured, allocated and set to another rate in every interval, and in a
second run every tenth pair. The baseline (``baseline_ryu``) does the same job for the same switches with stock Ryu
handlers and parsers, in plain Python.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np

from apps.cli.support.recording_files import record, replayed
from controller.units import MAX_INTERVAL_MS, MIN_INTERVAL_MS
from experiments.bench.harness import Target, check_bounds, finished, markdown, resident_bytes, spread
from experiments.bench.loop import surge_reaction
from experiments.bench.loop.cost_fit import fit
from experiments.bench.loop.report import COLUMNS, SWITCHES, VARIED, rows_all_varying, targets
from experiments.bench.loop.switch_process import OFFERED, LoopPlan
from experiments.machine.controller_process import ROOT, ControllerProcess, free_ports
from experiments.machine.cpu_usage import process_cpu_s
from experiments.machine.process_runner import STOP_TIMEOUT_S, end, wait_until

INTERVAL_MS = 55
# (switches, pairs of each), all set: enough values of either to fit the cost of each. Those of ten switches have a
# baseline.
GRID = ((10, 100), (10, 1_000), (10, 10_000), (50, 200), (200, 100), (200, 500))
# More pairs than 10 switches have meter ids for, or stock Ryu time for within a minute: so more switches, a longer
# interval, no baseline.
LARGEST, LARGEST_SWITCHES, LARGEST_INTERVAL_MS = 1_000_000, 20, 1_000
BASELINE_OFFERED = 1.4  # the baseline changes no rate of a receiver below its limit
MEASURED_S = 6.0
SETTLE_S = 3.0
FIRST_AUDIT_S = 12.0  # the first audit reads every pair; later audits read only changes
# Up to this size some intervals are recorded and replayed: a recording holds every reading of every pair.
MAX_RECORDED, RECORDED_S = 10_000, 2.0
ADOPT_TIMEOUT_S = 600.0
MAX_PER_SWITCH = 60_000  # of 65,535 meter ids, the VNs' own included
# Up to this size the controller's cost is also measured without traffic, once all senders count as idle.
MAX_IDLE, IDLE_AFTER_S = 1_000, 5.0
TARGET_BLAST = 1.6  # intervals


@dataclass(frozen=True, slots=True)
class Size:
    """One size: ``switches`` with ``pairs_per_switch`` pairs each."""

    switches: int
    pairs_per_switch: int
    interval_ms: int
    baseline: bool = True


def sizes_of(switches: int, pairs_per_switch: int | None, interval_ms: int) -> list[Size]:
    """Return the sizes to measure; ``pairs_per_switch`` None: the grid."""
    if pairs_per_switch is not None:
        return [Size(switches, pairs_per_switch, interval_ms)]
    grid = [
        Size(switch_count, pair_count, interval_ms, baseline=switch_count == SWITCHES)
        for switch_count, pair_count in GRID
    ]
    return [*grid, Size(LARGEST_SWITCHES, LARGEST // LARGEST_SWITCHES, LARGEST_INTERVAL_MS, baseline=False)]


def run(
    switches: Annotated[int, "How many switches."] = SWITCHES,
    pairs: Annotated[int | None, "Metered pairs of each switch; by default 1,000 to a million in total."] = None,
    interval_ms: Annotated[int, "The control interval."] = INTERVAL_MS,
    seconds: Annotated[float, "How long each case is measured."] = MEASURED_S,
    output: Annotated[Path, "Folder of the results."] = Path("results/bench-loop"),
    profile: Annotated[bool, "Show where processor time goes instead."] = False,
) -> dict[str, Any]:
    """Cost of the real application's control loop, against stock Ryu handlers.

    With ``profile`` the controller is sampled as it runs, without a baseline, and ``output`` gets a table of its
    processor time by function for each size. Raises InvalidValueError for numbers that no fabric can have.
    """
    check_bounds(switches=(switches, 1, 200), pairs=(pairs, 16, MAX_PER_SWITCH), seconds=(seconds, 1, 600))
    check_bounds(interval_ms=(interval_ms, MIN_INTERVAL_MS, MAX_INTERVAL_MS))
    output.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for size in sizes_of(switches, pairs, interval_ms):
        size_rows = measure_size(size, seconds, output if profile else None)
        print(markdown(size_rows, COLUMNS), flush=True)
        rows += size_rows
    settings = {"switches": switches, "interval_ms": interval_ms, "seconds": seconds}
    figures: dict[str, Any] = {"rows": rows, "blast": surge_reaction.figures(interval_ms)}
    longest_reaction = figures["blast"]["most_ms"] / interval_ms
    judged = [
        *targets(rows),
        Target("longest time from a surge to the meters", longest_reaction, "intervals", TARGET_BLAST),
    ]
    if (cost := fit(rows_all_varying(rows))) is not None:
        figures["fit"] = asdict(cost)
    return finished("loop", figures, judged, settings, output, COLUMNS)


def measure_size(size: Size, seconds: float, profiles: Path | None) -> list[dict[str, Any]]:
    """Return a row for the controller and for the baseline, for each share of pairs that is set in every interval.

    ``profiles`` is a folder for the controller's profile; with it there is no baseline.
    """
    openflow_port, rest_port = free_ports(2)
    plan = LoopPlan(
        size.switches, size.pairs_per_switch, size.interval_ms, VARIED[0], openflow_port, rest_port, waits=True
    )
    with TemporaryDirectory(prefix="dets-loop-") as name, fabric_process(plan, Path(name)) as send_command:
        profile = None if profiles is None else profiles / f"profile-{plan.pairs}.txt"
        rows = _measure_controller(plan, Path(name), send_command, seconds, profile)
        return (
            rows + _measure_baseline(plan, Path(name), send_command, seconds)
            if size.baseline and profile is None
            else rows
        )


def _measure_controller(
    plan: LoopPlan, folder: Path, send_command: Callable[[str], None], seconds: float, profile: Path | None
) -> list[dict[str, Any]]:
    """Return the rows of the controller: one for each share of receivers whose rates vary; with few pairs one at rest.

    The first row also has the cost of adopting all pairs and, with few pairs, the result of a replay. ``send_command``
    sends a line to the process of the switches. At SIGUSR1 the controller begins its profile, at SIGUSR2 it writes it.
    """
    with ControllerProcess(plan.configuration(), folder, profile=profile) as controller:
        wait_until(lambda: controller.get("/v1/loop"), "an answer", ADOPT_TIMEOUT_S, controller.check_alive)
        initial_bytes, initial_cpu_s = resident_bytes(controller.pid), process_cpu_s(controller.pid)
        send_command("connect")
        wait_pairs(controller, plan)
        adoption_cpu_s = process_cpu_s(controller.pid) - initial_cpu_s
        time.sleep(FIRST_AUDIT_S)
        rows = []
        for varied in VARIED:
            send_command(f"vary {varied} {OFFERED}")
            time.sleep(max(SETTLE_S, 4 * plan.interval_ms / 1e3))
            if profile is not None and varied == VARIED[0]:
                os.kill(controller.pid, signal.SIGUSR1)
            rows.append(_measure_rounds(plan, controller, varied, seconds))
            if profile is not None and varied == VARIED[0]:
                os.kill(controller.pid, signal.SIGUSR2)
            rows[-1]["bytes_per_pair"] = (resident_bytes(controller.pid) - initial_bytes) / plan.pairs
        rows[0]["taken_over_cpu_s"] = adoption_cpu_s
        if plan.pairs <= MAX_IDLE:
            send_command("vary 0 0")
            time.sleep(IDLE_AFTER_S)
            rows.append(_measure_rounds(plan, controller, 0.0, seconds) | {"who": "idle"})
        if plan.pairs <= MAX_RECORDED:
            send_command(f"vary {VARIED[0]} {OFFERED}")
            record(controller.client, folder / "recording", RECORDED_S)
            rows[0]["replay"] = replayed(folder / "recording", None)
        return rows


def wait_pairs(controller: ControllerProcess, plan: LoopPlan) -> None:
    """Wait until a controller has every pair of the plan under control; ControllerError if it does not."""
    wait_until(
        lambda: (controller.get("/v1/loop")["last"] or {}).get("pair_count") == plan.pairs,
        "all pairs under control",
        ADOPT_TIMEOUT_S,
        controller.check_alive,
    )


def _measure_rounds(plan: LoopPlan, controller: ControllerProcess, varied: float, seconds: float) -> dict[str, Any]:
    """Return the row of the rounds during some seconds, from the differences of the loop's counters."""
    first, cpu_s, start_s = controller.get("/v1/loop"), process_cpu_s(controller.pid), time.monotonic()
    time.sleep(max(seconds, 4 * plan.interval_ms / 1e3))
    last, cpu_s = controller.get("/v1/loop"), process_cpu_s(controller.pid) - cpu_s
    duration_s = time.monotonic() - start_s
    view = controller.get(f"/v1/loop?after={first['rounds']}")
    differences = {key: last[key] - first[key] for key in ("skipped_rounds", "poll_timeouts", "modified_meters")}
    return {
        **_row(
            "dets", plan, varied, last["rounds"] - first["rounds"], duration_s, cpu_s, differences["modified_meters"]
        ),
        "skipped_rounds": differences["skipped_rounds"],
        "poll_timeouts": differences["poll_timeouts"],
        **{key: view[key] for key in ("poll_ms", "step_ms", "push_ms", "total_ms")},
    }


def _measure_baseline(
    plan: LoopPlan, folder: Path, send_command: Callable[[str], None], seconds: float
) -> list[dict[str, Any]]:
    """Return a row of the baseline for each share of varied rates, from the times that it prints for each round.

    A printed round is a list: the times at its begin and after each phase (poll, step, push), then the meters modified.
    """
    variables = {"DETS_BASELINE": str(folder / "pairs.json"), "DETS_BASELINE_INTERVAL_MS": str(plan.interval_ms)}
    listen = ["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", str(plan.openflow_port)]
    command = [sys.executable, "-m", "apps.runtime.launcher", *listen, str(Path(__file__).with_name("baseline_ryu.py"))]
    log = folder / "baseline.log"
    with log.open("wb") as out, (folder / "baseline.err").open("wb") as err:
        process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **variables}, stdout=out, stderr=err)

    def check_alive() -> None:
        if process.poll() is not None:
            raise RuntimeError(f"the baseline ended with status {process.returncode}")

    try:
        rows = []
        for varied in VARIED:
            send_command(f"vary {varied} {BASELINE_OFFERED}")
            rounds_before = len(_rounds(log))
            wait_until(partial(_has_rounds, log, rounds_before + 2), "rounds", ADOPT_TIMEOUT_S, check_alive)
            first_round, cpu_s, start_s = len(_rounds(log)), process_cpu_s(process.pid), time.monotonic()
            wait_until(
                partial(_has_rounds, log, first_round + 3, start_s + seconds), "rounds", ADOPT_TIMEOUT_S, check_alive
            )
            rounds = np.array(_rounds(log)[first_round:])
            cpu_s, duration_s = process_cpu_s(process.pid) - cpu_s, time.monotonic() - start_s
            phases_ms = np.diff(rounds[:, :4], axis=1) * 1e3
            row = _row("baseline", plan, varied, len(rounds), duration_s, cpu_s, int(rounds[:, 4].sum()))
            row["skipped_rounds"] = int((phases_ms.sum(axis=1) // plan.interval_ms).sum())
            row["poll_timeouts"] = 0
            for name, column in zip(("poll_ms", "step_ms", "push_ms"), phases_ms.T, strict=True):
                row[name] = spread(column)
            row["total_ms"] = spread(phases_ms.sum(axis=1))
            rows.append(row)
        return rows
    finally:
        end(process)


def _row(
    who: str, plan: LoopPlan, varied: float, rounds: int, duration_s: float, cpu_s: float, modified_meters: int
) -> dict[str, Any]:
    """Return one row of the table; ``duration_s`` and ``cpu_s`` are of all its rounds together."""
    return {
        "who": who,
        "switches": plan.switches,
        "pairs": plan.pairs,
        "varied": varied,
        "interval_ms": plan.interval_ms,
        "rounds": rounds,
        "round_every_ms": duration_s / max(rounds, 1) * 1e3,
        "pairs_per_s": plan.pairs * rounds / duration_s,
        "set_share": modified_meters / max(rounds * plan.pairs, 1),
        "cpu_share": cpu_s / duration_s,
        "cpu_us_per_pair": cpu_s / max(rounds * plan.pairs, 1) * 1e6,
        "bytes_per_pair": None,
    }


class SwitchProcessControl:
    """Commands to a running ``experiments.bench.loop.switch_process``; RuntimeError once the process has ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout

    def __call__(self, line: str) -> None:
        """Send one line."""
        try:
            self._stdin.write(f"{line}\n")
            self._stdin.flush()
        except BrokenPipeError:
            raise self._ended(line) from None

    def ask(self, line: str) -> Any:
        """Send one line and return the JSON of the reply."""
        self(line)
        answer = self._stdout.readline()
        if not answer:
            raise self._ended(line)
        return json.loads(answer)

    def _ended(self, line: str) -> RuntimeError:
        """Return the error that the process has ended."""
        status = self._process.wait(STOP_TIMEOUT_S)
        return RuntimeError(f"the switches' process ended with status {status}: cannot send {line!r}")


@contextmanager
def fabric_process(plan: LoopPlan, folder: Path) -> Iterator[SwitchProcessControl]:
    """Run the switches of a plan; yields their ``SwitchProcessControl``."""
    (folder / "plan.json").write_text(json.dumps(asdict(plan)))
    command = [sys.executable, "-m", "experiments.bench.loop.switch_process", str(folder / "plan.json")]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the switches did not start (status {process.wait(STOP_TIMEOUT_S)})")
        yield SwitchProcessControl(process)
    finally:
        with suppress(BrokenPipeError):  # the process has ended before it read all lines
            process.stdin.close()
        end(process)
        process.stdout.close()


def _rounds(log: Path) -> list[list[float]]:
    """Return the rounds that the baseline has printed completely."""
    lines = log.read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines if line.startswith("[")]


def _has_rounds(log: Path, count: int, after_s: float = 0.0) -> bool:
    """Whether the baseline has run ``count`` rounds, and the last is later than ``after_s``."""
    return time.monotonic() > after_s and len(_rounds(log)) >= count
