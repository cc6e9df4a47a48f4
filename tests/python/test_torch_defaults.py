"""Defaults that a script sets in torch, for devices and dtypes, change nothing inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.horovod import initialized
from torch import nn

import torch_ringdist.horovod as hvd
from torch_ringdist import elastic
from torch_ringdist.elastic import _checksums
from torch_ringdist.horovod import callbacks

DEFAULTS: list[tuple[Callable[[Any], None], Any, Any]] = [
    (torch.set_default_device, "meta", None),
    (torch.set_default_device, "cuda", None),
    (torch.set_default_dtype, torch.float64, torch.float32),
]


class Work:
    """Created before the defaults change. Everything that it calls creates tensors."""

    def __init__(self) -> None:
        torch.manual_seed(hvd.rank())
        self.net = nn.Linear(300, 30)
        self.net.weight.data = self.net.weight.data.t().contiguous().t()  # not dense in order
        plain = torch.optim.Adam(self.net.parameters())
        self.optimizer = hvd.DistributedOptimizer(plain, compression="int4")
        self.x, self.rows = torch.ones(2, 300), torch.ones(hvd.rank() + 1, requires_grad=True)
        self.sparse = torch.eye(3).to_sparse()
        self.splits = torch.tensor([1, 2])

    def objects(self) -> None:
        assert hvd.broadcast_object({"k": hvd.rank()}, 0) == {"k": 0}
        assert hvd.allgather_object(hvd.rank()) == [0, 1]

    def training(self) -> None:
        hvd.broadcast_parameters(self.net.state_dict(), 0)
        hvd.broadcast_optimizer_state(self.optimizer, 0)
        for _ in range(2):
            self.optimizer.zero_grad()
            self.net(self.x).sum().backward()
            self.optimizer.step()
        hvd.broadcast_optimizer_state(self.optimizer, 0)

    def operations(self) -> None:
        hvd.allgather(self.rows).sum().backward()
        total = hvd.sparse_allreduce_async(self.sparse, "s", hvd.Sum)()
        assert (total.device.type, total.dtype) == ("cpu", torch.float32)
        parts, received = hvd.alltoall(self.x[0, :3], self.splits)
        assert received.tolist() == [hvd.rank() + 1] * 2 and parts.device.type == "cpu"
        hvd.barrier()
        hvd.join()

    def sets(self) -> None:
        one = hvd.add_process_set([1])
        assert one.size() == 1 and hvd.remove_process_set(one)

    def metrics(self) -> None:
        logs = {"loss": float(hvd.rank())}
        callbacks.MetricAverageCallback().on_epoch_end(0, logs)
        assert logs["loss"] == 0.5

    def elastic(self) -> None:
        assert sorted(elastic.Sampler(range(6), global_batch=6)._order().tolist()) == [*range(6)]
        assert len(list(hvd.elastic.ElasticSampler(range(6)))) == 3
        assert "torch.float32" in _checksums.checksums_of(self.x)


def _under(number: int, ranks: list[int]) -> None:
    set_default, value, usual = DEFAULTS[number]
    with initialized():
        work = Work()
        for name in ("objects", "training", "operations", "sets", "metrics", "elastic"):
            if hvd.rank() in ranks:
                set_default(value)
            try:
                getattr(work, name)()
            finally:
                set_default(usual)


@pytest.mark.parametrize("ranks", [[0, 1], [1]], ids=["all ranks", "one rank"])
@pytest.mark.parametrize("number", range(len(DEFAULTS)), ids=[str(one[1]) for one in DEFAULTS])
def test_defaults(pools, number: int, ranks: list[int]):
    pools(2).run(_under, number, ranks)
