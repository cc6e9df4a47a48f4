"""Callbacks: arguments and rejected values, metrics, training, and the best checkpoint."""

from __future__ import annotations

import inspect
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from support.horovod import initialized
from support.rank import caught, same_bits
from test_horovod_callbacks_rates import _net as _two_groups
from test_horovod_callbacks_rates import _sgd, _warmup
from torch import nn

import torch_ringdist.horovod as hvd
from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod.callbacks import (
    BestModelCheckpoint,
    BroadcastGlobalVariablesCallback,
    Callback,
    CallbackList,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    MetricAverageCallback,
)

STEPS = 4  # per epoch


# Arguments from Horovod's documentation of its Keras callbacks. More keyword arguments may exist.
ARGUMENTS = {
    BroadcastGlobalVariablesCallback: "root_rank",
    MetricAverageCallback: "",
    LearningRateScheduleCallback: "initial_lr multiplier start_epoch end_epoch staircase "
    "momentum_correction steps_per_epoch",
    LearningRateWarmupCallback: "initial_lr warmup_epochs momentum_correction steps_per_epoch "
    "verbose",
    BestModelCheckpoint: "monitor verbose save_weights_only mode save_freq",
}


@pytest.mark.parametrize("callback", ARGUMENTS)
def test_arguments_are_horovods(callback: type):
    own = inspect.signature(callback).parameters.values()
    by_position = [p.name for p in own if p.kind is not p.KEYWORD_ONLY]
    assert by_position == ARGUMENTS[callback].split()
    assert callback.__doc__


def test_epochs_begin_where_it_is_said_and_a_list_is_of_its_callbacks():
    callbacks = CallbackList([], initial_epoch=2)
    assert list(callbacks.epochs(4)) == [2, 3]
    assert list(CallbackList([], initial_epoch=4).epochs(4)) == []
    other = CallbackList([MetricAverageCallback()])
    with pytest.raises(ArgumentError, match="state is of the callbacks"):
        other.load_state_dict(callbacks.state_dict())


def _begin_without(callback: Callback) -> None:
    CallbackList([callback]).on_train_begin()


def _with_sgd(**named: Any) -> None:
    LearningRateScheduleCallback(optimizer=_sgd(_two_groups()), **named).on_batch_begin(0)


REFUSED = [
    (lambda: _begin_without(_warmup()), "it needs optimizer"),
    (lambda: _begin_without(BroadcastGlobalVariablesCallback(0)), "it needs model"),
    (lambda: _begin_without(BestModelCheckpoint(filepath="x")), "it needs model"),
    (lambda: _warmup(optimizer=_sgd(_two_groups())).on_train_begin(), "it needs steps_per_epoch"),
    (lambda: _warmup(steps_per_epoch=0), "steps_per_epoch must be 1 or more, got 0"),
    (lambda: LearningRateWarmupCallback(warmup_epochs=-1), "warmup_epochs must be >= 0, got -1"),
    (lambda: _with_sgd(initial_lr=[0.1]), "of the optimizer's 2 parameter groups"),
    (lambda: _with_sgd(initial_lr=-1), "initial_lr must be a rate of 0 or more"),
    (lambda: _with_sgd(multiplier=lambda epoch: -1), "multiplier must be finite and 0 or more"),
    (lambda: CallbackList([3]), "got int"),
    (lambda: CallbackList([], initial_epoch=-1), "initial_epoch must be >= 0, got -1"),
    (lambda: BestModelCheckpoint(filepath="x", mode="least"), "got 'least'"),
    (lambda: BestModelCheckpoint(filepath="x", save_freq=10), "save_freq must be .*got 10"),
    (lambda: BestModelCheckpoint(filepath="x", extra={"best": 1}), "other names than best"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_refused(number: int):
    call, text = REFUSED[number]
    with pytest.raises(ArgumentError, match=text):
        call()


@pytest.mark.parametrize(
    ("monitor", "mode"),
    [
        ("val_loss", "min"),
        ("loss", "min"),
        ("accumulated_loss", "min"),
        ("val_acc", "max"),
        ("acc1", "max"),
        ("val/BinaryAccuracy", "max"),
        ("auc", "max"),
        ("val-f1", "max"),
    ],
)
def test_which_metric_is_better(monitor: str, mode: str):
    assert BestModelCheckpoint(monitor, filepath="x").mode == mode


def _net(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(3, 1).double()


def _data() -> torch.Tensor:
    return torch.randn(STEPS, 8, 3, generator=torch.Generator().manual_seed(9)).double()


def _loss(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (net(x) - 1).square().mean()


def _averages() -> None:
    with initialized():
        rank, size = hvd.rank(), hvd.size()
        callback = MetricAverageCallback()
        for epoch in range(3):
            names = ["loss", "acc", "who"] if rank else ["who", "acc", "loss"]
            values = {"loss": 0.1 * rank, "acc": torch.tensor(rank + 0.5), "who": rank}
            logs = {name: values[name] for name in names}
            callback.on_epoch_end(epoch, logs)
            mean = (size - 1) / 2
            assert logs == {"loss": pytest.approx(0.1 * mean), "acc": mean + 0.5, "who": mean}
            assert list(logs) == names and all(isinstance(one, float) for one in logs.values())
        callback.on_epoch_end(3)
        # Other names in equal number, and then more names, are errors; the process set continues.
        for other in ({"lose": 1.0}, {"loss": 1.0, "acc": 1.0}, None):
            raised = caught(callback.on_epoch_end, 3, {"loss": 1.0} if rank else other)
            assert raised and raised.kinds[0] == "ArgumentError", raised
            assert "rank 0 has" in raised.text and "['loss']" in raised.text
        # A value that is no number is rejected before anything is sent.
        for value in ("x", None, torch.ones(2), torch.tensor(1j)):
            raised = caught(callback.on_epoch_end, 3, {"loss": value})
            assert raised and "metric 'loss' must be a number" in raised.text
        logs = {"loss": float("nan"), "one": 1}
        callback.on_epoch_end(4, logs)
        assert math.isnan(logs["loss"]) and logs["one"] == 1


@pytest.mark.parametrize("size", [1, 2, 3])
def test_metrics_are_averaged(pools, size: int):
    pools(size).run(_averages if size > 1 else _averages_alone)


def _averages_alone() -> None:
    with initialized():
        logs = {"loss": torch.tensor(0.25)}
        MetricAverageCallback().on_epoch_end(0, logs)
        assert logs == {"loss": 0.25}


def _set_of_callbacks(folder: str) -> None:
    """Uses a process set that lacks one rank of three."""
    with initialized():
        process_set = hvd.add_process_set([1, 2])
        file = Path(folder, "best.pt")
        if hvd.rank() == 0:
            raised = caught(MetricAverageCallback(process_set=process_set).on_epoch_end, 0, {})
            assert raised and "is not in" in raised.text
            return
        net = _net(hvd.rank())
        callbacks = CallbackList(
            [
                BroadcastGlobalVariablesCallback(2, process_set=process_set),
                MetricAverageCallback(process_set=process_set),
                BestModelCheckpoint(filepath=file, process_set=process_set),
            ],
            model=net,
        )
        callbacks.on_train_begin()
        same_bits(net.weight.detach(), _net(2).weight.detach(), "weight")
        callbacks.on_epoch_end(0, logs := {"val_loss": hvd.rank()})
        assert logs == {"val_loss": 1.5}
        saved = torch.load(file)
        assert saved["best"] == 1.5
        same_bits(saved["model"]["weight"], net.weight.detach(), "saved weight")


def test_process_sets(pools, tmp_path: Path):
    pools(3).run(_set_of_callbacks, str(tmp_path))


def _trains() -> None:
    """Trains from the root's state with growing rates, and compares with one process with all
    data."""
    with initialized():
        rank, size = hvd.rank(), hvd.size()
        root = size - 1
        net = _net(rank)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1 * (rank + 1), momentum=0.9)

        optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters())
        callbacks = CallbackList(
            [
                LearningRateWarmupCallback(warmup_epochs=2),
                LearningRateScheduleCallback(multiplier=0.5, start_epoch=2),
                BroadcastGlobalVariablesCallback(root),
                MetricAverageCallback(),
            ],
            model=net,
            optimizer=optimizer,
            steps_per_epoch=STEPS,
            initial_epoch=0 if rank == root else 3,
        )
        share = _data().chunk(size, dim=1)[rank]
        losses = []
        for epoch in callbacks.epochs(4):
            for x in callbacks.batches(share):
                loss = _loss(net, x)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            callbacks.on_epoch_end(epoch, logs := {"loss": loss})
            losses.append(logs["loss"])
        alone = _net(root)
        plain = torch.optim.SGD(alone.parameters(), lr=0.1 * size, momentum=0.9)
        expected = []
        for epoch in range(4):
            for batch, x in enumerate(_data()):
                grown = (1 + (epoch + (batch + 1) / STEPS) * (size - 1) / 2) / size
                factor = grown if epoch < 2 else 0.5 ** (epoch - 2)
                plain.param_groups[0]["lr"] = 0.1 * size * factor
                loss = _loss(alone, x)
                plain.zero_grad()
                loss.backward()
                plain.step()
            expected.append(loss.item())
        assert losses == pytest.approx(expected)
        torch.testing.assert_close(net.weight, alone.weight)


def test_training_is_that_of_one_process(pools):
    pools(2).run(_trains)


def _another_optimizer() -> None:
    with initialized():
        net = _net(0)
        plain = torch.optim.SGD(net.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(plain, net.named_parameters())
        plain.load_state_dict(plain.state_dict())  # so the two share no groups any more
        warmup = LearningRateWarmupCallback(warmup_epochs=2)
        begin = BroadcastGlobalVariablesCallback(0)
        callbacks = CallbackList([begin, warmup], model=net, optimizer=plain, steps_per_epoch=4)
        callbacks.on_train_begin()
        callbacks.on_batch_begin(0)
        _loss(net, _data()[0]).backward()
        raised = caught(optimizer.step)
        assert raised and "the optimizer that steps is another" in raised.text, raised


def test_the_optimizer_is_the_one_that_steps(pools):
    pools(2).run(_another_optimizer)


class Unwritable:
    def __reduce__(self) -> Any:
        raise OSError("the disk is full")


def _best(folder: str) -> None:
    with initialized():
        rank = hvd.rank()
        file = Path(folder, "new", "best.pt")
        net = _net(rank)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
        extra = {"note": "x"}
        best = BestModelCheckpoint(
            "val_acc", filepath=file, model=net, optimizer=optimizer, extra=extra
        )
        best.extra["best callback"] = best
        best.on_train_begin()
        assert best.best == -math.inf and best.best_epoch is None
        # Metrics are not averaged, so the first rank's value counts.
        course = [(0.5, True), (0.5, False), (float("nan"), False), (0.75, True), (0.25, False)]
        for epoch, (value, improves) in enumerate(course):
            with torch.no_grad():
                net.weight.fill_(epoch)
            best.on_epoch_end(epoch, {"val_acc": torch.tensor(value if rank == 0 else 9.0)})
            assert best.improved == improves
            saved = torch.load(file)
            assert (saved["best"], saved["epoch"]) == (best.best, best.best_epoch)
            assert saved["model"]["weight"].unique().tolist() == [best.best_epoch]
            hvd.barrier()  # otherwise rank 0 writes the next one first
        assert (best.best, best.best_epoch) == (0.75, 3)
        assert saved["optimizer"] == optimizer.state_dict()
        assert saved["note"] == "x" and saved["monitor"] == "val_acc"
        assert saved["best callback"] == {"best": 0.75, "best_epoch": 3}
        with warnings.catch_warnings(record=True) as caught_here:
            warnings.simplefilter("always")
            best.on_epoch_end(5, {"loss": 1.0})
        assert not best.improved
        said = [str(one.message) for one in caught_here]
        assert said == ["BestModelCheckpoint: epoch 5 has no metric 'val_acc', but ['loss']"][rank:]
        # If a file cannot be written, all ranks get an error, and the previous file stays.
        best.extra["bad"] = Unwritable()
        raised = caught(best.on_epoch_end, 6, {"val_acc": 0.9})
        assert raised and raised.kinds[0] == "RuntimeError", raised
        assert "rank 0 could not write" in raised.text and "the disk is full" in raised.text
        assert not best.improved and best.best == 0.75
        hvd.barrier()
        assert torch.load(file)["best"] == 0.75
        assert [one.name for one in file.parent.iterdir()] == ["best.pt"]
        # It continues after a restart, also with weights only.
        again = BestModelCheckpoint(
            "val_acc", 0, True, filepath=file, model=net, optimizer=optimizer, extra=extra
        )
        again.load_state_dict(best.state_dict())
        again.on_epoch_end(7, {"val_acc": 0.7})
        assert not again.improved
        again.on_epoch_end(8, {"val_acc": 0.8})
        assert again.improved and torch.load(file).keys() == {"epoch", "monitor", "best", "model"}


def test_the_best_is_kept(pools, tmp_path: Path):
    pools(2).run(_best, str(tmp_path))
