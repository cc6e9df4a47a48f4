"""Options of Horovod's launcher. Some set variables, some have no effect, some are refused."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from torch_ringdist import _inspect

# Options of Horovod's launcher that are refused, with the reason or the replacement.
_RESTARTS = "a rank that dies is started again, three times; a host that failed, when it was away"
_HALVING = "autotune is a search by successive halving, of as many steps as it takes (some 150)"
_PLANNER = "the planner decides; RINGDIST_ALGORITHM forces an algorithm"
_BUILD = "python -m torch_ringdist info says what this build can do"
_BINDING = "taskset or numactl before python chooses the cores"
_TIME = "there is no time in what is printed; the program ts adds it"
_REFUSED = {
    "--mpi": "there is no MPI here",
    "--mpi-args": "there is no MPI here",
    "--jsrun": "there is no jsrun here; --dry-run says what is to be run on each host",
    "--tcp": "RINGDIST_TRANSPORT=ucx does that",
    "--blacklist-cooldown-range": _RESTARTS,
    "--cooldown-range": _RESTARTS,
    "--autotune-warmup-samples": _HALVING,
    "--autotune-steps-per-sample": _HALVING,
    "--autotune-bayes-opt-max-samples": _HALVING,
    "--autotune-gaussian-process-noise": _HALVING,
    "--cycle-time-ms": "there is no cycle: operations are told of when they are ready",
    "--hierarchical-allreduce": _PLANNER,
    "--hierarchical-allgather": _PLANNER,
    "--log-level": "RINGDIST_LOG_LEVEL is the level",
    "--config-file": "give the options themselves",
    "--check-build": _BUILD,
    "-cb": _BUILD,
    "--num-nccl-streams": "NCCL_MAX_NCHANNELS and other variables of NCCL limit what it uses",
    "--thread-affinity": _BINDING,
    "--binding-args": _BINDING,
    "--gloo-timeout-seconds": "--stall-check-shutdown-time-seconds is the limit of a call",
    "--prefix-output-with-timestamp": _TIME,
    "-prefix-timestamp": _TIME,
    "--log-with-timestamp": _TIME,
    "--no-log-hide-timestamp": _TIME,
}
# Options of Horovod's launcher that are accepted without effect. They set what is the default here,
# or are about what is not here. --disable-cache is about checks of hosts before a start.
_IGNORED = (
    "--disable-cache",
    "--no-hierarchical-allreduce",
    "--no-hierarchical-allgather",
    "--no-autotune",
    "--no-timeline-mark-cycles",
    "--stall-check",
    "--mpi-threads-disable",
    "--no-mpi-threads-disable",
    "--log-without-timestamp",
    "--log-hide-timestamp",
)


# Fails for an option of _REFUSED.
class _Refuse(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> NoReturn:
        parser.error(f"{rest[-1]}: {_REFUSED[str(rest[-1])]}")


# Adds the options to the parser.
def add(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option(
        "--start-timeout", type=int, metavar="S", help="seconds to find each other; default: 1800"
    )
    option("--fusion-threshold-mb", type=int, metavar="MB", help="of a batch; default: 64")
    option("--cache-capacity", type=int, metavar="N", help="names that are kept; default: 1024")
    option(
        "--timeline-filename", type=Path, metavar="FILE", help="of what all ranks do, for a browser"
    )
    option("--timeline-mark-cycles", action="store_true", help="with a mark for each batch")
    option(
        "--stall-check-warning-time-seconds",
        type=int,
        metavar="S",
        help="until rank 0 says whom a call waits for; 0: it never does; default: 60",
    )
    option("--autotune", action="store_true", help="find what travels together best, by step times")
    option("--autotune-log-file", type=Path, metavar="FILE", help="of it, as CSV")
    option("--no-stall-check", action="store_true", help="it never does")
    option(
        "--stall-check-shutdown-time-seconds",
        type=int,
        metavar="S",
        help="until a call that waits ends with an error; 0: never; default: 1800",
    )
    option("--verbose", "-v", action="store_true", help="print what is run on each host")
    version = f"torch_ringdist {_inspect.version()}"
    option("--version", action="version", version=version, help="print it")
    option("--gloo", action="store_true", help="of Horovod; no MPI is needed in any case")
    for name in _IGNORED:
        option(name, action="store_true", help=argparse.SUPPRESS)
    for name, why in _REFUSED.items():
        option(name, nargs="?", action=_Refuse, help=argparse.SUPPRESS, metavar=why)
