"""Command line of ``python -m torch_ringdist run``."""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path

from torch_ringdist._credentials import has_key
from torch_ringdist.elastic._settings import address

DESCRIPTION = """\
Start a script's ranks on this host and hold the store in which they meet. When a rank dies the
others go on, and it is started again: it joins them. For scripts that use torch_ringdist.elastic.
"""

EXAMPLES = """\
examples:
  python -m torch_ringdist run --nproc-per-node=4 train.py --epochs 3
      Four ranks here. What they print is shown with the number of the worker before each line.

  python -m torch_ringdist run --nproc-per-node=4 --min-ranks=6 --rdzv a:29500 train.py
      The same command on hosts a, b, c, ...: the one on host a holds the store, and training
      begins once six ranks are there. Hosts may come and go later.

  srun --ntasks-per-node=1 python -m torch_ringdist run --nproc-per-node=4 --rdzv a:29500 train.py
      Under Slurm: one launcher for each host.

  jq -c 'select(.event == "generation" and .rank == 0)' logs/events.jsonl
      What became of the group, with --log-dir=logs: a line of JSON for each event.

Workers write to files, which the launcher reads: training goes on, and ends well, when the launcher
itself is killed. SIGTERM and Ctrl-C end all workers after the step they are in; a second one, at
once. The status is 0 if training has finished, and no worker has failed after that.
"""


# Adds the options of the command to its parser.
def add(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    # In `python -m torch_ringdist run OPTIONS SCRIPT ARGUMENTS`, everything after SCRIPT belongs to
    # the script.
    option = parser.add_argument
    option("--nproc-per-node", type=_count, default=1, metavar="N", help="workers here; default: 1")
    option("--min-ranks", type=_count, metavar="N", help="with fewer, training waits")
    option("--max-ranks", type=_count, metavar="N", help="with so many there, others wait")
    option(
        "--start-ranks",
        type=_count,
        metavar="N",
        help="training begins with so many; default: all workers here, and at least --min-ranks",
    )
    option(
        "--max-restarts",
        type=_natural,
        metavar="N",
        help="how often each worker is started again; default: 3",
    )
    option(
        "--rdzv",
        type=rendezvous,
        metavar="HOST:PORT",
        help="where the launchers of all hosts meet; the one on HOST holds the store there",
    )
    option(
        "--job",
        type=_name,
        metavar="NAME",
        help='several jobs may share a store; default: that of Slurm, or "default"',
    )
    option(
        "--resume",
        action="store_true",
        default=None,
        help="go on from what this job has saved in the checkpoint folder of elastic.init()",
    )
    option(
        "--log-dir",
        type=Path,
        metavar="FOLDER",
        help="for what the workers print, and without --world-size events.jsonl; default: a new "
        "one in the folder for temporary files, which is removed if the status is 0",
    )
    option(
        "--grace",
        type=_seconds,
        metavar="S",
        help="seconds that workers have to leave when all are asked to end; default: 30, or 5 with "
        "--world-size",
    )
    fixed = parser.add_argument_group(
        "a fixed number of ranks",
        "for scripts that torchrun would start: RANK, WORLD_SIZE and so on are set, none is "
        "started again, and the first that fails ends all. ringdistrun makes such lines",
    ).add_argument
    fixed("--world-size", type=_count, metavar="N", help="ranks of the job, on all hosts")
    fixed("--first-rank", type=_natural, metavar="N", help="of this host; default: 0")
    option("--first-worker", type=_natural, metavar="N", help="its number; default: 0")
    option("--stdin", action="store_true", help="end all when stdin is closed")
    option("-m", "--module", action="store_true", help="SCRIPT is a module, as for python -m")
    option("--horovod", action="store_true", help=argparse.SUPPRESS)  # by ringdistrun
    option("--no-python", action="store_true", help="SCRIPT is a program, say python itself")
    option("script", metavar="SCRIPT")
    option("arguments", nargs=argparse.REMAINDER, metavar="...", help="of the script")


def complete(args: argparse.Namespace) -> None:
    """Fills in the defaults. --world-size accepts --max-restarts=0, because it restarts no rank.

    Raises:
        ValueError: an option has no effect with or without --world-size.
    """
    fixed = {"first_rank": 0}
    changing = {
        "min_ranks": 1,
        "max_ranks": None,
        "start_ranks": None,
        "max_restarts": 3,
        "job": os.environ.get("SLURM_JOB_ID") or "default",
        "resume": False,
        "first_worker": 0,
    }
    for name in changing if args.world_size else fixed:
        value = getattr(args, name)
        if value is not None and (name, value) != ("max_restarts", 0):
            option = f"--{name.replace('_', '-')}"
            if args.world_size:
                raise ValueError(f"{option} has no effect with --world-size: leave out one of them")
            raise ValueError(f"{option} goes with --world-size")
    grace = 5.0 if args.world_size else 30.0
    for name, default in {**fixed, **changing, "grace": grace}.items():
        if getattr(args, name) is None:
            setattr(args, name, default)


def _count(text: str) -> int:
    return _whole(text, 1)


def _natural(text: str) -> int:
    return _whole(text, 0)


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if (value := float(text)) >= 0:
            return value
    raise argparse.ArgumentTypeError(f"must be a number of seconds, 0 or more, got {text!r}")


def _name(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("must not be empty; is a variable of the shell unset?")
    return text


def _whole(text: str, least: int) -> int:
    try:
        if (value := int(text)) >= least:
            return value
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"must be a whole number, {least} or more, got {text!r}")


def rendezvous(text: str) -> tuple[str, int]:
    """Parses the value of --rdzv into host and port."""
    try:
        host, port, is_own = address("the address", text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("ringdist: ")) from None
    if is_own and not has_key():
        raise argparse.ArgumentTypeError(
            f"{text} is a store with a key: set RINGDIST_KEY_FILE, or RINGDIST_CERT"
        )
    return host, port
