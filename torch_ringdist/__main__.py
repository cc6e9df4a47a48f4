"""Command line of the package: ``python -m torch_ringdist COMMAND``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from torch_ringdist import (
    _codecs,
    _dump,
    _info_text,
    _inspect,
    _key,
    _plan,
    _standard_streams,
    _timeline,
    _tune,
)
from torch_ringdist._launch import arguments as _run_arguments
from torch_ringdist._launch import store as _store

_DESCRIPTION = (
    "Look at the ringdist backend of torch.distributed, and at processes that use it; and launch "
    "training that loses ranks and goes on."
)

_EXAMPLES = """\
examples:
  python -m torch_ringdist info
      Versions, UCX and where it came from, transports, algorithms, codecs, limits, and every
      RINGDIST_* variable with its value. Attach it to a bug report.

  RINGDIST_ALGORITHM=direct python -m torch_ringdist info --json | jq .variables
      See what a launch line would set, as a program reads it.

  python -m torch_ringdist codecs
  python -m torch_ringdist codecs int4 int4+h topk:0.01 --seconds 2
      What each codec saves, what it loses, and how fast it is on one core of this machine.

  python -m torch_ringdist plan --ranks 8 --hosts 2 --operation all_reduce --bytes 1M
      Which algorithm would run, and why; the others with predicted times; who sends what to whom.

  python -m torch_ringdist tune --out costs.json
      Measure what messages cost on this host, or on several, for RINGDIST_COSTS: a minute.

  python -m torch_ringdist run --nproc-per-node=4 train.py
      Train with four ranks by torch_ringdist.elastic; those that die are started again, and join.

  python -m torch_ringdist timeline merge FOLDER
      What ranks have done, recorded by torch_ringdist.trace(FOLDER), for ui.perfetto.dev.

  python -m torch_ringdist dump 4711
      A run hangs: ask process 4711 for its operations in flight, their step, and the peers that
      it waits for. It answers from a thread of its own, whatever its Python code is doing.

  python -m torch_ringdist dump --all
      The same for all of this user's ranks on this machine: first a line for each, then the rest.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m torch_ringdist",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = f"torch_ringdist {_inspect.version()}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    info = commands.add_parser("info", help="what this build can do, and how it is set")
    info.add_argument("--json", action="store_true", help="print JSON instead of text")
    _codecs.add_arguments(
        commands.add_parser("codecs", help="ratio, error and speed of the codecs on this machine")
    )
    _plan.add_arguments(
        commands.add_parser("plan", help="which algorithm would run, why, and what it would take")
    )
    _tune.add_arguments(
        commands.add_parser("tune", help="measure what messages cost here, for the planner")
    )
    _run_arguments.add(
        commands.add_parser("run", help="start the ranks of a script, and again those that die")
    )
    _store.add(
        commands.add_parser("store", help="hold the store for ranks that something else launches")
    )
    _timeline.add_arguments(
        commands.add_parser("timeline", help="what ranks have recorded, as one file to look at")
    )
    _key.add_arguments(
        commands.add_parser("key", help="make the key of a job, which encrypts its connections")
    )
    dump = commands.add_parser("dump", help="what a running process is doing in ringdist")
    which = dump.add_mutually_exclusive_group(required=True)
    which.add_argument("pid", type=int, nargs="?", metavar="PID", help="a process of this machine")
    which.add_argument("--all", action="store_true", help="all of this user that have a group")
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
    parser = _parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help()
        return 0
    args = parser.parse_args(arguments)
    try:
        if args.command == "info":
            info = _inspect.info_with_devices()
            print(_info_text.as_json(info) if args.json else _info_text.as_text(info))
        elif args.command == "codecs":
            _codecs.run(args)
        elif args.command == "plan":
            _plan.run(args)
        elif args.command == "tune":
            _tune.run(args)
        elif args.command == "run":
            from torch_ringdist._launch import launcher

            return launcher.run(args)
        elif args.command == "key":
            _key.run(args)
        elif args.command == "timeline":
            _timeline.run(args)
        elif args.command == "store":
            return _store.run(args)
        else:
            states, problems = _dump.ask_all() if args.all else (_dump.ask(args.pid), [])
            print(_info_text.states_as_text(states))
            if problems:
                raise _dump.DumpError("\n".join(problems))
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
        print(f"\ntorch_ringdist {args.command}: interrupted", file=sys.stderr)
        return 130
    # ValueError stands for an option or a RINGDIST_* variable with a value that is not accepted.
    except (_dump.DumpError, _tune.TuneError, ImportError, OSError, ValueError) as error:
        print(f"torch_ringdist {args.command}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
