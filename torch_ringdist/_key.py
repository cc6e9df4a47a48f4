"""The command ``key``: makes the key of a job."""

from __future__ import annotations

import argparse
import os

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


def run(args: argparse.Namespace) -> None:
    """Writes the key.

    Raises:
        FileExistsError: the file exists.
        OSError: the system refused.
    """
    descriptor = os.open(args.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        try:
            file.write(os.urandom(_BYTES))
            file.flush()
        except BaseException:
            os.unlink(args.file)
            raise
    print(f"{args.file}: a new key. Set RINGDIST_KEY_FILE to it on every rank.")
