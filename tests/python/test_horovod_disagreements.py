"""Ranks call one name differently. All get an error with the ranks and their calls, and
continue."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from support.horovod import initialized
from support.rank import Raised, caught
from torch import Tensor

import torch_ringdist.horovod as hvd

SIZE = 3


@dataclass(frozen=True)
class Case:
    """A call of all ranks but one, its part of the error message, and the call of the odd rank."""

    usual: Callable[..., Any]
    says: str
    odd: Callable[..., Any]
    odd_says: str


def _case(
    usual: tuple[Callable[..., Any], Sequence[Any], dict[str, Any]],
    says: str,
    odd: tuple[Callable[..., Any], Sequence[Any], dict[str, Any]],
    odd_says: str,
) -> Case:
    def bind(function: Callable[..., Any], args: Sequence[Any], named: dict[str, Any]) -> Any:
        return lambda **more: function(*args, **named, **more)

    return Case(bind(*usual), says, bind(*odd), odd_says)


def _ones(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(shape, dtype=dtype)


def _sparse(size: int, op: Any, name: str, process_set: hvd.ProcessSet) -> Tensor:
    return hvd.sparse_allreduce_async(torch.eye(size).to_sparse(), name, op, process_set)()


def _alltoall(tensor: Tensor, **named: Any) -> Any:
    return hvd.alltoall(tensor, [len(tensor), *([0] * (named["process_set"].size() - 1))], **named)


def _of_each_operation() -> dict[str, Case]:
    """Returns cases that differ in dtype, shape and number of tensors."""
    out = {}
    for function, says, extra in (
        (hvd.allreduce, "all_reduce", {}),
        (hvd.allgather, "all_gather", {}),
        (hvd.broadcast, "broadcast", {"root_rank": 0}),
        (_alltoall, "all_to_all", {}),
        (hvd.reducescatter, "reduce_scatter", {}),
    ):
        plain = function, [_ones(4, 2)], extra
        rows = r"\*" if "all_to" in says or "gather" in says else "4"
        for aspect, tensor, other in (
            ("dtype", _ones(4, 2, dtype=torch.float64), rf"float64\[{rows}, 2\]"),
            ("of half", _ones(4, 2, dtype=torch.float16), rf"float16\[{rows}, 2\]"),
            ("shape", _ones(4, 3), rf"float32\[{rows}, 3\]"),
            ("dimensions", _ones(4), rf"float32\[{rows}\]"),
        ):
            out[f"{says}, {aspect}"] = _case(
                plain, rf"{says} \(float32\[{rows}, 2\]", (function, [tensor], extra), other
            )
    for function, says in (
        (hvd.grouped_allreduce, r"all_reduce \(float32\[2\] float32\[2\]"),
        (hvd.grouped_allgather, r"all_gather \(float32\[\*\] float32\[\*\]"),
        (hvd.grouped_reducescatter, r"reduce_scatter \(float32\[2\] float32\[2\]"),
    ):
        plain = function, [[_ones(2)] * 2], {}
        out[f"{says}, tensors"] = _case(
            plain, f"{says}[,)]", (function, [[_ones(2)] * 3], {}), f"{says} float32"
        )
        mixed = function, [[_ones(2), _ones(2, dtype=torch.int64)]], {}
        out[f"{says}, dtype of the second"] = _case(plain, says, mixed, "int64")
    return out


def _of_reductions() -> dict[str, Case]:
    """Returns cases that differ in op and factors."""
    out = {}
    for op, says in ((hvd.Average, "AVG"), (hvd.Min, "MIN"), (hvd.Max, "MAX")):
        out[f"allreduce, {op.name}"] = _case(
            (hvd.allreduce, [_ones(2)], {"op": hvd.Sum}),
            "SUM",
            (hvd.allreduce, [_ones(2)], {"op": op}),
            says,
        )
    out["allreduce, Product"] = _case(
        (hvd.allreduce, [_ones(2)], {"op": hvd.Product}),
        "PRODUCT",
        (hvd.allreduce, [_ones(2)], {"average": True}),
        "AVG",
    )
    out["reducescatter, op"] = _case(
        (hvd.reducescatter, [_ones(2)], {}),
        "AVG",
        (hvd.reducescatter, [_ones(2)], {"op": hvd.Sum}),
        "SUM",
    )
    adasum = hvd.allreduce, [_ones(2)], {"op": hvd.Adasum}
    out["Adasum, op"] = _case((hvd.allreduce, [_ones(2)], {}), "AVG", adasum, "Adasum")
    for factor in ("prescale", "postscale"):
        named = {f"{factor}_factor": 0.5}
        for function in (hvd.allreduce, hvd.reducescatter):
            out[f"{function.__name__}, {factor}"] = _case(
                (function, [_ones(2)], {}),
                r"\(float32\[2\], AVG, on cpu\)",
                (function, [_ones(2)], named),
                f"{factor} 0.5",
            )
        scaled = hvd.allreduce, [_ones(2)], {"op": hvd.Adasum, **named}
        out[f"Adasum, {factor}"] = _case(adasum, r"\(1.0, 1.0\)", scaled, "0.5")
    for aspect, odd, said in (
        ("op", [3, hvd.Average], r"\[3, 3\], Average"),
        ("shape", [4, hvd.Sum], r"\[4, 4\], Sum"),
    ):
        usual = _sparse, [3, hvd.Sum], {}
        out[f"sparse, {aspect}"] = _case(usual, r"\[3, 3\], Sum", (_sparse, odd, {}), said)
    return out


def _of_kinds() -> dict[str, Case]:
    """Returns each kind paired with the next, and further differences."""
    kinds = [
        ((hvd.allreduce, [_ones(4)], {}), "all_reduce"),
        ((hvd.broadcast, [_ones(4), 0], {}), "broadcast"),
        ((hvd.allgather, [_ones(4)], {}), "all_gather"),
        ((_alltoall, [_ones(4)], {}), "all_to_all"),
        ((hvd.reducescatter, [_ones(4)], {}), "reduce_scatter"),
        ((_sparse, [4, hvd.Sum], {}), "sparse"),
    ]
    out = {
        f"{says} and {other_says}": _case(one, says, other, other_says)
        for (one, says), (other, other_says) in zip(kinds, [*kinds[1:], kinds[0]], strict=True)
    }
    out["broadcast, root"] = _case(
        (hvd.broadcast, [_ones(2), 0], {}), "root 0", (hvd.broadcast, [_ones(2), 2], {}), "root"
    )
    out["a scalar"] = _case(
        (hvd.allreduce, [_ones()], {}), r"\[\]", (hvd.allreduce, [_ones(1)], {}), r"\[1\]"
    )
    for function, extra in ((hvd.broadcast, [0]), (hvd.allgather, [])):
        flags, words = (_ones(2, dtype=one) for one in (torch.bool, torch.uint16))
        out[f"moved as bytes, {function.__name__}"] = _case(
            (function, [words, *extra], {}), "uint16", (function, [flags, *extra], {}), "bool"
        )
    small = {"compression": hvd.Compression.fp16}
    out["compression"] = _case(
        (hvd.allreduce, [_ones(2)], {}), "float32", (hvd.allreduce, [_ones(2)], small), "float16"
    )
    return out


CASES = {**_of_each_operation(), **_of_reductions(), **_of_kinds()}
# A group of many tensors.
SEVENTH = _case(
    (hvd.grouped_allreduce, [[_ones(2)] * 7], {}),
    r"float32\[2\]",
    (hvd.grouped_allreduce, [[*([_ones(2)] * 6), _ones(3)]], {}),
    r"float32\[3\]",
)


def _disagree(names: list[str], odd: int, process_set: hvd.ProcessSet) -> list[Raised]:
    """Returns the errors of this rank."""
    out = []
    for name in names:
        case = CASES.get(name, SEVENTH)
        how = {"name": name, "process_set": process_set}
        case.usual(**how)  # the name is cached from here on
        raised = caught(case.odd if hvd.rank() == odd else case.usual, **how)
        assert raised is not None, f"{name}: nothing is said of it"
        out.append(raised)
        case.usual(**how)
        total = hvd.allreduce(_ones(2), op=hvd.Sum, **how)
        assert total.tolist() == [process_set.size()] * 2, f"after {name}: {total}"
        case.usual(**how)
    return out


def _on_all(names: list[str], odd: int) -> list[Raised]:
    with initialized():
        return _disagree(names, odd, hvd.global_process_set)


def _in_a_set(names: list[str], odd: int) -> list[Raised] | None:
    some = hvd.ProcessSet([0, 2])
    with initialized(process_sets=[some]):
        return _disagree(names, odd, some) if some.included() else None


def _check(name: str, case: Case, raised: Raised, odd: int | None) -> None:
    assert raised.kinds[0] == "HorovodInternalError" and f"'{name}'" in raised.text, raised
    found = re.search(r"rank (\d) called (.*\)), rank (\d) called (.*\))$", raised.text)
    assert found, raised
    said = {int(found[1]): found[2], int(found[3]): found[4]}
    assert len(said) == 2, raised
    if odd is None:
        both = list(said.values())
        pairs = [both, both[::-1]]
    else:
        assert odd in said, raised
        pairs = [[text for _, text in sorted(said.items(), key=lambda one: one[0] == odd)]]
    for usual, other in pairs:
        if re.search(case.says, usual) and re.search(case.odd_says, other):
            return
    raise AssertionError(f"{name}: {raised}, expected {case.says} and {case.odd_says}")


def _check_all(names: list[str], replies: list[list[Raised]], odd: int | None) -> None:
    for number, name in enumerate(names):
        told = [reply[number] for reply in replies]
        for raised in told:
            _check(name, CASES[name], raised, odd)
        texts = {raised.text.split(f"'{name}': ")[1] for raised in told}
        assert len(texts) == 1, f"{name}: {texts}"
    longest = max(raised.after for reply in replies for raised in reply)
    print(f"{len(names)} disagreements, told after {longest:.3f} s at most")


@pytest.mark.parametrize("odd", range(SIZE))
def test_all_are_told_both_sides(pools, odd: int):
    names = list(CASES)
    _check_all(names, pools(SIZE).run(_on_all, names, odd), odd)


@pytest.mark.parametrize("odd", [0, 2])
def test_in_a_process_set(pools, odd: int):
    names = list(CASES)
    replies = pools(SIZE).run(_in_a_set, names, odd)
    _check_all(names, [reply for reply in replies if reply is not None], odd=None)


def test_the_tensor_that_differs_is_named(pools):
    """Covers calls with equal descriptions."""
    for raised in [reply[0] for reply in pools(SIZE).run(_on_all, ["7"], 1)]:
        words = r"all_reduce \(float32\[2\].* and 4 more, .*\)"
        said = rf"rank (\d) called ({words}), rank (\d) called \2: tensor 6: (.*), (.*)$"
        found = re.search(said, raised.text)
        assert found, raised
        shapes = {found[1]: found[4], found[3]: found[5]}
        assert shapes.pop("1") == "float32[3]" and [*shapes.values()] == ["float32[2]"], raised


def _agree() -> None:
    """Checks arguments that may differ between ranks."""
    with initialized():
        rank, size = hvd.rank(), hvd.size()
        first = rank == 0
        total = sum(range(size))
        x = torch.full((size,), float(rank))
        got = hvd.alltoall(x, [1] * size, "x")[0] if first else hvd.alltoall(x, name="x")
        assert got.tolist() == list(range(size))
        got = (hvd.allreduce_ if first else hvd.allreduce)(x.clone(), op=hvd.Sum, name="x")
        assert got.tolist() == [total] * size
        how = {"op": hvd.Sum, "name": "x"}
        got = hvd.grouped_allreduce([x], **how)[0] if first else hvd.allreduce(x, **how)
        assert got.tolist() == [total] * size
        how = {"average": False} if first else {"op": hvd.Sum}
        assert hvd.allreduce(_ones(1), name="x", **how).item() == size
        one = _ones() if first else _ones(1)
        assert hvd.allgather(one, "x").tolist() == [1] * size
        kept = _ones(1).requires_grad_() if first else _ones(1)
        assert hvd.allreduce(kept, name="x").item() == 1


def test_what_need_not_be_alike(pools):
    pools(SIZE).run(_agree)
