"""Command line of the package: ``ringdist COMMAND``, or ``python -m torch_ringdist COMMAND``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from torch_ringdist import _inspect, _registration, _standard_streams
from torch_ringdist._errors import CommandError

_DESCRIPTION = (
    "Look at the ringdist backend of torch.distributed, and at processes that use it; and launch "
    "training that loses ranks and goes on."
)

_EXAMPLES = """\
examples:
  ringdist status
      A job hangs or is slow: which rank the others wait for, in which operation, and at which line
      of which file it is. It finds this user's jobs, and asks their ranks on all hosts.

  ringdist info
      Versions, UCX and where it came from, transports, algorithms, codecs, limits, and every
      RINGDIST_* variable with its value. Attach it to a bug report.

  RINGDIST_ALGORITHM=direct ringdist info --json | jq .variables
      See what a launch line would set, as a program reads it.

  ringdist doctor --hosts a,b --ranks 8
      What would make a job fail or slow: versions, limits, ports, packet sizes; with cures.

  ringdist exporter
      Metrics of this host's ranks for Prometheus, at port 9464.

  ringdist codecs
  ringdist codecs int4 int4+h topk:0.01 --seconds 2
      What each codec saves, what it loses, and how fast it is on one core of this machine.

  ringdist bench --backend gloo
  torchrun --nproc-per-node=8 -m torch_ringdist bench all_gather --json
      How fast an operation is at each size, in the columns of nccl-tests, and if it is right.

  ringdist plan --ranks 8 --hosts 2 --operation all_reduce --bytes 1M
      Which algorithm would run, and why; the others with predicted times; who sends what to whom.

  ringdist tune --out costs.json
      Measure what messages cost on this host, or on several, for RINGDIST_COSTS: a minute.

  ringdist run --nproc-per-node=4 train.py
      Train with four ranks by torch_ringdist.elastic; those that die are started again, and join.

  ringdist timeline merge FOLDER
      What ranks have done, recorded by torch_ringdist.trace(FOLDER), for ui.perfetto.dev.

  ringdist dump 4711
      Ask process 4711 for its operations in flight, their step, and the peers that it waits for. It
      answers from a thread of its own, whatever its Python code is doing.

  ringdist dump --all
      The same for all of this user's ranks on this machine: first a line for each, then the rest.
"""

# Module and help text by command. A module is imported when its command runs, and has
# add_arguments(parser) and run(arguments). run() returns the exit status, or None for 0.
_COMMANDS = {
    "status": ("_status", "what a job does, which rank the others wait for, and why"),
    "info": ("_info_text", "what this build can do, and how it is set"),
    "doctor": ("_doctor", "what would make a job fail or slow on this host, or between several"),
    "exporter": ("_exporter", "metrics of the ranks of this host, for Prometheus"),
    "codecs": ("_codecs", "ratio, error and speed of the codecs on this machine"),
    "bench": ("_bench", "time and bandwidth of an operation, by ringdist, gloo or nccl"),
    "plan": ("_plan", "which algorithm would run, why, and what it would take"),
    "tune": ("_tune", "measure what messages cost here, for the planner"),
    "run": ("_launch.launcher", "start the ranks of a script, and again those that die"),
    "store": ("_launch.store", "hold the store for ranks that something else launches"),
    "timeline": ("_timeline", "what ranks have recorded, as one file to look at"),
    "key": ("_key", "make the key of a job, which encrypts its connections"),
    "dump": ("_dump", "what a running process is doing in ringdist"),
}
# Commands that work without torch. To import it takes seconds on a busy machine.
_WITHOUT_TORCH = ("status", "dump", "doctor", "exporter")


# Returns the module of a command. The import of this package has left out torch, if the command
# line is what runs in this process.
def _module_of(command: str) -> Any:
    if command not in _WITHOUT_TORCH:
        _registration.register()
    return import_module(f"torch_ringdist.{_COMMANDS[command][0]}")


def _parser(command: str) -> argparse.ArgumentParser:
    """Returns the parser. Only `command` has its options, because a module is imported for them."""
    parser = argparse.ArgumentParser(
        prog="ringdist",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = f"torch_ringdist {_inspect.version()}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, text) in _COMMANDS.items():
        one = commands.add_parser(name, help=text)
        if name == command:
            _module_of(name).add_arguments(one)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command, or prints the list of commands if `arguments` is empty.

    Args:
        arguments: the command and its options; those of the process if None.

    Returns:
        The exit status. It is 0 on success, and 1 on failure or for a value that is not accepted.
        It is 130 after Ctrl-C, except that `run` and `store` have statuses of their own
        (docs/reference/command-line.md).

    Raises:
        SystemExit: the command line cannot be parsed (status 2), or requests help or the version
            (status 0).
    """
    _standard_streams.prepare()
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = next((one for one in given if not one.startswith("-")), "")
    try:
        parser = _parser(command)
        if not given:
            parser.print_help()
            return 0
        args = parser.parse_args(given)
        command = args.command
        status: int | None = _module_of(command).run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. Python would flush stdout again at exit
        # and report an error, so stdout is replaced.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        # Python restores the handler as it ends, and a second Ctrl-C would then kill it by the
        # signal.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print(f"\ntorch_ringdist {command}: interrupted", file=sys.stderr)
        return 130
    # ValueError stands for an option or a RINGDIST_* variable with a value that is not accepted.
    except (CommandError, ImportError, OSError, ValueError) as error:
        print(f"torch_ringdist {command}: {error}", file=sys.stderr)
        return 1
    return status or 0


if __name__ == "__main__":
    sys.exit(main())
