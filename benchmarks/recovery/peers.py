"""The measured implementations by name."""

from __future__ import annotations

import os

from benchmarks.recovery import verify
from benchmarks.recovery.run import Peer

NAMES = ("ringdist", "torchft")


def find(name: str) -> Peer:
    """Returns the peer. Imports its packages, or exits with the packages to install."""
    if name == "ringdist":
        from benchmarks.recovery import ringdist_rank

        return Peer(ringdist_rank.live, verify.of_shrinks)
    os.environ.setdefault("RUST_LOG", "warn")  # read at import; avoids a page per step
    try:
        from benchmarks.recovery import torchft_rank
    except ImportError as error:
        raise SystemExit(
            f"--peer torchft: {error}. Install it: pip install torchft==0.2.0, in an environment "
            "of its own or with --no-deps, as it may bring another torch; it needs opentelemetry-"
            "exporter-otlp-proto-http and opentelemetry-sdk as well"
        ) from None
    return Peer(torchft_rank.live, verify.of_the_last_group, torchft_rank.serve, leaves=False)
