"""hvd.elastic's states and sampler, without a loss."""

from __future__ import annotations

import inspect
import os
import random
from collections import Counter

import pytest
import torch
from support.horovod import initialized
from support.rank import same_bits
from torch import nn

import torch_ringdist.horovod as hvd
from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod._launch_info import LaunchInfo, launched
from torch_ringdist.horovod.elastic import ElasticSampler, _sampler


class _Ranks:
    """Samplers of several ranks, each as its rank has it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, length: int, size: int, **named: object):
        self._patch, self._length, self._named = monkeypatch, length, named
        self.samplers = [self._make(rank, size) for rank in range(size)]

    def _place(self, rank: int, size: int) -> None:
        self._patch.setattr(_sampler, "rank", lambda: rank)
        self._patch.setattr(_sampler, "size", lambda: size)

    def _make(self, rank: int, size: int) -> ElasticSampler:
        self._place(rank, size)
        return ElasticSampler(range(self._length), **self._named)

    def become(self, size: int) -> None:
        state = self.samplers[0].state_dict()
        self.samplers = [self._make(rank, size) for rank in range(size)]
        for rank, one in enumerate(self.samplers):
            self._place(rank, size)
            one.load_state_dict(state)


def test_each_index_once_while_ranks_change(monkeypatch: pytest.MonkeyPatch):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for _ in range(50):
        length, batch = draw.randint(1, 200), draw.randint(1, 9)
        ranks = _Ranks(monkeypatch, length, draw.randint(1, 5), seed=draw.randint(0, 9))
        ranks.samplers[0].set_epoch(3)
        ranks.become(draw.randint(1, 5))
        taken: Counter[int] = Counter()
        while ranks.samplers[0].processed_num < length:
            iterators = [list(one) for one in ranks.samplers]
            assert [len(one) for one in iterators] == [len(one) for one in ranks.samplers]
            steps = -(-len(iterators[0]) // batch)
            assert steps > 0
            for step in range(draw.randint(1, steps)):
                done = ranks.samplers[0].processed_num
                step_takes = [one.get_indices(step, batch) for one in ranks.samplers]
                flat = [at for indices in step_takes for at in indices]
                # At the end some repeat, so that all ranks have equally many.
                is_last = len(flat) > length - done
                taken.update(set(flat) - taken.keys() if is_last else flat)
                for one in ranks.samplers:
                    one.record_batch(step, batch)
                assert ranks.samplers[0].processed_indices == set(taken), f"seed {seed}"
            ranks.become(draw.randint(1, 5))
        assert set(taken) == set(range(length)), f"seed {seed}"
        assert set(taken.values()) == {1}, f"seed {seed}"


def test_sampler_orders(monkeypatch: pytest.MonkeyPatch):
    [plain] = _Ranks(monkeypatch, 10, 1, shuffle=False).samplers
    assert list(plain) == list(range(10)) and len(plain) == 10
    plain.record_indices([0, 1, 2])
    assert plain.state_dict() == {"epoch": 0, "processed_num": 3}
    assert plain.processed_indices == {0, 1, 2}
    plain.reset()
    assert list(plain) == [3, 4, 5, 6, 7, 8, 9]
    plain.set_epoch(1)
    assert len(plain) == 10 and plain.processed_indices == set()
    [one] = _Ranks(monkeypatch, 100, 1).samplers
    first = list(one)
    one.set_epoch(1)
    assert sorted(first) == sorted(one) and first != list(one) and first != list(range(100))
    with pytest.raises(ArgumentError, match="at least 0"):
        one.record_batch(0, -1)


def _state_of_rank_0() -> None:
    with initialized():
        rank = hvd.rank()
        torch.manual_seed(rank)
        model = nn.Linear(2, 2)
        optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.1 + rank))
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        scaler = torch.amp.GradScaler("cpu")
        state = hvd.elastic.TorchState(
            model,
            optimizer,
            scheduler=scheduler,
            scaler=scaler,
            epoch=rank,
            seen={rank},
            best=[torch.ones(1)],
        )
        assert state.model is model and state.optimizer is optimizer
        state.sync()
        assert (state.epoch, state.seen, optimizer.param_groups[0]["lr"]) == (0, {0}, 0.1)
        weights = [p.detach().clone() for p in model.parameters()]
        for mine, everybodys in zip(weights, hvd.allgather_object(weights)[0], strict=True):
            same_bits(mine, everybodys, "parameters")
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        scheduler.step()
        state.epoch, state.best[0][0] = 7, 5
        state.seen.add(9)
        after = [p.detach().clone() for p in model.parameters()]
        state.restore()  # back to the state at sync()
        assert (state.epoch, state.seen, state.best) == (0, {0}, [torch.ones(1)])
        assert optimizer.param_groups[0]["lr"] == 0.1 and not optimizer.state_dict()["state"]
        for p, before in zip(model.parameters(), weights, strict=True):
            same_bits(p.detach(), before, "restored")
            assert p.grad is None
        for _ in range(2):
            scaler.scale(model(torch.ones(1, 2)).sum()).backward()
            optimizer.synchronize()
            scaler.unscale_(optimizer)
            state.restore()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        state.epoch = 8
        state.commit()
        state.epoch = 9
        state.restore()
        assert state.epoch == 8
        for p, once_more in zip(model.parameters(), after, strict=True):
            same_bits(p.detach(), once_more, "the same step")


def test_states_sync_and_restore(pools):
    pools(2).run(_state_of_rank_0)


def _called_once() -> None:
    with initialized():
        state = hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, value=hvd.rank() + 3)
        state.register_reset_callbacks([lambda: pytest.fail("nothing was reset")])

        @hvd.elastic.run
        def train(state: hvd.elastic.ObjectState, more: int, *, most: int) -> int:
            state.commit()
            return state.value + more + most

        assert train(state, 10, most=100) == 113
        with pytest.raises(TypeError, match="is a State, got int"):
            train(3, 10, most=100)


def test_ranks_that_stay_call_it_once(pools):
    pools(2).run(_called_once)


def _optimizer_follows() -> None:
    os.environ.update(RANK="0", WORLD_SIZE="1")
    hvd.init()
    model = nn.Linear(3, 1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    hvd.shutdown()
    for _ in range(2):
        with initialized():
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.full((1, 3), float(hvd.rank()))).sum().backward()
                optimizer.synchronize()
                mean = torch.full((1, 3), (hvd.size() - 1) / 2)
                same_bits(model.weight.grad, mean, "of all ranks")
            model(torch.ones(1, 3)).sum().backward()  # in flight when everything ends
    os.environ.update(RANK="0", WORLD_SIZE="1")
    hvd.init()
    optimizer.zero_grad()
    model(torch.full((1, 3), 5.0)).sum().backward()
    optimizer.step()
    same_bits(model.weight.grad, torch.full((1, 3), 5.0), "its own")
    hvd.shutdown()


def test_an_optimizer_follows_its_rank(pools):
    pools(2).run(_optimizer_follows)


def test_names_that_a_state_has():
    for name in ("save", "commit", "_elastic", "register_reset_callbacks"):
        with pytest.raises(ArgumentError, match=f"'{name}' is a name of its own"):
            hvd.elastic.TorchState(**{name: 1})


def test_signatures():
    for one, expected in (
        (hvd.elastic.run, ["func"]),
        (hvd.elastic.State, ["bcast_object", "get_rank"]),
        (hvd.elastic.ObjectState, ["bcast_object", "get_rank", "kwargs"]),
        (hvd.elastic.TorchState, ["model", "optimizer", "kwargs"]),
        (ElasticSampler, ["dataset", "shuffle", "seed"]),
        (ElasticSampler.record_batch, ["self", "batch_idx", "batch_size"]),
        (hvd.HostsUpdatedInterrupt, ["skip_sync"]),
    ):
        assert list(inspect.signature(one).parameters) == expected


def test_before_it_trains_a_process_is_alone():
    here = {"RINGDIST_RDZV": "a:1", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4", "SLURM_PROCID": "3"}
    assert launched({**here, "SLURM_NTASKS": "8"}) == LaunchInfo(0, 1, 2, 4, "a", 1)
