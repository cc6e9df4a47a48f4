"""Measures the cost of init() for training in a process alone, which reduces nothing.

Two processes take turns, and the other one is stopped meanwhile. So threads that init() has started
slow down their own process only. The processes have the default number of torch's threads. If
another thread wakes often, all of them wait for the one on its core.
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
import subprocess
import sys
import time

from tqdm import tqdm

import torch_ringdist.horovod as hvd
from benchmarks.horovod.step import network, sgd, step_of
from benchmarks.lifetime import end_with_parent

WITHOUT, AFTER = "without init()", "after init()"
_PAIRS = 3  # limit of process pairs, which differ in their memory layout


def alone(repetitions: int) -> list[dict[str, float]]:
    """A step of SGD in a process alone, which reduces nothing."""
    out = []
    for _ in tqdm(range(min(repetitions, _PAIRS)), desc="alone", leave=False):
        with _Process() as without, _Process("--init") as after:
            order = [(WITHOUT, without), (AFTER, after)]
            for _ in range(repetitions):
                out.append({name: process.step() for name, process in order})
                order.reverse()
    return out


class _Process:
    """A process that trains on request and is stopped otherwise. As a context manager it ends the
    process."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "benchmarks.horovod.alone", *arguments]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        ends = functools.partial(end_with_parent, os.getpid(), signal.SIGKILL)
        self._process = subprocess.Popen(command, text=True, bufsize=1, preexec_fn=ends, **pipes)

    def step(self) -> float:
        """Returns seconds of the second of two steps, because the first has cold caches."""
        self._process.send_signal(signal.SIGCONT)
        print(file=self._process.stdin)
        return self._answer()

    def _answer(self) -> float:
        line = self._process.stdout.readline()
        self._process.send_signal(signal.SIGSTOP)
        if not line:
            raise SystemExit("a process that trains alone has failed")
        return float(line)

    def __enter__(self) -> _Process:
        self._answer()  # waits for its start
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--init", action="store_true")
    if parser.parse_args().init:
        hvd.init()
    net = network()
    step = step_of(net, sgd(net))
    step()
    print(0, flush=True)
    for _ in sys.stdin:
        step()
        before = time.perf_counter()
        step()
        print(time.perf_counter() - before, flush=True)


if __name__ == "__main__":
    main()
