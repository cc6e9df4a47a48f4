"""Actions of the command ``key`` for certificates: a private authority, requests and signatures.

A certificate has its owner as common name and its ranks as alternative names, which are URIs such
as ringdist:rank:2 and ringdist:rank:any. The package ``cryptography`` does the work.
"""

from __future__ import annotations

import argparse
import datetime
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from torch_ringdist._key import ANY, parse_ranks, write_new

_RANK = "ringdist:rank:"
_EARLIER = datetime.timedelta(minutes=5)  # clocks of hosts differ


# The three actions raise FileExistsError for a file that exists, and OSError if the system refuses.
# They raise ValueError for a file or an owner that they cannot use; the message names it.


def make_authority(args: argparse.Namespace) -> None:
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
    _write_pair(folder / "ca.key", _pem_of_key(key), folder / "ca.pem", _signed(made, key))
    print(
        f"{folder}: a new authority, until {_end(args.days)}. Keep {folder / 'ca.key'} secret, and "
        f"set RINGDIST_CA to a copy of {folder / 'ca.pem'} on every rank."
    )


def make_request(args: argparse.Namespace) -> None:
    _check_owner("--owner", args.owner)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name(args.owner))
    if args.ranks:
        builder = builder.add_extension(_alternative_names(args.ranks), critical=False)
    request = builder.sign(key, hashes.SHA256())
    _write_pair(
        Path(f"{args.out}.key"),
        _pem_of_key(key),
        Path(f"{args.out}.csr"),
        request.public_bytes(serialization.Encoding.PEM),
    )
    print(
        f"{args.out}.key: a new private key, which stays here. {args.out}.csr: a request of "
        f"{args.owner!r} for {_shown(args.ranks)}. Let the authority sign it with 'key sign'."
    )


def sign(args: argparse.Namespace) -> None:
    folder, path = Path(args.ca), Path(args.request)
    if path.suffix != ".csr":
        raise ValueError(f"OUT.csr must be a file with this suffix, got {args.request!r}")
    authority = _parsed(
        f"--ca: {folder / 'ca.pem'} is no certificate in PEM form",
        x509.load_pem_x509_certificate,
        (folder / "ca.pem").read_bytes(),
    )
    key = _parsed(f"--ca: {folder / 'ca.key'} is no private key in PEM form",
                  lambda data: serialization.load_pem_private_key(data, None),
                  (folder / "ca.key").read_bytes())  # fmt: skip
    if key.public_key() != authority.public_key():
        raise ValueError(f"--ca: {folder / 'ca.key'} is not the key of {folder / 'ca.pem'}")
    request = _parsed(f"OUT.csr: {path} is no request in PEM form",
                      x509.load_pem_x509_csr, path.read_bytes())  # fmt: skip
    if not request.is_signature_valid:
        raise ValueError(f"OUT.csr: {path} was not signed with its own key")
    owners = request.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    owner = str(owners[0].value) if owners else ""
    ranks = args.ranks or _parsed(f"OUT.csr: {path} has ranks that cannot be signed; give --ranks",
                                  _requested, request)  # fmt: skip
    if not ranks:
        raise ValueError(f"OUT.csr: {path} names no ranks: give --ranks")
    _check_owner(f"OUT.csr: the owner in {path}", owner)
    left = (authority.not_valid_after_utc - datetime.datetime.now(datetime.timezone.utc)).days
    if args.days > left:
        raise ValueError(f"--days={args.days}: the authority itself expires in {left} days")
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
    pem: bytes = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return pem


def _pem_of_key(key: Any) -> bytes:
    pem: bytes = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return pem


def _name(text: str) -> Any:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _alternative_names(ranks: list[str]) -> Any:
    names = [x509.UniformResourceIdentifier(_RANK + rank) for rank in ranks]
    return x509.SubjectAlternativeName(names)


# Writes a private key and its file, or none.
def _write_pair(key: Path, secret: bytes, other: Path, content: bytes) -> None:
    write_new(key, secret, 0o600)
    try:
        write_new(other, content, 0o644)
    except BaseException:
        key.unlink()
        raise


# Quotes would make a name end early in messages.
def _check_owner(what: str, owner: str) -> None:
    if not 0 < len(owner.encode()) <= 64 or not owner.isprintable() or "'" in owner:
        raise ValueError(
            f"{what} must have 1 to 64 printable characters and no apostrophe, got {owner!r}"
        )


# Returns the ranks of a request; empty if it has none. Raises ValueError for other names.
def _requested(request: Any) -> list[str]:
    try:
        found = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    uris = found.value.get_values_for_type(x509.UniformResourceIdentifier)
    ranks = [uri.removeprefix(_RANK) for uri in uris if uri.startswith(_RANK)]
    if ANY in ranks:
        return [ANY]
    return parse_ranks(",".join(ranks)) if ranks else []


# Parses what was read. Raises ValueError with `problem` if it is something else.
def _parsed(problem: str, parse: Callable[[Any], Any], data: Any) -> Any:
    try:
        return parse(data)
    except MemoryError:
        raise
    except Exception as error:  # cryptography has many for what a file may have in it
        raise ValueError(f"{problem}: {error}") from None


def _shown(ranks: list[str] | None) -> str:
    if not ranks:
        return "ranks that the authority chooses"
    if ranks == [ANY]:
        return "any rank"
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(ranks)


def _end(days: int) -> str:
    return f"{datetime.date.today() + datetime.timedelta(days=days)}"
