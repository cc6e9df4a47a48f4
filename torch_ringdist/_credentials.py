"""Credentials of this process, the key of a job or a certificate, as environment variables."""

from __future__ import annotations

import os

_VARIABLES = ("RINGDIST_KEY_FILE", "RINGDIST_CERT", "RINGDIST_CERT_KEY", "RINGDIST_CA")


def tls_files() -> tuple[str, str, str, str]:
    """Returns the files that the variables name; "" for those that are not set."""
    key, cert, cert_key, ca = (os.environ.get(name, "") for name in _VARIABLES)
    return key, cert, cert_key, ca


def has_key() -> bool:
    """Returns True if this process has a key or a certificate. Then its launchers serve stores of
    ringdist's own."""
    return any(tls_files())
