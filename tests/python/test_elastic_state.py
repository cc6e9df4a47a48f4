"""elastic.State in one process: changes of a step are undone, saved and loaded."""

from __future__ import annotations

import os
import random
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from support.training import Training, same
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from torch_ringdist import ArgumentError, NotSupportedError, elastic
from torch_ringdist.elastic import _rank_state
from torch_ringdist.elastic._settings import JOB


class Counting:
    """An entry with a state_dict()."""

    def __init__(self, count: Any) -> None:
        self.count = count

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.check
def test_a_step_is_undone(steps: int):
    training = Training()
    for _ in range(steps):
        training.step()
        training.state.commit()
    before = training.content()
    training.step()
    assert training.state.net[0].weight.grad is not None
    training.state._put_back()
    same(training.content(), before)
    assert training.state.net[0].weight.grad is None
    assert training.state.steps == steps


@pytest.mark.parametrize("steps", [1, 2])
def test_a_step_is_undone_again_and_again(steps: int):
    training = Training()
    training.step()
    training.state.commit()
    before = training.content()
    for _ in range(3):
        for _ in range(steps):
            training.step()
        training.state._put_back()
        same(training.content(), before)


def test_a_step_that_is_repeated_is_thesame():
    training = Training()
    training.step()
    training.state.commit()
    training.step()
    once = training.content()
    training.state._put_back()
    training.step()
    same(training.content(), once)


@pytest.mark.parametrize("kind", [numpy.random.MT19937, numpy.random.PCG64])
def test_numpys_numbers_are_drawn_again(kind: type):
    usual = numpy.random.get_bit_generator()
    numpy.random.set_bit_generator(kind(7))
    try:
        state = elastic.State(nothing=0)
        # Normal numbers are generated in pairs, and the second one is cached.
        for drawn in (numpy.random.rand, numpy.random.randn, numpy.random.randn, numpy.random.rand):
            drawn()
            state.commit()
            for count in (1, 2, 1, 3):
                once = [drawn() for _ in range(count)]
                state._put_back()
                assert [drawn() for _ in range(count)] == once
                state._put_back()
    finally:
        numpy.random.set_bit_generator(usual)


def _commit_and_undo(state: elastic.State) -> None:
    """Undoes a step that changes all of the module."""
    net = state.net
    state.commit()
    before = {name: one.clone() for name, one in net.state_dict().items()}
    with torch.no_grad():
        for one in [*net.parameters(), *net.buffers()]:
            one.add_(1)
    state._put_back()
    same(dict(net.state_dict()), before)


def test_a_module_may_change_between_steps():
    net = nn.Sequential(nn.Linear(2, 2))
    state = elastic.State(net=net)
    for change in (
        lambda: net.append(nn.Linear(2, 2)),
        lambda: setattr(net[0], "weight", nn.Parameter(torch.ones(2, 2))),
        lambda: net.register_buffer("mean", torch.zeros(1)),
        lambda: net.pop(1),
    ):
        change()
        _commit_and_undo(state)


def _modes(net: nn.Module) -> tuple[list[bool], list[bool]]:
    modules, parameters = net.modules(), net.parameters()
    return [one.training for one in modules], [one.requires_grad for one in parameters]


def _net_with_modes() -> nn.Module:
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(), nn.Linear(2, 2)))
    net[1].eval()
    return net.requires_grad_(False)


@pytest.mark.parametrize("copy", [True, False])
def test_modes_are_undone_and_sent(tmp_path: Path, copy: bool):
    net, other = _net_with_modes(), _net_with_modes().train().requires_grad_(True)
    net[0].bias.requires_grad_(True)
    state = elastic.State(copy=copy, net=net)
    before, unlike = _modes(net), _modes(other)
    assert before == ([True, True, False, False, False], [False, True, False, False])
    for change in (lambda: net.train(), lambda: net.eval(), lambda: net.requires_grad_(True)):
        change()
        state._put_back()
        assert _modes(net) == before
    newcomer = elastic.State(copy=copy, net=other)
    assert newcomer.load(state.save(tmp_path))
    assert _modes(other) == unlike  # load() leaves them
    newcomer._replace(state._given(), 0, None)
    assert _modes(other) == before


def test_a_scripted_module_is_undone():
    net = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    state = elastic.State(net=net)
    for _ in range(2):
        _commit_and_undo(state)


@pytest.mark.parametrize("copy", [True, False])
def test_saved_and_loaded(tmp_path: Path, copy: bool):
    training = Training(copy)
    assert not training.state.load(tmp_path / "nothing")
    for _ in range(3):
        training.step()
        training.state.commit()
        where = training.state.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"step-{step:09d}" for step in (1, 2, 3)
    ]
    assert where == str(tmp_path / "step-000000003")
    other = Training(copy, seed=1)
    assert other.state.load(tmp_path)
    ours, theirs = other.content(), training.content()
    del ours["random"], theirs["random"]  # each process has its own
    same(ours, theirs)
    assert other.state.steps == 3


def _saved(folder: Path, *steps: int) -> list[str]:
    """Saves the states of one training after these numbers of steps. Returns the folders."""
    state = elastic.State(epoch=0)
    state._identify()
    folders = []
    for step in range(1, max(steps) + 1):
        state.commit()
        if step in steps:
            folders.append(state.save(folder))
    return folders


@pytest.mark.parametrize("touched", [False, True])
def test_the_most_steps_are_loaded_whatever_the_times(
    tmp_path: Path, touched: bool, capfd: pytest.CaptureFixture[str]
):
    first, second, _ = _saved(tmp_path, 1, 9, 10)
    if touched:
        (Path(second) / "notes.txt").write_text("the best one")
    os.utime(first, (4e9, 4e9))
    copy = shutil.copytree(tmp_path, tmp_path / "copy")
    for folder in (tmp_path, copy):
        state = elastic.State(epoch=0)
        assert state.load(folder) and state.steps == 10
        assert f"loaded step 10 from {folder}/step-000000010-" in capfd.readouterr().err


def test_states_of_two_trainings_are_not_mixed(tmp_path: Path):
    one, other = _saved(tmp_path, 5) + _saved(tmp_path, 5)
    assert one != other
    with pytest.raises(ArgumentError, match="states of 2 trainings") as raised:
        elastic.State(epoch=0).load(tmp_path)
    assert Path(one).name in str(raised.value) and Path(other).name in str(raised.value)
    state = elastic.State(epoch=0)
    assert state.load(other) and state.save(tmp_path) == other  # it is the same training


def test_a_training_that_goes_on_from_an_older_state_is_another_one(tmp_path: Path):
    older, newest = _saved(tmp_path, 5, 6)
    state = elastic.State(epoch=0)
    assert state.load(older)
    state._identify()
    state.commit()
    assert state.steps == 6 and state.save(tmp_path) != newest


def test_each_job_loads_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    for job, steps in (("default", 3), ("a/b", 2), ("c", 1)):
        monkeypatch.setenv(JOB, job)
        _saved(tmp_path, steps)
    for job, steps in (("default", 3), ("a/b", 2), ("c", 1), ("d", 0)):
        monkeypatch.setenv(JOB, job)
        state = elastic.State(epoch=0)
        assert state.load(tmp_path) == (job != "d") and state.steps == steps
    assert "has states of a_b, c, default; this is job d (--job)" in capfd.readouterr().err
    monkeypatch.delenv(JOB)
    with pytest.raises(ArgumentError, match="states of 3 trainings"):
        elastic.State(epoch=0).load(tmp_path)


def test_another_state_is_not_loaded(tmp_path: Path):
    training = Training()
    training.state.save(tmp_path)
    other = elastic.State(net=nn.Linear(4, 4), epoch=0)
    with pytest.raises(ArgumentError, match="differs from this State in entry 'best'"):
        other.load(tmp_path)


def test_what_a_file_system_refuses_is_said(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError, match="could not write"):
        Training().state.save(tmp_path / "file")


def test_buffers_that_come_and_grow_are_put_back():
    net = nn.Linear(2, 2)
    net.register_buffer("grows", torch.zeros(2))
    net.register_buffer("goes", torch.zeros(3))
    state = elastic.State(net=net)
    net.grows, net.goes = torch.ones(5), None
    net.register_buffer("comes", torch.ones(1))
    state._put_back()
    assert {name: one.tolist() for name, one in net.named_buffers()} == {
        "grows": [0, 0],
        "goes": [0, 0, 0],
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.float64, torch.bool])
def test_hashes_tell_apart_what_differs(dtype: torch.dtype):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    torch.manual_seed(seed)
    values = {"tensor": torch.rand(70_001).mul(100).to(dtype)}
    snapshot = elastic.State(values=values)._snapshots["values"]
    seen = {snapshot.hashes()["['tensor']"]}
    for count in range(1, 20):
        at = random.randrange(70_001)
        values["tensor"][at] = ~values["tensor"][at] if dtype == torch.bool else 200 + count
        snapshot.take()
        seen.add(snapshot.hashes()["['tensor']"])
        assert len(seen) == count + 1
    values["tensor"] = values["tensor"].flip(0)
    snapshot.take()
    assert snapshot.hashes()["['tensor']"] not in seen


def test_entries_are_attributes():
    state = elastic.State(net=nn.Linear(1, 1), epoch=3)
    state.epoch += 1
    assert state.epoch == 4
    state._put_back()
    assert state.epoch == 3
    with pytest.raises(AttributeError, match="no entry 'epochs'; it has net, epoch"):
        _ = state.epochs
    with pytest.raises(AttributeError, match="no entry 'epochs': name it when"):
        state.epochs = 4
    with pytest.raises(AttributeError, match="'net' of this State is a Linear"):
        state.net = nn.Linear(1, 1)
    with pytest.raises(ArgumentError, match=r"epoch must be a module.* got object"):
        state.epoch = object()


@pytest.mark.parametrize(
    ("entries", "error", "said"),
    [
        ({"commit": 1}, ArgumentError, "'commit' is a name of State's own"),
        ({"_epoch": 1}, ArgumentError, "'_epoch' is a name of State's own"),
        ({"net": object()}, ArgumentError, "net must be a module, an optimizer.* got object"),
        ({"net": {"a": [object()]}}, ArgumentError, "net must be a module"),
        ({"w": torch.ones(1, requires_grad=True)}, ArgumentError, "w is a tensor that requires"),
        (
            {"best": {"x": defaultdict()}},
            ArgumentError,
            r"best\['x'\] is a collections.defaultdict",
        ),
        ({"of": Counting(Path())}, ArgumentError, r"of\['count'\] is a pathlib"),
        ({"net": {object()}}, ArgumentError, "net must be a module"),
    ],
)
def test_bad_entries(entries: dict[str, Any], error: type[Exception], said: str):
    with pytest.raises(error, match=said):
        elastic.State(**entries)


@pytest.mark.parametrize("copy", [True, False])
def test_an_optimizer_without_its_module_is_refused(copy: bool):
    net, other = nn.Linear(2, 2), nn.Linear(2, 2)
    groups = [{"params": net.parameters()}, {"params": [other.bias]}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    with pytest.raises(ArgumentError, match="parameter 0 of group 1 of optimizer is in no module"):
        elastic.State(copy=copy, net=net, optimizer=optimizer)
    with pytest.raises(ArgumentError, match="parameter 0 of group 0 of optimizer is in no module"):
        elastic.State(copy=copy, optimizer=optimizer, value=net.weight.detach())
    elastic.State(copy=copy, optimizer=optimizer, nets=nn.ModuleList([net, other]))
    stateful = Counting(other.bias.detach())  # an object that keeps it in its state_dict()
    elastic.State(copy=copy, net=net, optimizer=optimizer, stateful=stateful)


@pytest.mark.parametrize(
    "value",
    [{1, 2}, 1 - 2j, torch.bfloat16, torch.device("cpu"), [{"a": {torch.int8}}]],
    ids=str,
)
def test_plain_values_are_kept_and_saved(tmp_path: Path, value: Any):
    state = elastic.State(value=value)
    state.commit()
    state.value = None
    state._put_back()
    state.save(tmp_path)
    other = elastic.State(value=0)
    assert other.load(tmp_path)
    assert state.value == other.value == value
    assert type(other.value) is type(value)
    assert _rank_state.content_of(state) == _rank_state.content_of(other)


def test_trusted_members_take_other_values():
    state = elastic.State(trust_members=True, best=numpy.float64(1), of=Counting(Path()))
    state.best = numpy.float64(2)
    assert _rank_state.terms_of(state, 1)["trust_members"] == "True"
    plain = elastic.State(best=1.0)
    assert "trust_members" not in _rank_state.terms_of(plain, 1)
    with pytest.raises(ArgumentError, match=r"best is a collections\.defaultdict"):
        plain.best = defaultdict()
    assert plain.best == 1.0


def test_two_samplers_are_refused():
    one, two = (elastic.Sampler(range(3), global_batch=1) for _ in range(2))
    with pytest.raises(ArgumentError, match="one Sampler at most, got 2"):
        elastic.State(one=one, two=two)


def _refuse_what_others_hold() -> None:
    from torch.distributed.fsdp import fully_shard

    with pytest.raises(NotSupportedError, match=r"net is sharded \(DTensor\)"):
        elastic.State(net=fully_shard(nn.Linear(4, 4)))
    with pytest.raises(ArgumentError, match=r"give the module itself \(net.module\)"):
        elastic.State(net=DistributedDataParallel(nn.Linear(4, 4)))


def test_modules_of_a_generation_and_sharded_ones_are_refused(pools):
    pools(1).run(_refuse_what_others_hold)
