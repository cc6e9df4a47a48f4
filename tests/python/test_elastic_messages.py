"""Values that ranks of an elastic job exchange: plain types arrive, others are refused."""

from __future__ import annotations

import collections
import dataclasses
import enum
import json
import math
import os
import pickle
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch.distributed as dist
from torch import nn

from torch_ringdist import ArgumentError, elastic
from torch_ringdist._tensor_meta import TensorMeta
from torch_ringdist.elastic import _checkpoint, _checksums, _messages, _transfer
from torch_ringdist.elastic._messages import MessageError, broadcast, decode, encode, gather
from torch_ringdist.elastic._rank_state import GenerationView, RankState, exchange


class Evil:
    """Creates a file where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.path, "w")


class Colour(enum.IntEnum):
    RED = 1


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(10**40),
        0.1,
        -0.0,
        math.inf,
        "a\0\ud800\U0001f600",
        b"\x00\xff",
        1 - 2j,
        [1, (2, [3.0]), {}],
        {2: "a", 1: "b", "params": [0, 1], (1, 2): None, None: 0},
        collections.OrderedDict(b=1, a=2),
        collections.Counter({3: 1, 1: 2}),
        {1, "a", (2, 3)},
        torch.Size([2, 3]),
        torch.bfloat16,
        torch.device("cpu"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_plain_types_arrive_as_they_are(value: Any):
    other = decode(encode(value, "value"))
    assert type(other) is type(value) and other == value
    assert repr(other) == repr(value)  # also order, -0.0 and types inside


def test_nan_arrives():
    assert math.isnan(decode(encode([math.nan], "value"))[0])


def test_tensors_arrive_as_their_shapes():
    tree = {"a": [torch.zeros(2, 3), nn.Parameter(torch.zeros(0, dtype=torch.float16))]}
    metas = [
        TensorMeta(torch.Size([2, 3]), torch.float32, "cpu"),
        TensorMeta(torch.Size([0]), torch.float16, "cpu"),
    ]
    assert decode(encode(tree, "tree")) == {"a": metas}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (numpy.int64(1), "best is a numpy.int64, which other ranks would have to unpickle"),
        ({"a": [0, numpy.ones(1)]}, r"best\['a'\]\[1\] is a numpy.ndarray"),
        (collections.defaultdict(int), "best is a collections.defaultdict"),
        (Point(1, 2), "best is a .*Point"),
        (Colour.RED, "best is a .*Colour"),
        ({Colour.RED: 1}, "a key of best is a .*Colour"),
        ([Path()], r"best\[0\] is a pathlib.*PosixPath"),
        ({torch.zeros(1)}, r"best\[0\] is a torch.Tensor"),
        (torch.zeros(1).to_sparse(), "best is a torch.Tensor"),
        (torch.zeros(1, device="meta"), "best is a torch.Tensor"),
        (test_nan_arrives, "best is a builtins.function"),
    ],
)
def test_other_types_are_refused_by_name(value: Any, said: str):
    with pytest.raises(ArgumentError, match=said):
        encode(value, "best")


class _Counts(torch.optim.SGD):
    """An optimizer with an own state_dict(), which has a value of another type after a step."""

    state_of_steps: Any = 0

    def step(self, closure: Any = None) -> None:
        self.state_of_steps = numpy.int64(1)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "steps": self.state_of_steps}


def test_a_value_that_cannot_be_sent_is_refused_before_somebody_joins():
    model = nn.Linear(1, 1)
    optimizer = _Counts(model.parameters(), lr=0.1)
    state = elastic.State(model=model, optimizer=optimizer)
    state.commit()
    optimizer.step()
    with pytest.raises(ArgumentError, match=r"optimizer\['steps'\] is a numpy.int64"):
        state.commit()


@pytest.mark.parametrize("value", [Path("a"), {"a": [Point(1, Colour.RED)]}, {numpy.int64(2)}])
def test_trusted_members_unpickle_other_types(value: Any):
    message = encode(value, "value", trusts=True)
    assert repr(decode(message, trusts=True)) == repr(value)
    with pytest.raises(ValueError, match="a pickle"):
        decode(message)


def test_what_cannot_be_sent_is_said():
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for value in (nested, 10**5000):
        with pytest.raises(ArgumentError, match="best cannot be sent"):
            encode(value, "best")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\ud800",
        "{}",
        "[]",
        "[1]",
        '["list", ["x"]]',
        '["dict", "ab"]',
        '["dict", ["list", 1, 2]]',
        '["dict", [["list"], 1]]',
        '["set", ["list"]]',
        '["counter", [1]]',
        '["size", "a"]',
        '["bytes", "?"]',
        '["bytes", 1]',
        '["complex", "x"]',
        '["complex", 1, 2, 3]',
        '["dtype", "Tensor"]',
        '["dtype", ["list"]]',
        '["device", "cuda:99999999999999"]',
        '["tensor", [-1], "float32", "cpu"]',
        '["tensor", [0.5], "float32", "cpu"]',
        '["tensor", [1048576, 1048576, 1048576], "float32", "cpu"]',
        '["tensor", [1], "float32", "meta"]',
        '["tensor", [1], "quint8", "cpu"]',
        '["tensor", [1]]',
        "[" * 100_000,
        '["list",' * 500 + '"a"' + "]" * 500,
        "1" * 5000,
    ],
    ids=lambda text: text[:30],
)
def test_other_messages_are_refused(text: str):
    with pytest.raises(ValueError):
        decode(text.encode(errors="surrogatepass"))


def test_pickles_are_refused(tmp_path: Path):
    evil = Evil(str(tmp_path / "evil"))
    message = encode(evil, "evil", trusts=True)
    for one in (pickle.dumps(evil), message, b'["list",' + message + b"]"):
        with pytest.raises(ValueError):
            decode(one)
    assert not list(tmp_path.iterdir())


def test_a_tree_is_checked_before_it_is_written():
    net = nn.BatchNorm1d(2)
    state = elastic.State(net=net, epoch=1)

    def content(**trees: Any) -> Any:
        whole = {"training": "0" * 8, "trees": {**state._given(), **trees}, "owed": []}
        return decode(encode(whole, "state"))

    _transfer.check_content(state, content())
    tensors, *_ = state._given()["net (buffers)"]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"more": 1}, "other entries"),
        ({"net": {}}, "net has other parameters"),
        ({"net": 1}, "net has other parameters"),
        ({"net": {"weight": torch.ones(3), "bias": torch.ones(2)}}, "another shape or dtype of"),
        ({"net (buffers)": tensors}, "no tensors by name"),
        ({"net (buffers)": ({"forward": torch.ones(1)}, {})}, "'forward', which is another"),
        ({"net (buffers)": ({"weight": torch.ones(1)}, {})}, "'weight', which is another"),
        ({"net (buffers)": ({"a.b": torch.ones(1)}, {})}, "a buffer of another module"),
        ({"net (buffers)": (tensors, {"weight": torch.ones(1)})}, "another extra state"),
        ({"net (buffers)": (tensors, {}, ("", 1))}, "other modes"),
    ]
    for trees, said in wrong:
        with pytest.raises(ValueError, match=said):
            _transfer.check_content(state, content(**trees))
    for training in ("x/../../../victim", "", "0" * 7, f"a b-{'0' * 8}", f"{'0' * 8}\n", 1):
        with pytest.raises(ValueError, match="no id of a training"):
            _transfer.check_content(state, {**content(), "training": training})
    _transfer.check_content(state, {**content(), "training": f"a_b.c-{'0' * 8}"})
    for bad in (1, {}, {**content(), "owed": {}}, {**content(), "owed": [{"steps": 1}]}):
        with pytest.raises(ValueError):
            _transfer.check_content(state, bad)


VALID = RankState("0" * 32, 1, True, False, False, 1, "1" * 32, "2" * 32)


@pytest.mark.parametrize(
    ("values", "good"),
    [
        ({}, True),
        ({"content": ""}, True),
        ({"id": "\ud800"}, False),
        ({"id": "0" * 31 + "A"}, False),
        ({"id": "0" * 33}, False),
        ({"terms": ""}, False),
        ({"content": "x"}, False),
        ({"steps": -1}, False),
        ({"steps": 10**300}, False),
        ({"steps": True}, False),
        ({"start_ranks": 0}, False),
        ({"start_ranks": -5}, False),
        ({"start_ranks": 1 << 31}, False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_states_of_ranks_are_checked(values: dict[str, Any], good: bool):
    sent = dataclasses.replace(VALID, **values)
    assert RankState.decode(sent.encode()) == (sent if good else None)


def _send_equal_ids() -> None:
    rank = dist.get_rank()
    mine = dataclasses.replace(VALID, id=f"{max(rank, 1):032x}")  # ranks 0 and 1 have the same
    assert [one is None for one in exchange(mine)] == [False, True, False]


def test_an_id_of_another_rank_is_refused(pools):
    pools(3).run(_send_equal_ids)


@pytest.mark.parametrize(
    ("before", "terms", "source"),
    [
        ([(5, False), (9, False)], "ab", 0),  # rank 1 differs from the rank that it has joined
        ([(5, False), (9, False)], "aa", 1),  # it has loaded a checkpoint of more steps
        ([(5, False), (9, True)], "ab", 1),
    ],
)
def test_the_source_is_alike_rank_0(before: list[tuple[int, bool]], terms: str, source: int):
    standings = [
        dataclasses.replace(VALID, steps=steps, veteran=veteran, terms=one * 32)
        for (steps, veteran), one in zip(before, terms, strict=True)
    ]
    company = GenerationView(tuple(standings))
    assert company.source == source
    assert company.mismatched_ranks() == ([1 - source] if terms == "ab" else [])


def test_a_training_does_not_name_a_folder_elsewhere(tmp_path: Path):
    """The id of the training comes from another rank."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "kept").write_text("")
    (tmp_path / "job" / "ckpt" / "step-000000001-x").mkdir(parents=True)
    state = elastic.State(epoch=0)
    state._replace({"epoch": 0}, 1, "x/../../../victim")
    with pytest.raises(ArgumentError, match=r"the id of the training, 'x/.*', must be the name"):
        state.save(tmp_path / "job" / "ckpt")
    assert [one.name for one in victim.iterdir()] == ["kept"]


@pytest.mark.parametrize(
    "handed",
    [
        1,
        ([], set(), set()),
        ([], ["a"]),
        ([], {1}),
        ([1], set()),
        ([{"version": 1, "steps": -1, "scale": 1, "world_size": 1, "residuals": {}}], set()),
        ([{"version": 1, "steps": 1, "scale": 1, "world_size": 1, "residuals": {"w": 1}}], set()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_residuals_are_checked(handed: Any):
    with pytest.raises(ValueError):
        _transfer._check_handed(handed)


def _exchange_in_turn() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for source in range(size):
        value = {"from": source} if rank == source else None
        assert broadcast(value, source, "a dict", lambda _: None) == {"from": source}
    mine = {"a" * rank: "b"}
    everyone = gather(mine, "texts", _messages.check_texts)
    assert everyone == [{"a" * other: "b"} for other in range(size)]


def test_values_are_exchanged(pools):
    pools(3).run(_exchange_in_turn)


def _receive_something_else(path: str) -> None:
    """Lets rank 1 send something else. All others name it, and none runs its code."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def refuse(call: Any) -> None:
        with pytest.raises(MessageError, match="rank 1 has sent something else than texts: "):
            call()

    def send_bytes(message: bytes) -> None:
        dist.broadcast(torch.tensor([len(message)]), src=1)
        dist.broadcast(torch.frombuffer(bytearray(message), dtype=torch.uint8), src=1)

    sent = [
        lambda: dist.broadcast_object_list([Evil(path)], src=1),
        lambda: dist.broadcast(torch.tensor([-1]), src=1),
        lambda: dist.broadcast(torch.tensor([0]), src=1),
        lambda: dist.broadcast(torch.tensor([1 << 40]), src=1),
        lambda: send_bytes(encode(Evil(path), "evil", trusts=True)),
        lambda: send_bytes(encode({"a": 1}, "number")),
        lambda: send_bytes(json.dumps({"a": "b"}).encode()),
    ]
    for send in sent:
        if rank == 1:
            send()
        else:
            refuse(lambda: broadcast(None, 1, "texts", _messages.check_texts))
    if rank == 1:
        with pytest.raises(pickle.UnpicklingError):  # others send no pickles
            dist.all_gather_object([None] * size, Evil(path))
    else:
        refuse(lambda: gather({}, "texts", _messages.check_texts))
    assert rank == 1 or not os.path.exists(path)


def test_who_sends_something_else_is_named(pools, tmp_path: Path):
    pools(3).run(_receive_something_else, str(tmp_path / "evil"))


def _refuse_large_values() -> None:
    with pytest.raises(ArgumentError, match="has 64 MiB beside its tensors, and at most 64"):
        broadcast("a" * (64 << 20), 0, "a text", _messages.check_text)


def test_large_values_are_refused(pools):
    pools(1).run(_refuse_large_values)


def test_floats_of_numpy_are_floats_elsewhere():
    """Schedulers with a function of numpy compute them."""
    mine = {"lr": numpy.float64(0.1), "of": [numpy.float64("nan")]}
    others = _messages.decode(_messages.encode(mine, "mine"))
    assert type(others["lr"]) is float
    assert _checksums.of_leaves(mine) == _checksums.of_leaves(others)


def test_devices_of_ranks_are_alike():
    """Each rank has its own GPU."""
    mine, others = ({"of": [one], "all": {one}} for one in map(torch.device, ("cuda:0", "cuda:1")))
    assert _checksums.of_leaves(mine) == _checksums.of_leaves(others)
    assert _checksums.of_leaves(mine) != _checksums.of_leaves({"of": [torch.device("cpu")]})


def test_a_state_saved_outside_of_a_job_can_be_sent(tmp_path: Path):
    state = elastic.State(epoch=3)
    folder = state.save(tmp_path)
    assert state.load(folder)
    _checkpoint.check_training(state._identify())
