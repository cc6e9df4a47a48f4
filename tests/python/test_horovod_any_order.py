"""Calls by name in any order, from any thread (`make horovod-random`): a short run."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.any_order import __main__ as command  # noqa: E402
from tests.any_order.execute import run  # noqa: E402
from tests.any_order.plan import DTYPES, KINDS, OPS, SETS, WORLD, plan  # noqa: E402

SEEDS = 4  # per block
# The first block has a short cache and no batches, the second has the defaults.
FIRST = [0, 50]


@pytest.mark.parametrize("first", [*FIRST, None])
def test_a_short_run(pools, first: int | None):
    if first is None:
        first = random.randrange(1 << 30)
    print(f"seeds {first} to {first + SEEDS - 1}")
    pools(WORLD).run(run, first, SEEDS, timeout=100)


def test_a_wrong_result_is_seen(fresh_pool):
    with pytest.raises(AssertionError, match=r"seed 7, rank \d, time \d of Call"):
        fresh_pool(WORLD).run(run, 7, 1, 2)


def test_a_plan_has_all():
    calls = plan(3)
    assert {call.kind for call in calls} == set(KINDS)
    assert {call.op for call in calls} == set(OPS)
    assert {dtype for call in calls for dtype in call.dtypes} == set(DTYPES)
    assert {call.process_set for call in calls} == set(range(len(SETS)))
    assert len({(call.name, call.process_set) for call in calls}) == len(calls) == 200
    assert any(call.odd is not None and call.times > 1 for call in calls)
    assert len({call.name for call in calls}) < len(calls), "two sets have one of a name"


def test_blocks():
    assert command.blocks(0, 20) == [(0, 10), (10, 10)]
    assert command.blocks(37, 15) == [(37, 3), (40, 10), (50, 2)]
