"""DistributedOptimizer(compression="int4"): codecs with error feedback."""

from __future__ import annotations

import copy
import os
import pickle

import pytest
import torch
from support.horovod import VARIABLES, begin, initialized
from support.rank import caught
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import torch_ringdist.horovod as hvd
from torch_ringdist.elastic._residuals import Residuals
from torch_ringdist.horovod import _global_state

WIDTH = 64


def _net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)
    )


def _batch(step: int) -> tuple[Tensor, Tensor]:
    drawn = torch.Generator().manual_seed(100 * step + hvd.rank())
    x = torch.randn(32, WIDTH, generator=drawn)
    return x, x.roll(1, dims=1)


def _optimizer(net: nn.Module, compression: object, **named: object):
    return hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.05),
        named_parameters=net.named_parameters(),
        compression=compression,
        **named,
    )


def _train(net: nn.Module, optimizer, steps: int, first: int = 0) -> float:
    loss = torch.zeros(())
    for step in range(first, first + steps):
        optimizer.zero_grad()
        x, y = _batch(step)
        loss = mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


def _flat(net: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


def _two_optimizers_in_any_order() -> None:
    with initialized():
        nets = {name: nn.Linear(WIDTH, WIDTH, bias=False) for name in "gd"}
        optimizers = {
            name: hvd.DistributedOptimizer(
                torch.optim.SGD(net.parameters(), lr=1.0),
                named_parameters=[(f"{name}.weight", net.weight)],
                compression="int8",
            )
            for name, net in nets.items()
        }
        if hvd.rank() == 0:  # others use that of "g" first
            assert optimizers["d"].compression is not None
        for name, sign in (("g", 1.0), ("d", -1.0)):
            before = nets[name].weight.detach().clone()
            (sign * nets[name].weight.sum()).backward()
            optimizers[name].step()
            change = nets[name].weight.detach() - before
            torch.testing.assert_close(change, torch.full_like(change, -sign), atol=0.02, rtol=0)


def test_two_optimizers_in_any_order(pools):
    pools(2).run(_two_optimizers_in_any_order)


def _same_on_all(net: nn.Module) -> None:
    all_of_it = hvd.allgather(_flat(net)[None])
    assert all(row.equal(all_of_it[0]) for row in all_of_it)


def _codecs(compression: str) -> None:
    with initialized():
        plain = _net()
        _train(plain, _optimizer(plain, hvd.Compression.none), 40)
        net = _net()
        before = _flat(net).clone()
        optimizer = _optimizer(net, compression)
        _train(net, optimizer, 40)
        _same_on_all(net)
        way = (_flat(plain) - before).norm()
        assert (_flat(net) - _flat(plain)).norm() < 0.3 * way
        stats = optimizer.compression.stats()
        assert stats["step"] == 39, stats
        if compression != "none":
            assert stats["total"]["bytes_saved"] > 0.2 * stats["total"]["bytes_uncompressed"]


@pytest.mark.parametrize("compression", ["int4", "int8", "powersgd:4", "none"])
def test_training_goes_the_same_way(pools, compression: str):
    pools(3).run(_codecs, compression)


def _is_as_ddp_does() -> None:
    """Compares the gradients of one step and the residuals with DDP, with one parameter per
    bucket."""
    with initialized():
        net = _net()
        codec = hvd.Compression.codec(net, "int8", rules={"3.weight": "none"})
        optimizer = _optimizer(net, codec)
        x, y = _batch(0)
        mse_loss(net(x), y).backward()
        own = [p.grad.clone() for p in net.parameters()]
        optimizer.synchronize()
        for (name, p), grad in zip(net.named_parameters(), own, strict=True):
            mean = hvd.allreduce(grad, name=name)
            error = (p.grad - mean).norm() / mean.norm()
            assert (error > 1e-4) == (name == "0.weight"), (name, error)


def test_rules_and_norms(pools):
    pools(2).run(_is_as_ddp_does)


def _checkpoint() -> None:
    with initialized():
        whole = _net()
        _train(whole, _optimizer(whole, "int4"), 6)
        first = _net()
        optimizer = _optimizer(first, "int4")
        _train(first, optimizer, 3)
        owed = optimizer.compression.state_dict(local=True)
        assert set(owed["residuals"]) == {"0.weight", "3.weight"}
        second = copy.deepcopy(first)
        other = _optimizer(second, "int4")
        other.compression.load_state_dict(owed)
        _train(second, other, 3, first=3)
        assert _flat(second).equal(_flat(whole))


def test_the_residual_can_be_saved(pools):
    pools(2).run(_checkpoint)


def _arguments() -> None:
    with initialized():
        net = _net()
        for codec, text in (("int5", "int5"), ("", "codec")):
            raised = caught(_optimizer, net, codec)
            assert raised is not None and "ValueError" in raised.kinds, raised
            assert text in raised.text, raised
        raised = caught(_optimizer, net, "int4", op=hvd.Adasum)
        assert raised is not None and "op=hvd.Average or hvd.Sum" in raised.text, raised
        again = pickle.loads(pickle.dumps(_optimizer(net, "int4")))
        assert again.compression is not None


def test_mistakes_and_pickles(pools):
    pools(2).run(_arguments)


def _copies_keep_their_groups(compression: object) -> None:
    with initialized():
        net = _net()
        optimizer = _optimizer(net, compression, groups=[[net[0].weight, net[3].bias]])
        for other in (pickle.loads(pickle.dumps(optimizer)), copy.deepcopy(optimizer)):
            groups = other._gradients.groups
            assert groups[0] == ["0.weight", "3.bias"] and len(groups) == 5, groups
            parameters = other.param_groups[0]["params"]
            for p in parameters:
                p.grad = torch.full_like(p, float(hvd.rank()))
            other.synchronize()
            assert all(torch.all((p.grad - 0.5).abs() < 0.1) for p in parameters)


@pytest.mark.parametrize("compression", [hvd.Compression.none, "int4"], ids=["none", "int4"])
def test_copies_keep_their_groups(pools, compression: object):
    pools(2).run(_copies_keep_their_groups, compression)


def _accumulates(op_is_sum: bool) -> None:
    """Tests two backward passes per step, unused and frozen parameters, and a group added later."""
    with initialized():
        net, unused, late = _net(), nn.Linear(50, 50), nn.Linear(50, 50)
        parameters = [*net.named_parameters(), *unused.named_parameters("unused")]
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([p for _, p in parameters], lr=0.01),
            named_parameters=parameters,
            compression="none",  # the bits can be compared
            op=hvd.Sum if op_is_sum else hvd.Average,
            backward_passes_per_step=2,
            average_aggregated_gradients=True,
        )
        for step in range(4):
            if step == 1:
                optimizer.add_param_group({"params": list(late.parameters())})
            net[0].weight.requires_grad_(step != 2)
            optimizer.zero_grad()
            for batch in range(2):
                x, y = _batch(2 * step + batch)
                loss = mse_loss(net(x), y)
                if step > 0:
                    loss = loss + late(x[:, :50]).square().mean()
                loss.backward()
            # The reference does the same without the optimizer.
            optimizer.synchronize()
            for name, p in [*parameters, *late.named_parameters("late")]:
                if p.grad is None:
                    continue
                spread = hvd.allgather(p.grad.reshape(1, -1), name=f"{step}{name}")
                assert spread[0].equal(spread[1]), (step, name)
            with optimizer.skip_synchronize():
                optimizer.step()
        _same_on_all(net)
        _same_on_all(late)
        assert not unused.weight.grad.any()


@pytest.mark.parametrize("op_is_sum", [False, True])
def test_steps_of_several_passes(pools, op_is_sum: bool):
    pools(2).run(_accumulates, op_is_sum)


def _in_a_set() -> None:
    some = hvd.ProcessSet([0, 2])
    with initialized(process_sets=[some]):
        net = _net()
        optimizer = _optimizer(net, "int4", process_set=some)
        _train(net, optimizer, 3)
        assert (optimizer.compression is not None) == some.included()
        rows = hvd.allgather(_flat(net)[None])
        assert rows[0].equal(rows[2])
        assert not rows[0].equal(rows[1])


def test_in_a_process_set(pools):
    pools(3).run(_in_a_set)


def _goes_into_another_world() -> None:
    """Creates the optimizer alone, like elastic training, and then joins others with other
    steps."""
    for name in VARIABLES:
        os.environ.pop(name, None)
    hvd.init()  # alone, without a launcher
    assert hvd.size() == 1
    net = _net()
    codec = hvd.Compression.codec(net, "int4", warmup_steps=2, schedule={3: "int2"})
    optimizer = _optimizer(net, codec)
    _train(net, optimizer, 1)
    assert optimizer.compression is None
    hvd.shutdown()
    with initialized():
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        if hvd.rank() == 1:
            compression = optimizer.compression
            compression.load_state_dict({**compression.state_dict(local=True), "steps": 3})
        _train(net, optimizer, 3)
        _same_on_all(net)
        assert optimizer.compression.stats()["step"] == 5
        owed = optimizer.compression.residual_norm()
        assert owed > 0
    with initialized():
        assert optimizer.compression.residual_norm() == pytest.approx(owed)
        _train(net, optimizer, 1)
        _same_on_all(net)


def test_it_goes_along_into_another_world(pools):
    pools(2).run(_goes_into_another_world)


def _undoes_a_step() -> None:
    """Undoes a step, as hvd.elastic does when a rank is lost or a script calls state.restore()."""
    net, optimizer, residuals = _net(), None, Residuals()
    committed: dict[str, Tensor] = {}

    def owed() -> dict[str, Tensor]:
        return optimizer.compression.state_dict(local=True)["residuals"]

    def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
        return one.keys() == other.keys() and all(one[k].equal(other[k]) for k in one)

    for generation in range(3):
        with initialized():
            _global_state.required().residuals = residuals  # like hvd.elastic
            residuals.begin(hvd.size())
            optimizer = optimizer or _optimizer(net, "int4")
            if generation:
                assert same(owed(), committed)
            _train(net, optimizer, 1, first=generation)
            residuals.take()
            committed = owed()
            _train(net, optimizer, 1, first=10)
            assert not same(owed(), committed)
            residuals.put_back()
            assert same(owed(), committed)
            optimizer.add_param_group({"params": list(nn.Linear(3, 3).parameters())})
            _train(net, optimizer, 1, first=11)  # by another one
            residuals.take()
            committed = owed()
            _train(net, optimizer, 1, first=12)
        residuals.fail()


def test_the_residual_goes_back_with_a_step(pools):
    pools(2).run(_undoes_a_step)


def _changes() -> None:
    """Excludes a backbone from training, adds a group, and makes a checkpoint."""
    with initialized():
        net, late = _net(), nn.Linear(WIDTH, WIDTH)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.05),
            named_parameters=net.named_parameters(),
            compression="int4",
            groups=[[net[0].weight], list(net[3].parameters())],
        )
        _train(net, optimizer, 2)
        net[0].requires_grad_(False)
        before = net[0].weight.clone()
        optimizer.zero_grad()
        _train(net, optimizer, 2, first=2)
        assert net[0].weight.equal(before)
        optimizer.add_param_group({"params": list(late.parameters())})
        whole = nn.Sequential(net, late)
        _train(whole, optimizer, 3, first=4)
        _same_on_all(whole)
        owed = optimizer.compression.state_dict(local=True)
        assert {"0.weight", "3.weight", "noname.1.0"} == set(owed["residuals"])
        optimizer.compression.load_state_dict(owed)


def test_frozen_and_new_parameters(pools):
    pools(2).run(_changes)


def _fails_to_send(odd: int) -> list[str]:
    """Sends a gradient that no codec supports, on one rank."""
    begin()
    net, table = _net(), nn.Embedding(WIDTH, WIDTH, sparse=hvd.rank() == odd)
    net.append(table)
    optimizer = _optimizer(net, "int4")
    x, y = _batch(0)

    def step() -> None:
        table(torch.arange(WIDTH)).sum().backward()
        mse_loss(net[:4](x), y).backward()
        optimizer.step()

    said = []
    for function in (step, optimizer.synchronize):
        raised = caught(function)
        assert raised is not None
        said.append(f"{raised.kinds[0]}: {raised.text}")
    hvd.shutdown()
    return said


def test_a_bucket_that_is_not_sent_ends_it_on_all(pools):
    said = pools(2).run(_fails_to_send, 1)
    assert said[1][0].startswith("TypeError") and "sparse_as_dense=True" in said[1][0]
    assert said[1][1].startswith("HorovodInternalError") and "has failed to send" in said[1][1]
    assert said[0][0].startswith("HorovodInternalError"), said
