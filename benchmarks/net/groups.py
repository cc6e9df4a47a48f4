"""Creates the process groups of variants."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import torch.distributed as dist

from benchmarks.net.variants import TCP, Variant

LIMIT = timedelta(seconds=120)


def groups_of(variants: Sequence[Variant]) -> dict[tuple[str, str, str], dist.ProcessGroup]:
    """Returns groups by Variant.group. The default group is of gloo. All ranks make the same
    call."""
    groups = {("gloo", "", ""): dist.group.WORLD}
    for variant in variants:
        if variant.backend != TCP and variant.group not in groups:
            groups[variant.group] = _new_group(*variant.group)
    return groups


def _new_group(backend: str, transport: str, algorithm: str) -> dist.ProcessGroup:
    options = None
    if transport or algorithm:
        import torch_ringdist

        options = torch_ringdist.Options(transport=transport, algorithm=algorithm)
    return dist.new_group(backend=backend, pg_options=options, timeout=LIMIT)
