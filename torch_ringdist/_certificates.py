"""Actions of the command ``key`` for certificates: a private authority, requests and signatures.

A certificate has its owner as common name and its ranks as alternative names, which are URIs such
as ringdist:rank:2 and ringdist:rank:any. The package ``cryptography`` does the work.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
from pathlib import Path
from typing import Any

_RANK = "ringdist:rank:"
_ANY = "any"
_MOST_RANKS = 4096
_CURVE_NOTE = "The key is of ECDSA with P-256."
_EARLIER = datetime.timedelta(minutes=5)  # clocks of hosts differ
_CA_DAYS, _MEMBER_DAYS = 3650, 90

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


def add_arguments(actions: Any) -> None:
    """Adds the actions ca, request and sign to subparsers of argparse."""

    def action(name: str, text: str, line: str) -> Any:
        form = argparse.RawDescriptionHelpFormatter
        return actions.add_parser(name, help=line, description=text, formatter_class=form)

    ca = action("ca", _CA, "make a private authority for certificates")
    ca.add_argument("folder", metavar="DIR", help="the folder to create; it must not exist")
    ca.add_argument("--days", type=_days, default=_CA_DAYS, help="until it expires (default: 3650)")
    request = action("request", _REQUEST, "make a private key, and a request for its certificate")
    request.add_argument(
        "--owner", required=True, metavar="NAME", help="required; shown in messages"
    )
    request.add_argument("--ranks", type=_ranks, metavar="RANKS", help="as 2, or 0,4-7, or any")
    request.add_argument("out", metavar="OUT", help="writes OUT.key and OUT.csr")
    sign = action("sign", _SIGN, "sign a request")
    sign.add_argument("--ca", required=True, metavar="DIR", help="required; its folder")
    sign.add_argument("request", metavar="OUT.csr", help="the request")
    sign.add_argument("--ranks", type=_ranks, metavar="RANKS", help="instead of the requested ones")
    sign.add_argument(
        "--days", type=_days, default=_MEMBER_DAYS, help="until it expires (default: 90)"
    )


def run(args: argparse.Namespace) -> None:
    """Carries an action out.

    Raises:
        FileExistsError: a file exists that the action would write.
        OSError: the system refused.
        ValueError: a file is not of the kind that the action needs; the message names it.
        ImportError: the package cryptography is missing.
    """
    try:
        import cryptography.x509  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"key {args.action} needs the package cryptography ({error}): "
            "pip install 'torch-ringdist[certificates]'"
        ) from None
    {"ca": _make_authority, "request": _make_request, "sign": _sign}[args.action](args)


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


def _make_authority(args: argparse.Namespace) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    folder = Path(args.folder)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("ringdist authority " + os.urandom(4).hex())
    usage = dict.fromkeys(
        ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
         "key_agreement", "encipher_only", "decipher_only"), False,
    )  # fmt: skip
    made = (
        _begun(name, name, key.public_key(), args.days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True)
    )
    folder.mkdir(mode=0o700)
    write_new(folder / "ca.key", _pem_of_key(key), 0o600)
    write_new(folder / "ca.pem", _signed(made, key), 0o644)
    print(
        f"{folder}: a new authority, until {_end(args.days)}. Keep {folder / 'ca.key'} secret, and "
        f"set RINGDIST_CA to a copy of {folder / 'ca.pem'} on every rank."
    )


def _make_request(args: argparse.Namespace) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    if not 0 < len(args.owner) <= 64 or not args.owner.isprintable():
        raise ValueError(f"--owner must have 1 to 64 printable characters, got {args.owner!r}")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name(args.owner))
    if args.ranks:
        builder = builder.add_extension(_alternative_names(args.ranks), critical=False)
    request = builder.sign(key, hashes.SHA256())
    write_new(f"{args.out}.key", _pem_of_key(key), 0o600)
    write_new(f"{args.out}.csr", request.public_bytes(serialization.Encoding.PEM), 0o644)
    print(
        f"{args.out}.key: a new private key, which stays here. {args.out}.csr: a request of "
        f"{args.owner!r} for {_shown(args.ranks)}. Let the authority sign it with 'key sign'."
    )


def _sign(args: argparse.Namespace) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    folder, path = Path(args.ca), Path(args.request)
    if path.suffix != ".csr":
        raise ValueError(f"OUT.csr must be a file with this suffix, got {args.request!r}")
    authority = _parsed(f"--ca: {folder / 'ca.pem'} is no certificate in PEM form",
                        x509.load_pem_x509_certificate, folder / "ca.pem")  # fmt: skip
    key = _parsed(f"--ca: {folder / 'ca.key'} is no private key in PEM form",
                  lambda data: serialization.load_pem_private_key(data, None),
                  folder / "ca.key")  # fmt: skip
    request = _parsed(f"OUT.csr: {path} is no request in PEM form",
                      x509.load_pem_x509_csr, path)  # fmt: skip
    if not request.is_signature_valid:
        raise ValueError(f"OUT.csr: {path} was not signed with its own key")
    owners = request.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    owner = str(owners[0].value) if owners else ""
    ranks = args.ranks or _requested(request)
    if not owner or not ranks:
        raise ValueError(f"OUT.csr: {path} names no {'ranks: give --ranks' if owner else 'owner'}")
    made = (
        _begun(_name(owner), authority.subject, request.public_key(), args.days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_alternative_names(ranks), critical=False)
    )
    out = path.with_suffix(".pem")
    write_new(out, _signed(made, key), 0o644)
    print(f"{out}: a certificate of {owner!r} for {_shown(ranks)}, until {_end(args.days)}.")


# Returns a certificate without extensions. Its serial number is random, so that its owner cannot
# choose the hash which begins the ids of its processes.
def _begun(subject: Any, issuer: Any, key: Any, days: int) -> Any:
    from cryptography import x509

    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _signed(builder: Any, key: Any) -> bytes:
    from cryptography.hazmat.primitives import hashes, serialization

    pem: bytes = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return pem


def _pem_of_key(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization as s

    pem: bytes = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    return pem


def _name(text: str) -> Any:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _alternative_names(ranks: list[str]) -> Any:
    from cryptography import x509

    names = [x509.UniformResourceIdentifier(_RANK + rank) for rank in ranks]
    return x509.SubjectAlternativeName(names)


# Returns the ranks of a request; empty if it has none. Raises ValueError for other names.
def _requested(request: Any) -> list[str]:
    from cryptography import x509

    try:
        found = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    uris = found.value.get_values_for_type(x509.UniformResourceIdentifier)
    ranks = [uri.removeprefix(_RANK) for uri in uris if uri.startswith(_RANK)]
    if not all(rank == _ANY or rank.isdecimal() for rank in ranks):
        raise ValueError(f"OUT.csr has alternative names that are no ranks: {uris!r}")
    return ranks


def _parsed(problem: str, parse: Any, path: Path) -> Any:
    data = path.read_bytes()
    try:
        return parse(data)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{problem}: {error}") from None


# Both functions parse values of options.


def _ranks(text: str) -> list[str]:
    if text == _ANY:
        return [_ANY]
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


def _shown(ranks: list[str] | None) -> str:
    if not ranks:
        return "ranks that the authority chooses"
    if ranks == [_ANY]:
        return "any rank"
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(ranks)


def _end(days: int) -> str:
    return f"{datetime.date.today() + datetime.timedelta(days=days)}"
