"""The command ``key``: makes the key of a job, or an authority and its certificates."""

from __future__ import annotations

import argparse
import os
import re
from typing import Any

_BYTES = 32
ANY = "any"
_MOST_RANKS = 1024
_CURVE_NOTE = "The key is of ECDSA with P-256."
_CA_DAYS, _MEMBER_DAYS = 3650, 90
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
_CA = f"""\
Makes a private authority in a new folder: ca.key, its private key, which only you may read, and
ca.pem, its certificate. Whoever has ca.key can sign members of your jobs, so keep it off the hosts
of jobs. Every rank needs ca.pem, by RINGDIST_CA. {_CURVE_NOTE}

example:
  python -m torch_ringdist key ca authority
"""
_REQUEST = f"""\
Makes a private key and a request for a certificate, on the host that will use them. OUT.key stays
there, for RINGDIST_CERT_KEY; give OUT.csr to the owner of the authority. {_CURVE_NOTE}

example:
  python -m torch_ringdist key request --owner alice --ranks 0,1 alice
"""
_SIGN = """\
Signs a request with the authority in a folder that `key ca` made, and writes the certificate beside
the request, as OUT.pem. The owner and the ranks are printed: check that the request came from this
owner. --ranks replaces the ranks of the request. Give OUT.pem back, and ca.pem.

example:
  python -m torch_ringdist key sign --ca authority alice.csr --ranks 0-3 --days 30
  RINGDIST_CERT=alice.pem RINGDIST_CERT_KEY=alice.key RINGDIST_CA=ca.pem torchrun ...
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, text: str, line: str) -> Any:
        form = argparse.RawDescriptionHelpFormatter
        return actions.add_parser(name, help=line, description=text, formatter_class=form)

    new = action("new", _DESCRIPTION, "make a key in a new file")
    new.add_argument("file", metavar="FILE", help="the file to create; it must not exist")
    ca = action("ca", _CA, "make a private authority for certificates")
    ca.add_argument("folder", metavar="DIR", help="the folder to create; it must not exist")
    ca.add_argument("--days", type=_days, default=_CA_DAYS, help="until it expires (default: 3650)")
    request = action("request", _REQUEST, "make a private key, and a request for its certificate")
    request.add_argument(
        "--owner", required=True, metavar="NAME", help="required; shown in messages"
    )
    request.add_argument(
        "--ranks", type=parse_ranks, metavar="RANKS", help="as 2, or 0,4-7, or any"
    )
    request.add_argument("out", metavar="OUT", help="writes OUT.key and OUT.csr")
    sign = action("sign", _SIGN, "sign a request")
    sign.add_argument("--ca", required=True, metavar="DIR", help="required; its folder")
    sign.add_argument("request", metavar="OUT.csr", help="the request")
    sign.add_argument(
        "--ranks", type=parse_ranks, metavar="RANKS", help="instead of the requested ones"
    )
    sign.add_argument(
        "--days", type=_days, default=_MEMBER_DAYS, help="until it expires (default: 90)"
    )


def run(args: argparse.Namespace) -> None:
    """Writes the key, or does what another action of `args` does.

    Raises:
        FileExistsError: a file exists that the action would write.
        OSError: the system refused.
        ValueError: a file is not of the kind that the action needs; the message names it.
        ImportError: the package cryptography is missing.
    """
    if args.action == "new":
        write_new(args.file, os.urandom(_BYTES), 0o600)
        return print(f"{args.file}: a new key. Set RINGDIST_KEY_FILE to it on every rank.")
    try:
        from torch_ringdist import _certificates
    except ImportError as error:
        raise ImportError(
            f"key {args.action} needs the package cryptography ({error}): "
            "pip install 'torch-ringdist[certificates]'"
        ) from None
    if args.action == "ca":
        _certificates.make_authority(args)
    elif args.action == "request":
        _certificates.make_request(args)
    else:
        _certificates.sign(args)


def write_new(path: str | os.PathLike[str], content: bytes, mode: int) -> None:
    """Writes a new file with this mode, or none. Raises FileExistsError and OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(descriptor, "wb") as file:
        try:
            file.write(content)
            file.flush()
        except BaseException:
            os.unlink(path)
            raise


def parse_ranks(text: str) -> list[str]:
    """Returns the ranks of a text such as 0,4-7 or any. Raises argparse.ArgumentTypeError."""
    if text == ANY:
        return [ANY]
    ranks: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part)
        if match is None or len(ranks) > _MOST_RANKS:
            raise argparse.ArgumentTypeError(f"must be as 2, or 0,4-7, or any; got {text!r}")
        ranks.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    if not 0 < len(ranks) <= _MOST_RANKS:
        raise argparse.ArgumentTypeError(f"must be 1 to {_MOST_RANKS} ranks, got {text!r}")
    return [str(rank) for rank in sorted(ranks)]


def _days(text: str) -> int:
    if text.isdecimal() and 0 < int(text) <= 36500:
        return int(text)
    raise argparse.ArgumentTypeError(f"must be a whole number from 1 to 36500, got {text!r}")
