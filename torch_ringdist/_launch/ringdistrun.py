"""ringdistrun: starts the ranks of a Horovod script on one host or several."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch.distributed as dist

from torch_ringdist import _standard_streams
from torch_ringdist._address import join
from torch_ringdist._credentials import has_key
from torch_ringdist._launch import addresses, elastic_arguments, horovod_arguments, signals
from torch_ringdist._launch.addresses import USUAL_PORT
from torch_ringdist._launch.elastic_job import ElasticJob
from torch_ringdist._launch.horovod_names import folder_of_names
from torch_ringdist._launch.hosts import Share, parse_hostfile, parse_hosts, shares
from torch_ringdist._launch.remote_command import HostCommand, RemoteCommand, end_all, is_local
from torch_ringdist._launch.worker import forget_stdout
from torch_ringdist._served_store import serve_for_job, warn_of_all_addresses
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

# Prefixes of variables that are passed to ranks on other hosts, in addition to those of -x.
_PASSED = ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHON", "OMP_", "RINGDIST_", "HOROVOD_")


# Parses the value of --rsh into words.
def _words(text: str) -> list[str]:
    with contextlib.suppress(ValueError):  # a quotation mark is missing
        if words := shlex.split(text):
            return words
    raise argparse.ArgumentTypeError(f"must be a command, got {text!r}")


def _port(text: str) -> int:
    with contextlib.suppress(ValueError):
        if 0 <= (port := int(text)) <= 65535:
            return port
    raise argparse.ArgumentTypeError(f"must be a number from 0 to 65535, got {text!r}")


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
    add(
        "--rsh",
        type=_words,
        default="ssh",
        metavar="COMMAND",
        help="for hosts but this one; default: ssh",
    )
    add("-p", "--ssh-port", type=int, metavar="PORT", help="of ssh")
    add("-i", "--ssh-identity-file", metavar="FILE", help="of ssh")
    add("--address", metavar="ADDRESS", help="of the first host, for the others; default: its name")
    add("--port", type=_port, help=f"of the store there; default: {USUAL_PORT}, or a free one here")
    add(
        "-x",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="also for ranks elsewhere",
    )
    add(
        "--network-interfaces",
        "--network-interface",
        action="append",
        metavar="NAME",
        help="RINGDIST_SOCKET_IFNAME; several are joined by commas",
    )
    add("--output-filename", type=Path, metavar="FOLDER", help="for what ranks print")
    elastic_arguments.add(parser)
    add("--dry-run", action="store_true", help="print what is to be run on each host")
    horovod_arguments.add(parser)
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
    line = [f"--world-size={ranks}", f"--first-rank={share.first}", "--horovod"]
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
        out["RINGDIST_SOCKET_IFNAME"] = ",".join(args.network_interfaces)
    if args.fusion_threshold_mb is not None:
        out["HOROVOD_FUSION_THRESHOLD"] = str(args.fusion_threshold_mb << 20)
    if args.elastic:
        out["HOROVOD_ELASTIC_TIMEOUT"] = str(args.elastic_timeout)
    for name, value in (
        ("START_TIMEOUT", args.start_timeout),
        ("CACHE_CAPACITY", args.cache_capacity),
        ("TIMELINE", args.timeline_filename and args.timeline_filename.absolute()),
        ("TIMELINE_MARK_CYCLES", int(args.timeline_mark_cycles) or None),
        ("AUTOTUNE", int(args.autotune) or None),
        ("AUTOTUNE_LOG", args.autotune_log_file and args.autotune_log_file.absolute()),
        ("STALL_CHECK_TIME_SECONDS", args.stall_check_warning_time_seconds),
        ("STALL_CHECK_DISABLE", int(args.no_stall_check) or None),
        ("STALL_SHUTDOWN_TIME_SECONDS", args.stall_check_shutdown_time_seconds),
    ):
        if value is not None:
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
    out = list(args.rsh)
    if out == ["ssh"]:  # else it would not notice a lost host
        out += ["-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"]
    if args.ssh_port is not None:
        out += ["-p", str(args.ssh_port)]
    if args.ssh_identity_file:
        out += ["-i", args.ssh_identity_file]
    return out


# Prints what is run on one host.
def _show(args: argparse.Namespace, share: Share) -> None:
    try:
        print(f"{share.host}: {script_for(args, share, stdin=False)}", end="", flush=True)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        forget_stdout()


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
    here = is_local(host)
    if not here:  # it may lead here all the same, as by NAT
        warn_of_all_addresses(f"{host} is no address of this host")
    held = serve_for_job(host if here else "0.0.0.0", args.port or 0)
    args.store_port = held.port
    args.store_host = host if here or addresses.answers(host, held.port) else "127.0.0.1"

    def start(share: Share) -> RemoteCommand:
        if args.verbose:
            _show(args, share)
        alone = len(args.shares) == 1
        return _start(args, share, "" if alone else f"{share.host} ")

    return ElasticJob(args, open_store(args.store_host, held.port, has_key()), start).run()


# Runs a job with a fixed number of ranks and returns its exit status.
def _run(args: argparse.Namespace) -> int:
    asked: list[int] = []
    for number in signals.that_ask():
        signal.signal(number, lambda number, _: asked.append(number))
    hosts: list[RemoteCommand] = []
    try:
        for share in args.shares:
            hosts.append(_start(args, share))
    except (OSError, ValueError):
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
            _show(args, share)
    if args.dry_run:
        return 0
    try:
        return _run_elastic(args) if args.elastic else _run(args)
    # ValueError stands for a variable or a host with a value that is not accepted.
    except (OSError, ValueError, dist.DistError) as error:
        print(f"ringdistrun: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
