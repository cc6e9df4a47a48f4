"""Runs torchrun on all hosts as one job."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.lifetime import end_with_parent
from benchmarks.net.hosts import INTERFACE, Hosts

ROOT = Path(__file__).resolve().parents[2]
STORE_PORT = 29500  # always free, because each run has its own namespaces
# Time for other hosts to report a failed one, and time to end after SIGTERM.
GRACE, STOP_LIMIT = 5.0, 3.0  # seconds
LOG_END = 60  # lines; torchrun's report of a failure takes half of them


def torchrun(
    hosts: Hosts,
    command: Sequence[str],
    logs: Path,
    per_host: int = 1,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Runs a script (or "-m", module) with its arguments, `per_host` ranks on each host.

    Host 0 shows the output of its first rank on this process's stdout and stderr. The others write
    to logs/host<i>.log, and the ends of these logs are shown if they fail. Returns 0, or the exit
    status of the first failure. All ranks have ended when it returns or raises.
    """
    logs.mkdir(parents=True, exist_ok=True)
    running: list[subprocess.Popen] = []
    try:
        for host in range(hosts.count):
            log = logs / f"host{host}.log"
            words = [*hosts.enter(host), *_torchrun(hosts, host, per_host), *command]
            running.append(start(words, log if host else None, environment or {}))
        status = wait(running)
    finally:
        stop(running)
    for host, process in enumerate(running):
        if host and process.returncode > 0:
            show_end(logs / f"host{host}.log")
    return status


def _torchrun(hosts: Hosts, host: int, per_host: int) -> list[str]:
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", str(hosts.count), "--node-rank", str(host)),
        *("--nproc-per-node", str(per_host), "--local-ranks-filter", "0"),
        *("--master-addr", hosts.address(0), "--master-port", str(STORE_PORT)),
    ]


def start(words: list[str], log: Path | None, environment: Mapping[str, str]) -> subprocess.Popen:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {
        **os.environ,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "PYTHONPATH": os.pathsep.join(paths),
        "GLOO_SOCKET_IFNAME": INTERFACE,  # without it, gloo resolves the machine's name
        "RINGDIST_SOCKET_IFNAME": INTERFACE,
        **environment,
    }
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(log.open("w")) if log else None
        return subprocess.Popen(
            words,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # Ctrl-C reaches only this process, which then ends them in order. They end with this
            # process.
            start_new_session=True,
            preexec_fn=functools.partial(end_with_parent, os.getpid()),
        )


def wait(running: list[subprocess.Popen], tick: Callable[[], None] = lambda: None) -> int:
    """Waits until all have ended, or GRACE after the first failure, and returns its status or 0.
    Calls `tick` repeatedly."""
    first, end = 0, float("inf")
    while time.monotonic() < end:
        states = [process.poll() for process in running]
        failed = [state for state in states if state]
        if failed and not first:
            first, end = failed[0], time.monotonic() + GRACE
        if None not in states:
            break
        tick()
        time.sleep(0.05)
    return first if first >= 0 else 128 - first


def stop(running: list[subprocess.Popen]) -> None:
    """Sends SIGTERM, on which torchrun ends its ranks. Kills it if it is late. Remaining ranks are
    killed with their host."""
    for process in running:
        if process.poll() is None:
            process.terminate()
    end = time.monotonic() + STOP_LIMIT
    for process in running:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def show_end(log: Path) -> None:
    text = log.read_text(errors="replace").splitlines()[-LOG_END:]
    print(f"--- end of {log}", *text, sep="\n", file=sys.stderr)
