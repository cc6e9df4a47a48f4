"""``python -m torch_ringdist store``: runs only the store, for ranks started by another
launcher."""

from __future__ import annotations

import argparse
import signal

import torch.distributed as dist

from torch_ringdist import _address
from torch_ringdist._credentials import has_key
from torch_ringdist._launch import addresses, arguments, signals
from torch_ringdist._served_store import serve_for_job
from torch_ringdist.elastic import _log

_DESCRIPTION = """\
Hold the store in which the ranks of torch_ringdist.elastic meet, for those that something else
launches with RINGDIST_RDZV. It stays until it is asked to end (Ctrl-C, SIGTERM); several jobs may
use it, with other values of RINGDIST_JOB. With RINGDIST_KEY_FILE or RINGDIST_CERT it is encrypted,
and ranks find it by RINGDIST_RDZV=ringdist://HOST:PORT.
"""

_EXAMPLES = """\
examples:
  python -m torch_ringdist store --rdzv=a:29500
      On host a; then, as often as there shall be ranks, on any host:
  RINGDIST_RDZV=a:29500 torchrun --nproc-per-node=1 --max-restarts=9 train.py
"""


# Adds the options of the command to its parser.
def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--rdzv",
        type=arguments.rendezvous,
        required=True,
        metavar="HOST:PORT",
        help="where; HOST is a name or an address of this host",
    )


def run(args: argparse.Namespace) -> int:
    """Runs the store until a signal ends it, and returns the exit status.

    Raises:
        OSError: the address is in use, or does not belong to this host.
    """
    host, port = args.rdzv
    if not addresses.is_here(host):
        raise OSError(f"--rdzv: {host} is not an address of this host")
    if addresses.answers(host, port):
        raise OSError(f"--rdzv: somebody listens at {host}:{port} already")
    ends = signals.that_ask()
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # the threads of the store inherit the mask
    try:
        store = serve_for_job(host, port)
    except dist.DistError as error:
        raise OSError(str(error)) from error
    address = _address.join_store(host, store.port, has_key())
    _log.event("store", f"ranks can meet at {address}; Ctrl-C ends it")
    signal.sigwait(ends)
    return 0
