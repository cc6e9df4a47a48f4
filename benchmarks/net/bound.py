"""Computes the minimum of bytes on the link of the busiest host, in either direction."""

from __future__ import annotations

from benchmarks.net.layout import Layout
from benchmarks.net.variants import Variant

FP32 = 32  # bits
# Operations with codecs. The codec of an allreduce may differ between contributions and sums.
CODED = ("all_reduce", "all_gather", "reduce_scatter")


def least_bytes(operation: str, size: int, layout: Layout) -> float:
    """Returns the minimum of bytes. `size` is the size of a rank's longest tensor in bytes, and the
    root is rank 0."""
    world = layout.world
    largest, smallest = max(layout.per_host), min(layout.per_host)
    elsewhere = {
        # Hosts add up first, and then exchange everything except their shares, twice.
        "all_reduce": 2 * (layout.hosts - 1) / layout.hosts,
        "broadcast": 1.0,
        "reduce": 1.0,
        "all_gather": (world - smallest) / world,
        # The smallest host sends the parts of all others, and the largest receives its own.
        "reduce_scatter": max(world - smallest, largest) / world,
        "all_to_all": max(count * (world - count) for count in layout.per_host) / world,
        "gather": (world - layout.per_host[0]) / world,
        "scatter": (world - layout.per_host[0]) / world,
        "barrier": 0.0,
    }[operation]
    return elsewhere * size


def coded_bytes(operation: str, size: int, layout: Layout, variant: Variant) -> float | None:
    """Returns the minimum of bytes with a codec, or None if it depends on values. Contributions and
    sums may have different codecs."""
    plain = least_bytes(operation, size, layout)
    if not variant.codec:
        return plain
    bits = variant.bits(FP32, layout.hosts)
    if bits is None:
        return None
    contribution, result = bits
    mean = (contribution + result) / 2 if operation == "all_reduce" else contribution
    return plain * mean / FP32
