"""Options of ringdistrun for a changing number of ranks."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Sequence

from torch_ringdist._address import join
from torch_ringdist._launch.addresses import USUAL_PORT
from torch_ringdist._launch.elastic_job import JOB
from torch_ringdist._launch.hosts import Share, shares
from torch_ringdist._launch.remote_command import is_local

_TIMEOUT = 600  # seconds, as in Horovod


# Adds the options to the parser.
def add(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument_group("ranks that come and go (hvd.elastic)").add_argument
    option("--min-np", "--min-num-proc", type=int, metavar="N", help="with fewer, training waits")
    option("--max-np", "--max-num-proc", type=int, metavar="N", help="no more are started")
    option(
        "--host-discovery-script",
        metavar="COMMAND",
        help="in place of -H: it prints lines of HOST:SLOTS, and is run again each second",
    )
    option("--slots-per-host", "--slots", type=int, metavar="N", help="where it prints none; 1")
    option("--reset-limit", type=int, metavar="N", help="ranks may change so often, then all end")
    option("--elastic-timeout", type=int, metavar="S", help="to wait for ranks; default: 600")


def check(args: argparse.Namespace) -> None:
    """Checks the options and fills in defaults. Sets args.elastic to True if the number of ranks
    may change.

    Raises:
        ValueError: options that exclude each other, or a value out of its range.
    """
    args.elastic = args.min_np is not None or args.host_discovery_script is not None
    limits = {"max_np": 1, "slots_per_host": 1, "reset_limit": 0, "elastic_timeout": 1}
    for name, least in {"min_np": 1, **limits}.items():
        value, option = getattr(args, name), f"--{name.replace('_', '-')}"
        if value is not None and value < least:
            raise ValueError(f"{option} must be at least {least}, got {value}")
        if value is not None and not args.elastic:
            raise ValueError(f"{option} goes with --min-np")
    if not args.elastic:
        return
    if args.host_discovery_script and (args.hosts or args.hostfile or args.dry_run):
        raise ValueError("--host-discovery-script: not with -H, --hostfile or --dry-run")
    args.min_np = args.min_np or args.num_proc or 1
    args.slots_per_host = args.slots_per_host or 1
    args.elastic_timeout = args.elastic_timeout or _TIMEOUT
    args.store_port = None  # set when ringdistrun has its store
    start = args.num_proc or args.min_np
    if not args.min_np <= start <= (args.max_np or start):
        raise ValueError(
            f"--min-np={args.min_np}, -np={start} and --max-np={args.max_np} must not fall: the "
            "fewest, as many as training begins with, the most"
        )


def shares_of(args: argparse.Namespace, hosts: Sequence[tuple[str, int]]) -> list[Share]:
    """Returns all slots up to --max-np as shares, with workers numbered per host. Raises as
    hosts.shares()."""
    slots = sum(count for _, count in hosts)
    most = max(args.num_proc or args.min_np, min(slots, args.max_np or slots))
    return [Share(one.host, 0, one.count) for one in shares(hosts, most)]


def store_host(args: argparse.Namespace) -> str:
    """Returns the name or address at which other hosts find the store of this process."""
    return args.address or socket.gethostname()


def launch_options(args: argparse.Namespace, share: Share) -> list[str]:
    """Returns the options for the launcher of one host."""
    port = args.store_port
    if port is None:  # --dry-run, where the first host has the store
        where = join(args.address or args.shares[0].host, args.port or USUAL_PORT)
    elif is_local(share.host):
        where = join(args.store_host, port)
    else:
        where = join(store_host(args), port)
    line = [f"--job={JOB}", f"--rdzv={where}", f"--first-worker={share.first}"]
    slots = sum(one.count for one in args.shares)  # 0 if a script names the hosts
    start = args.num_proc or max(args.min_np, slots)
    line += [f"--min-ranks={args.min_np}", f"--start-ranks={start}"]
    return [*line, f"--max-ranks={args.max_np}"] if args.max_np else line
