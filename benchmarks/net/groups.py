"""Creates the process groups of variants."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import torch.distributed as dist

from benchmarks.net.variants import TCP, Variant

LIMIT = timedelta(seconds=120)


def groups_of(variants: Sequence[Variant]) -> dict[tuple[str, str], dist.ProcessGroup]:
    """Returns groups by backend and algorithm. The default group is of gloo. All ranks make the
    same call."""
    groups = {("gloo", ""): dist.group.WORLD}
    for variant in variants:
        key = variant.backend, variant.algorithm
        if variant.backend != TCP and key not in groups:
            groups[key] = _new_group(*key)
    return groups


def _new_group(backend: str, algorithm: str) -> dist.ProcessGroup:
    options = None
    if algorithm:
        import torch_ringdist

        options = torch_ringdist.Options(algorithm=algorithm)
    return dist.new_group(backend=backend, pg_options=options, timeout=LIMIT)
