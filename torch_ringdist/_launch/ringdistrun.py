"""ringdistrun: starts the ranks of a Horovod script on one host or several."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import torch.distributed as dist

from torch_ringdist import _standard_streams
from torch_ringdist._address import join
from torch_ringdist._launch import addresses, elastic_arguments, signals
from torch_ringdist._launch.addresses import USUAL_PORT
from torch_ringdist._launch.elastic_job import ElasticJob
from torch_ringdist._launch.horovod_names import folder_of_names
from torch_ringdist._launch.hosts import Share, parse_hostfile, parse_hosts, shares
from torch_ringdist._launch.remote_command import HostCommand, RemoteCommand, end_all, is_local
from torch_ringdist._served_store import serve
from torch_ringdist.elastic._store import open_store

_DESCRIPTION = """\
Start a script's ranks. What they print comes with their rank before each line; the first that fails
ends all. On hosts other than this one a command is started by ssh, or what --rsh says.
"""

_EXAMPLES = """\
examples:
  ringdistrun -np 4 python train.py
      Four ranks here.

  ringdistrun -np 4 -H a:2,b:2 python train.py
      Ranks 0 and 1 on host a, 2 and 3 on b; a holds the store in which all meet.

  ringdistrun -np 4 -H a:2,b:2 --dry-run python train.py
      Only say what is to be run on each host: for Slurm, Kubernetes and others that start it.

  ringdistrun -np 4 --min-np 2 --host-discovery-script ./hosts.sh python train.py
      Hosts and ranks may come and go: for scripts that use hvd.elastic.

  ringdistrun -np 2 -H pod-a:1,pod-b:1 --address 10.0.0.7 --rsh "kubectl exec -i" -- python train.py
      By another command, which is given the host and "sh", and a script on stdin.
"""

_LOCAL = ("localhost", "127.0.0.1")
_LEAVE = 15.0  # seconds for the launchers of all hosts to end

# Options of Horovod's launcher that are refused, with the reason or the replacement.
_RESTARTS = "a rank that dies is started again, three times; a host that failed, when it was away"
_HALVING = "autotune is a search by successive halving, of as many steps as it takes (some 150)"
_PLANNER = "the planner decides; RINGDIST_ALGORITHM forces an algorithm"
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
    "--disable-cache": "--cache-capacity=1 is as near as it gets",
    "--hierarchical-allreduce": _PLANNER,
    "--hierarchical-allgather": _PLANNER,
    "--log-level": "RINGDIST_LOG_LEVEL is the level",
    "--config-file": "give the options themselves",
    "--check-build": "python -m torch_ringdist info says what this build can do",
}
# Prefixes of variables that are passed to ranks on other hosts, in addition to those of -x.
_PASSED = ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHON", "OMP_", "RINGDIST_", "HOROVOD_")


# Fails for an option of _REFUSED.
class _Refuse(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> NoReturn:
        parser.error(f"{rest[-1]}: {_REFUSED[str(rest[-1])]}")


# Parses and checks the command line. It exits with a message if it is wrong.
def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="ringdistrun",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "-np",
        "--num-proc",
        type=int,
        metavar="N",
        help="ranks; default: as many as slots",
    )
    add("-H", "--hosts", metavar="HOST:SLOTS,...", help="default: localhost, as many as ranks")
    add("-hostfile", "--hostfile", type=Path, metavar="FILE", help='lines of "HOST slots=N"')
    add("--rsh", default="ssh", metavar="COMMAND", help="for hosts but this one; default: ssh")
    add("-p", "--ssh-port", type=int, metavar="PORT", help="of ssh")
    add("-i", "--ssh-identity-file", metavar="FILE", help="of ssh")
    add("--address", metavar="ADDRESS", help="of the first host, for the others; default: its name")
    add("--port", type=int, help=f"of the store there; default: {USUAL_PORT}, or a free one here")
    add(
        "-x",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="also for ranks elsewhere",
    )
    add(
        "--network-interfaces", "--network-interface", metavar="NAME", help="RINGDIST_SOCKET_IFNAME"
    )
    add("--output-filename", type=Path, metavar="FOLDER", help="for what ranks print")
    elastic_arguments.add(parser)
    add("--dry-run", action="store_true", help="print what is to be run on each host")
    add("--start-timeout", type=int, metavar="S", help="seconds to find each other; default: 1800")
    add("--fusion-threshold-mb", type=int, metavar="MB", help="of a batch; default: 64")
    add("--cache-capacity", type=int, metavar="N", help="names that are kept; default: 1024")
    add(
        "--timeline-filename", type=Path, metavar="FILE", help="of what all ranks do, for a browser"
    )
    add("--timeline-mark-cycles", action="store_true", help="with a mark for each batch")
    add(
        "--stall-check-warning-time-seconds",
        type=int,
        metavar="S",
        help="until rank 0 says whom a call waits for; default: 60",
    )
    add("--autotune", action="store_true", help="find what travels together best, by step times")
    add("--autotune-log-file", type=Path, metavar="FILE", help="of it, as CSV")
    add("--no-stall-check", action="store_true", help="it never does")
    add(
        "--stall-check-shutdown-time-seconds",
        type=int,
        metavar="S",
        help="until a call that waits ends with an error; default: 1800",
    )
    add("--verbose", "-v", action="store_true", help="print what is run on each host")
    add("--gloo", action="store_true", help="of Horovod; no MPI is needed in any case")
    for name, why in _REFUSED.items():
        add(name, nargs="?", action=_Refuse, help=argparse.SUPPRESS, metavar=why)
    add("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="python and a script")
    args = parser.parse_args(arguments)
    if args.command[:1] == ["--"]:
        del args.command[0]
    if not args.command:
        parser.error("a command is missing, as: ringdistrun -np 2 python train.py")
    try:
        elastic_arguments.check(args)
        args.shares = [] if args.host_discovery_script else _shares(args)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    return args


# Returns the ranks of each host. Raises ValueError or OSError.
def _shares(args: argparse.Namespace) -> list[Share]:
    if args.hosts and args.hostfile:
        raise ValueError("-H and --hostfile: give one of them")
    if args.hostfile:
        hosts = parse_hostfile(args.hostfile)
    elif args.hosts:
        hosts = parse_hosts(args.hosts)
    else:
        hosts = [("localhost", args.num_proc or args.min_np or 1)]
    ranks = sum(slots for _, slots in hosts) if args.num_proc is None else args.num_proc
    here_holds = args.elastic and not args.dry_run
    if args.address is None and len(hosts) > 1 and hosts[0][0] in _LOCAL and not here_holds:
        raise ValueError(f"-H: others do not reach {hosts[0][0]}: give its name, or --address")
    if ranks < 1:
        raise ValueError(f"-np must be at least 1, got {ranks}")
    return elastic_arguments.shares_of(args, hosts) if args.elastic else shares(hosts, ranks)


def launch_line(args: argparse.Namespace, share: Share, stdin: bool) -> list[str]:
    """Returns the command that runs on the host of `share`."""
    line = [sys.executable, "-m", "torch_ringdist", "run", f"--nproc-per-node={share.count}"]
    line += elastic_arguments.launch_options(args, share) if args.elastic else _fixed(args, share)
    if args.output_filename:
        line.append(f"--log-dir={args.output_filename}")
    if stdin:
        line.append("--stdin")
    return [*line, "--no-python", "--", *args.command]


def _fixed(args: argparse.Namespace, share: Share) -> list[str]:
    """Returns the options of that command for a fixed number of ranks."""
    of_all = args.shares
    ranks = of_all[-1].first + of_all[-1].count
    line = [f"--world-size={ranks}", f"--first-rank={share.first}"]
    if len(of_all) > 1:
        line.append(f"--rdzv={join(args.address or of_all[0].host, args.port or USUAL_PORT)}")
    elif args.port:
        line.append(f"--rdzv={join('127.0.0.1', args.port)}")
    return line


# Returns the variables for ranks on other hosts, with Horovod's variables set from the options.
def _environment(args: argparse.Namespace) -> dict[str, str]:
    out = {name: value for name, value in os.environ.items() if name.startswith(_PASSED)}
    for given in args.x:
        name, has_value, value = given.partition("=")
        if has_value:
            out[name] = value
        elif name in os.environ:
            out[name] = os.environ[name]
    # Makes `python` this interpreter, even if its environment is not activated.
    out["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), out.get("PATH", os.defpath)])
    if names := folder_of_names():
        path = out.get("PYTHONPATH")
        out["PYTHONPATH"] = f"{path}{os.pathsep}{names}" if path else names
    if args.network_interfaces:
        out["RINGDIST_SOCKET_IFNAME"] = args.network_interfaces
    if args.start_timeout:
        out["HOROVOD_START_TIMEOUT"] = str(args.start_timeout)
    if args.fusion_threshold_mb is not None:
        out["HOROVOD_FUSION_THRESHOLD"] = str(args.fusion_threshold_mb << 20)
    if args.elastic:
        out["HOROVOD_ELASTIC_TIMEOUT"] = str(args.elastic_timeout)
    for name, value in (
        ("CACHE_CAPACITY", args.cache_capacity),
        ("TIMELINE", args.timeline_filename and args.timeline_filename.absolute()),
        ("TIMELINE_MARK_CYCLES", int(args.timeline_mark_cycles)),
        ("AUTOTUNE", int(args.autotune)),
        ("AUTOTUNE_LOG", args.autotune_log_file and args.autotune_log_file.absolute()),
        ("STALL_CHECK_TIME_SECONDS", args.stall_check_warning_time_seconds),
        ("STALL_CHECK_DISABLE", int(args.no_stall_check)),
        ("STALL_SHUTDOWN_TIME_SECONDS", args.stall_check_shutdown_time_seconds),
    ):
        if value:
            out[f"HOROVOD_{name}"] = str(value)
    return out


def script_for(args: argparse.Namespace, share: Share, stdin: bool) -> str:
    """Returns a shell script that runs launch_line() in this folder and environment."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in _environment(args).items()]
    line = " ".join(["exec", "env", *variables, shlex.join(launch_line(args, share, stdin))])
    # Else the shell would wait for more of the script.
    return f"cd {shlex.quote(os.getcwd())} || exit 1; {line}\n"


# Returns the remote shell command.
def _rsh(args: argparse.Namespace) -> list[str]:
    out = shlex.split(args.rsh)
    if args.rsh == "ssh":  # else it would not notice a lost host
        out += ["-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"]
    if args.ssh_port:
        out += ["-p", str(args.ssh_port)]
    if args.ssh_identity_file:
        out += ["-i", args.ssh_identity_file]
    return out


# Starts the launcher of one host.
def _start(args: argparse.Namespace, share: Share, label: str = "") -> RemoteCommand:
    line = launch_line(args, share, stdin=True)
    script = script_for(args, share, stdin=True)
    return RemoteCommand(
        HostCommand(share.host, line, _environment(args), _rsh(args), script, label)
    )


# Runs a job with a changing number of ranks; hosts the store here.
def _run_elastic(args: argparse.Namespace) -> int:
    local = args.shares and all(is_local(share.host) for share in args.shares)
    host = "127.0.0.1" if local else elastic_arguments.store_host(args)
    # A name that is not of this machine may lead here all the same, as by NAT.
    held = serve(host if is_local(host) else "0.0.0.0", args.port or 0, wait_for_workers=False)
    args.store_port = held.port
    args.store_host = host if addresses.answers(host, held.port) else "127.0.0.1"

    def start(share: Share) -> RemoteCommand:
        if args.verbose:
            print(f"{share.host}: {script_for(args, share, stdin=False)}", end="", flush=True)
        alone = len(args.shares) == 1
        return _start(args, share, "" if alone else f"{share.host} ")

    return ElasticJob(args, open_store(args.store_host, held.port), start).run()


# Runs a job with a fixed number of ranks and returns its exit status.
def _run(args: argparse.Namespace) -> int:
    asked: list[int] = []
    for number in signals.that_ask():
        signal.signal(number, lambda number, _: asked.append(number))
    hosts: list[RemoteCommand] = []
    try:
        for share in args.shares:
            hosts.append(_start(args, share))
    except OSError:
        end_all(hosts, _LEAVE)
        raise
    status = 0
    while not asked:
        statuses = [host.poll() for host in hosts]
        failed = next((one for one in statuses if one), None)
        if failed is not None:
            status = failed if failed > 0 else 128 - failed
            break
        if all(one == 0 for one in statuses):
            break
        time.sleep(0.05)
    end_all(hosts, _LEAVE)
    return 128 + asked[0] if asked else status


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status (docs/reference/command-line.md)."""
    _standard_streams.prepare()
    args = parse_arguments(arguments)
    if args.dry_run or (args.verbose and not args.elastic):
        for share in args.shares:
            print(f"{share.host}: {script_for(args, share, stdin=False)}", end="", flush=True)
    if args.dry_run:
        return 0
    try:
        return _run_elastic(args) if args.elastic else _run(args)
    except (OSError, dist.DistError) as error:
        print(f"ringdistrun: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
