"""Reads a configuration file in a separate process, so that a control loop keeps its intervals.

A thread would need less time, but the loop would wait for the thread after each of the loop's system calls
(docs/adr/0271).
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from apps.runtime.launcher import module_command
from controller.config.loader import load_config
from controller.config.yaml_document import ConfigError, ConfigProblem
from controller.fabric.config_model import Config, Vn

_POLL_INTERVAL_S = 0.01
_NICENESS = 5  # the loop has priority
SMALL_BYTES = 64 * 1024  # parsed within some 20 ms, faster than a process starts
_VN_FIELDS = tuple(field.name for field in fields(Vn))


def read(path: str, run_in_thread: Callable[..., Any]) -> Config:
    """Return the configuration in a file, while other greenlets run.

    A small file is read by ``run_in_thread``, which calls a function with arguments and returns its result; a large one
    by a separate process. Raises ConfigError, also if the process ends without a result.
    """
    if _is_small(path):
        small: Config = run_in_thread(load_config, path)
        return small
    result_file = os.memfd_create("config")
    try:
        command = [*module_command("apps.config_reader"), str(result_file), path]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[result_file], start_new_session=True)
        try:
            while process.poll() is None:
                time.sleep(_POLL_INTERVAL_S)
        finally:
            if process.poll() is None:  # this greenlet was killed during the wait
                process.kill()
                process.wait()
        config: Config = run_in_thread(_result, result_file, path, process.returncode)
        return config
    finally:
        os.close(result_file)


def _is_small(path: str) -> bool:
    """Return whether a file has at most SMALL_BYTES and includes no other file."""
    try:
        if os.stat(path).st_size > SMALL_BYTES:
            return False
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            return b"include" not in (file.read(SMALL_BYTES) or b"")  # included files may be large
    except OSError:
        return True  # ``load_config`` then reports the error


def _result(file: int, path: str, status: int) -> Config:
    """Return the configuration that the reading process wrote to ``file``, or raise the ConfigError that it wrote.

    ``path`` is the configuration file, ``status`` the exit status of the process.
    """
    if status:
        problem = f"cannot be read: the process that reads it ended with status {status}"
        raise ConfigError(path, [ConfigProblem(0, 0, "", problem)])
    with open(file, "rb", closefd=False) as stream:
        stream.seek(0)
        result: Config | tuple[ConfigProblem, ...] = pickle.load(stream)
    if isinstance(result, Config):
        return result
    raise ConfigError(path, result)


class _Pickler(pickle.Pickler):
    """Pickles each VN as a call of ``Vn``: VNs are numerous, and unpickling them field by field is slow."""

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, Vn):
            return Vn, tuple(getattr(value, name) for name in _VN_FIELDS)
        return NotImplemented


def main(file: int, path: str) -> None:
    """Read a configuration, and write the result to an open file: the configuration, or its problems; then exit."""
    os.nice(_NICENESS)
    gc.disable()  # all objects stay until the end
    try:
        result: Config | tuple[ConfigProblem, ...] = load_config(path)
    except ConfigError as error:
        result = error.problems
    with open(file, "wb", closefd=False) as stream:
        _Pickler(stream, pickle.HIGHEST_PROTOCOL).dump(result)
        stream.flush()
        os._exit(0)  # freeing all objects takes as long as writing them


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
