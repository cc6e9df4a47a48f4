"""Starts ranks on hosts with possibly different numbers of ranks, one by one or all by mpirun.

mpirun starts a daemon on each host through its ssh command. Here that is a small script that enters
the host's namespace. The script also sets different host names, because OpenMPI would take all
hosts for one otherwise. All ranks are in one MPI job and may use any other backend as well.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.host.launch import mpirun
from benchmarks.net.hosts import INTERFACE, Hosts
from benchmarks.net.launch import STORE_PORT, show_end, start, stop, wait
from benchmarks.net.layout import Layout

# The script that replaces ssh. It gets a host's address and a shell command.
AGENT = """#!/bin/sh
case $1 in
{cases}
  *) echo "no host has the address $1" >&2; exit 1;;
esac
shift
exec {enter} unshare --uts sh -c "hostname rdhost-$number; $*"
"""


def start_ranks(
    hosts: Hosts,
    layout: Layout,
    command: Sequence[str],
    logs: Path,
    with_mpi: bool,
    tick: Callable[[], None] = lambda: None,
    variables: Mapping[str, str] | None = None,
) -> int:
    """Runs "-m", module with its arguments on all ranks, with these environment variables.

    Output goes to logs/*.log, and the ends of the logs are shown on failure. Returns 0, or the exit
    status of the first failure. All ranks have ended when it returns or raises.
    """
    logs.mkdir(parents=True, exist_ok=True)
    for old in logs.glob("*.log"):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="rdnet-") as folder:
        kind = _mpi_words if with_mpi else _rank_words
        running = []
        try:
            for name, words, environment in kind(hosts, layout, command, Path(folder)):
                environment.update(variables or {})
                running.append(start(words, logs / f"{name}.log", environment))
            status = wait(running, tick)
        finally:
            stop(running)
    if status:
        for log in sorted(logs.glob("*.log")):
            show_end(log)
    return status


def _common(hosts: Hosts) -> dict[str, str]:
    return {"MASTER_ADDR": hosts.address(0), "MASTER_PORT": str(STORE_PORT)}


def _rank_words(hosts: Hosts, layout: Layout, command: Sequence[str], _: Path):
    """Yields the log name, command and variables of each rank."""
    for rank, host in enumerate(layout.ranks_hosts()):
        own = {"RANK": str(rank), "WORLD_SIZE": str(layout.world)}
        words = [*hosts.enter(host), sys.executable, *command]
        yield f"rank{rank}", words, {**_common(hosts), **own}


def _mpi_words(hosts: Hosts, layout: Layout, command: Sequence[str], folder: Path):
    """Yields the same for mpirun, which runs on host 0."""
    agent = folder / "agent"
    agent.write_text(_agent(hosts))
    agent.chmod(0o700)
    slots = ",".join(f"{hosts.address(host)}:{count}" for host, count in enumerate(layout.per_host))
    own = {
        # By default mpirun refuses to run as root.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "TMPDIR": str(folder),  # its session files are removed with the folder in any case
    }
    words = [
        *hosts.enter(0),
        *("unshare", "--uts", "sh", "-c", 'hostname rdhost-0; exec "$@"', "sh"),
        *(str(mpirun()), "--prtemca", "plm_ssh_agent", str(agent)),
        *("--prtemca", "prte_if_include", INTERFACE),
        # Transports are named, because otherwise its own copy of UCX looks for devices.
        *("--mca", "pml", "ob1", "--mca", "btl", "tcp,sm,self"),
        *("--mca", "btl_tcp_if_include", INTERFACE),
        *("--host", slots, "-n", str(layout.world), "--bind-to", "none", "--oversubscribe"),
        *("--mca", "mpi_yield_when_idle", "1"),  # more ranks than cores
        *("--map-by", "slot", "--output", "tag", sys.executable, *command),
    ]
    yield "mpirun", words, {**_common(hosts), **own}


def _agent(hosts: Hosts) -> str:
    cases = [
        f"  {hosts.address(host)}) number={host}; enter={hosts.enter(host)[-1]!r};;"
        for host in range(hosts.count)
    ]
    enter = " ".join([*hosts.enter(0)[:-1], '"$enter"'])
    return AGENT.format(cases="\n".join(cases), enter=enter)
