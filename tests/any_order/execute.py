"""Execution of the calls of a seed on each rank."""

from __future__ import annotations

import os
import random
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from support.horovod import initialized
from support.rank import caught, in_threads, same_bits
from torch import Tensor

import torch_ringdist.horovod as hvd
from tests.any_order import values
from tests.any_order.plan import NAMES, SETS, Call, plan

THREADS = 3
BLOCK = 10  # seeds between init() and shutdown()
# Settings of a block: caches for few names, and short batches, come first.
CACHES = [NAMES // 4, 1024]
FUSED_BYTES = [0, 10_000, 64 << 20]
ODD_SHAPE = (77,)  # a shape that no plan draws


def run(first: int, count: int, liar: int | None = None) -> None:
    """Runs the calls of `count` seeds. The rank `liar` uses the values of another seed."""
    with _settings(first // BLOCK):
        sets = [hvd.global_process_set, *(hvd.ProcessSet(ranks) for ranks in SETS[1:])]
        with initialized(process_sets=sets[1:]):
            for seed in range(first, first + count):
                print(f"seed {seed}", flush=True)
                _Rank(seed, sets, int(hvd.rank() == liar)).run()


@contextmanager
def _settings(block: int) -> Iterator[None]:
    given = {
        "HOROVOD_CACHE_CAPACITY": str(CACHES[block % len(CACHES)]),
        "HOROVOD_FUSION_THRESHOLD": str(FUSED_BYTES[block % len(FUSED_BYTES)]),
    }
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            del os.environ[name]


class _Rank:
    """Distributes a rank's calls to threads, each of which has its own order."""

    def __init__(self, seed: int, sets: list[hvd.ProcessSet], off: int) -> None:
        self._seed, self._sets, self._off = seed, sets, off
        self._drawn = random.Random(f"{seed} on {hvd.rank()}")

    def run(self) -> None:
        hands: list[list[Call]] = [[] for _ in range(THREADS)]
        calls = [call for call in plan(self._seed) if hvd.rank() in call.members]
        self._drawn.shuffle(calls)
        for call in calls:
            self._drawn.choice(hands).append(call)
        seeds = [self._drawn.random() for _ in hands]
        in_threads(
            [
                partial(self._play, hand, random.Random(s))
                for hand, s in zip(hands, seeds, strict=True)
            ]
        )

    def _play(self, calls: list[Call], drawn: random.Random) -> None:
        try:
            self._play_out(calls, drawn)
        except BaseException:
            traceback.print_exc()  # now, because other ranks may wait for this one
            raise

    def _play_out(self, calls: list[Call], drawn: random.Random) -> None:
        under_way = [(call, 0, self._start(call, 0, drawn)) for call in calls]
        while under_way:
            again = []
            drawn.shuffle(under_way)
            for call, number, handle in under_way:
                while drawn.random() < 0.2 and not hvd.poll(handle):
                    time.sleep(0.0002)
                self._end(call, number, handle)
                if number + 1 < call.times:
                    again.append((call, number + 1, self._start(call, number + 1, drawn)))
            under_way = again

    def _start(self, call: Call, number: int, drawn: random.Random) -> int:
        if drawn.random() < 0.02:
            time.sleep(0.002 * drawn.random())
        tensors = values.given(call, self._member(call), number + self._off)
        process_set = self._sets[call.process_set]
        if number == 0 and call.odd == hvd.rank():
            odd = torch.ones(ODD_SHAPE)
            return hvd.allreduce_async(odd, name=call.name, process_set=process_set)
        start = getattr(hvd, f"{call.kind.rstrip('_')}_async{'_' * call.kind.endswith('_')}")
        what = tensors if call.kind.startswith("grouped") else tensors[0]
        if "broadcast" in call.kind:
            return start(what, call.root, call.name, process_set)
        if "allgather" in call.kind:
            return start(what, call.name, process_set)
        if call.kind == "alltoall":
            splits = values.splits_of(call, self._member(call), number + self._off)
            told = torch.tensor(splits, dtype=torch.int32) if call.splits else None
            return start(what, told, call.name, process_set)
        before, after = call.factors
        return start(
            what,
            name=call.name,
            op=call.op,
            prescale_factor=before,
            postscale_factor=after,
            process_set=process_set,
        )

    def _end(self, call: Call, number: int, handle: int) -> None:
        what = f"seed {self._seed}, rank {hvd.rank()}, time {number} of {call}"
        if number > 0 or call.odd is None:
            return self._check(call, number, hvd.synchronize(handle), what)
        raised = caught(hvd.synchronize, handle)
        assert raised is not None and raised.kinds[0] == "HorovodInternalError", f"{what}: {raised}"
        assert f"float32{list(ODD_SHAPE)}" in raised.text, f"{what}: {raised}"

    def _check(
        self, call: Call, number: int, result: Tensor | list[Tensor] | tuple, what: str
    ) -> None:
        wanted = values.expected(call, self._member(call), number)
        got = [result] if isinstance(result, Tensor) else list(result)
        assert len(got) == len(wanted), f"{what}: {len(got)} tensors"
        for place, (mine, right) in enumerate(zip(got, wanted, strict=True)):
            same_bits(mine, right, f"{what}: tensor {place}")

    def _member(self, call: Call) -> int:
        return call.members.index(hvd.rank())
