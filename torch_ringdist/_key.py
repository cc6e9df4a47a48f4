"""The command ``key``: makes the key of a job, or an authority and its certificates."""

from __future__ import annotations

import argparse
import os

from torch_ringdist import _certificates

_BYTES = 32
_DESCRIPTION = f"""\
Makes a key of {_BYTES} random bytes in a new file that only you may read. Give every rank of a job
the same file, by RINGDIST_KEY_FILE. Ranks then encrypt all their connections between hosts, and
refuse everybody without the key.

example:
  python -m torch_ringdist key new job.key
  scp -p job.key other-host:
  RINGDIST_KEY_FILE=$PWD/job.key torchrun ...

Copy it over an encrypted channel, keep its mode 0600, and make another one for the next job.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    new = actions.add_parser(
        "new",
        help="make a key in a new file",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    new.add_argument("file", metavar="FILE", help="the file to create; it must not exist")
    _certificates.add_arguments(actions)


def run(args: argparse.Namespace) -> None:
    """Writes the key, or does what another action of `args` does.

    Raises:
        FileExistsError: the file exists.
        OSError: the system refused.
        ValueError: a file is not of the kind that the action needs.
        ImportError: the package cryptography is missing.
    """
    if args.action != "new":
        return _certificates.run(args)
    _certificates.write_new(args.file, os.urandom(_BYTES), 0o600)
    print(f"{args.file}: a new key. Set RINGDIST_KEY_FILE to it on every rank.")
