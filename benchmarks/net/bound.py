"""The least bytes that must pass the line of the busiest host, out of it or into it."""

from __future__ import annotations

from benchmarks.net.layout import Layout
from benchmarks.net.variants import Variant

FP32 = 32  # bits
# Of what a codec does to the bytes: the same on all that passes, or a contribution's and a sum's.
CODED = ("all_reduce", "all_gather", "reduce_scatter")


def least_bytes(operation: str, size: int, layout: Layout) -> float:
    """`size`: bytes of a rank's longest tensor. An operation's root is rank 0."""
    world = layout.world
    largest, smallest = max(layout.per_host), min(layout.per_host)
    elsewhere = {
        # What a host sums by itself before it sends: twice all but its share.
        "all_reduce": 2 * (layout.hosts - 1) / layout.hosts,
        "broadcast": 1.0,
        "reduce": 1.0,
        "all_gather": (world - smallest) / world,
        # Out of the smallest host all that others own, into the largest its own.
        "reduce_scatter": max(world - smallest, largest) / world,
        "all_to_all": max(count * (world - count) for count in layout.per_host) / world,
        "gather": (world - layout.per_host[0]) / world,
        "scatter": (world - layout.per_host[0]) / world,
        "barrier": 0.0,
    }[operation]
    return elsewhere * size


def coded_bytes(operation: str, size: int, layout: Layout, variant: Variant) -> float | None:
    """The same by a codec, whose contributions and sums may differ. None: depends on the values."""
    plain = least_bytes(operation, size, layout)
    if not variant.codec:
        return plain
    bits = variant.bits(FP32, layout.hosts)
    if bits is None:
        return None
    contribution, result = bits
    mean = (contribution + result) / 2 if operation == "all_reduce" else contribution
    return plain * mean / FP32
