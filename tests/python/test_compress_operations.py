"""torch_ringdist.all_reduce and related functions with a codec, and Options(codec=)."""

from __future__ import annotations

import hashlib
import random

import pytest
import torch
import torch.distributed as dist
from support.compress import refuses
from support.rank import Raised, caught, new_group, oracle, same_bits

import torch_ringdist

SUM, AVG, MAX = dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def noise(seed: int, *shape: int) -> torch.Tensor:
    """Returns values that differ from rank to rank."""
    generator = torch.Generator().manual_seed(seed * 1009 + dist.get_rank())
    return torch.randn(*shape, generator=generator)


def _conserves(codec: str, dtype: str, seed: int) -> tuple[float, float]:
    """Returns the relative error of the sums over 100 steps, with and without the residuals."""
    size, count = dist.get_world_size(), 4001
    residual = torch.zeros(count)
    given, got = torch.zeros(2, count, dtype=torch.float64)
    for i in range(100):
        tensor = noise(seed + i, count).to(DTYPES[dtype])
        given += tensor.double()
        op = (SUM, AVG)[i % 3 // 2]
        torch_ringdist.all_reduce(tensor, op, codec=codec, residual=residual)
        got += tensor.double() * (size if op == AVG else 1)
    owed = residual.double()
    for total in (given, owed):
        dist.all_reduce(total)
    return tuple(float((x - given).norm() / given.norm()) for x in (got + owed, got))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("codec", ["int4", "int8", "onebit", "onebit>int8", "topk:0.01"])
@pytest.mark.parametrize("size", [3, 4])
def test_results_and_residuals_add_up_to_the_inputs(pools, size: int, codec: str, dtype: str):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    for exact, without in pools(size).run(_conserves, codec, dtype, seed):
        assert exact < 1e-6
        # Without the residuals the sums are far off, so the check is meaningful.
        assert without > 100 * exact


def _scatter_conserves(seed: int) -> float:
    size, count = dist.get_world_size(), 1500
    residual = torch.zeros(size * count)
    given = torch.zeros(size * count, dtype=torch.float64)
    got = torch.zeros(count, dtype=torch.float64)
    for i in range(30):
        tensor, output = noise(seed + i, size * count), torch.empty(count)
        given += tensor.double()
        torch_ringdist.reduce_scatter_tensor(output, tensor, codec="int4", residual=residual)
        got += output.double()
    whole = torch.empty(size * count, dtype=torch.float64)
    dist.all_gather_into_tensor(whole, got)
    owed = residual.double()
    for total in (given, owed):
        dist.all_reduce(total)
    return float((whole + owed - given).norm() / given.norm())


@pytest.mark.parametrize("size", [2, 3])
def test_reduce_scatter_conserves(pools, size: int):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    assert max(pools(size).run(_scatter_conserves, seed)) < 1e-6


def _near(codec: str, seed: int) -> tuple[list[float], str]:
    """Returns errors against gloo, relative to the inputs, and a digest of all results.

    They are not relative to the sum, in which contributions of one element may cancel.
    """
    size = dist.get_world_size()
    errors, digest = [], hashlib.sha256()

    def compare(ours: torch.Tensor, exact: torch.Tensor, squares: torch.Tensor) -> None:
        errors.append(float((ours - exact).norm() / squares.sum().sqrt()))

    for count in (1, 127, 128, 129, 70_001):
        given = noise(seed + count, count)
        dist.all_reduce(exact := given.clone(), group=oracle())
        torch_ringdist.all_reduce(ours := given.clone(), codec=codec)
        dist.all_reduce(squares := given.square(), group=oracle())
        compare(ours, exact, squares)
        digest.update(ours.numpy().tobytes())
        work = torch_ringdist.all_reduce(again := given.clone(), codec=codec, async_op=True)
        work.wait()
        same_bits(again, ours, "the same call, asynchronous")
        parts = torch.empty(size * count)
        torch_ringdist.all_gather_into_tensor(parts, given, codec=codec)
        dist.all_gather_into_tensor(exact_parts := torch.empty_like(parts), given, group=oracle())
        compare(parts, exact_parts, exact_parts.square())
        digest.update(parts.numpy().tobytes())
        whole = noise(seed + count, size * count)
        torch_ringdist.reduce_scatter_tensor(out := torch.empty(count), whole, AVG, codec=codec)
        dist.all_reduce(squares := whole.square(), group=oracle())
        dist.all_reduce(whole, group=oracle())
        mine = slice(dist.get_rank() * count, (dist.get_rank() + 1) * count)
        compare(out, whole[mine] / size, squares[mine] / size**2)
    return errors, digest.hexdigest()


@pytest.mark.parametrize(("codec", "most"), [("int8", 0.02), ("int4", 0.25), ("none", 1e-6)])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_near_the_exact_result_and_the_same_on_all_ranks(pools, size: int, codec: str, most: float):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    answers = pools(size).run(_near, codec, seed) + pools(size).run(_near, codec, seed)
    assert max(error for errors, _ in answers for error in errors) < most
    assert len({digest for _, digest in answers}) == 1


def _thousand(codec: str, seed: int) -> str:
    """Returns a digest of 1000 steps in a new group, where the numbers of ops begin at the
    first."""
    group = dist.new_group()
    residual = torch.zeros(3001)
    digest = hashlib.sha256()
    for step in range(1000):
        tensor = noise(seed + step, 3001)
        torch_ringdist.all_reduce(tensor, AVG, group, codec=codec, residual=residual)
        digest.update(tensor.numpy().tobytes())
    dist.destroy_process_group(group)
    return digest.hexdigest()


@pytest.mark.parametrize("codec", ["int4", "onebit", "topk:0.01"])
def test_a_thousand_steps_end_with_the_same_bits_everywhere_and_again(pools, codec: str):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    digests = pools(3).run(_thousand, codec, seed) + pools(3).run(_thousand, codec, seed)
    assert len(set(digests)) == 1


def _strided(seed: int) -> None:
    rows = noise(seed, 60, 50)
    torch_ringdist.all_reduce(plain := rows.t().contiguous(), codec="int4")
    torch_ringdist.all_reduce(strided := rows.t(), codec="int4")
    same_bits(strided.contiguous(), plain, "a transposed tensor")


def test_strides(pools):
    pools(2).run(_strided, 5)


BAD = {
    "unknown codec": (
        lambda t: torch_ringdist.all_reduce(t, codec="int5"),
        ValueError,
        ["codec='int5'", "unknown codec 'int5'", "have: none, ", "int8"],
    ),
    "no codec": (lambda t: torch_ringdist.all_reduce(t, codec=""), ValueError, ["codec is empty"]),
    "codec of DDP only": (
        lambda t: torch_ringdist.all_reduce(t, codec="powersgd:4"),
        ValueError,
        ["codec='powersgd:4'", "no codec of an operation", "ddp.compress"],
    ),
    "bad parameter": (
        lambda t: torch_ringdist.all_reduce(t, codec="int4:9"),
        ValueError,
        ["codec='int4:9'", "takes no parameter", "'9'"],
    ),
    "codec that is no text": (
        lambda t: torch_ringdist.all_reduce(t, codec=4),
        TypeError,
        ["all_reduce: codec", "'int4'", "int"],
    ),
    "integers": (
        lambda t: torch_ringdist.all_reduce(t.int(), codec="int8"),
        TypeError,
        ["all_reduce: codec 'int8'", "float32, bfloat16 or float16", "int32[2000]"],
    ),
    "doubles": (
        lambda t: torch_ringdist.all_reduce(t.double(), codec="int4"),
        TypeError,
        ["float32, bfloat16 or float16", "float64[2000]"],
    ),
    "maximum": (
        lambda t: torch_ringdist.all_reduce(t, MAX, codec="int8"),
        ValueError,
        ["all_reduce: codec 'int8'", "SUM or AVG", "MAX"],
    ),
    "op no ReduceOp": (
        lambda t: torch_ringdist.all_reduce(t, "sum", codec="int8"),
        TypeError,
        ["all_reduce: op must be a torch.distributed.ReduceOp", "'sum'", "str"],
    ),
    "zeros without memory": (
        lambda t: torch_ringdist.all_reduce(torch._efficientzerotensor(2000), codec="int8"),
        TypeError,
        ["all_reduce: tensor has no memory of its own"],
    ),
    "maximum to scatter": (
        lambda t: torch_ringdist.reduce_scatter_tensor(t[:1000].clone(), t, MAX, codec="int8"),
        ValueError,
        ["reduce_scatter_tensor: codec 'int8'", "SUM or AVG", "MAX"],
    ),
    "integers to gather": (
        lambda t: torch_ringdist.all_gather_into_tensor(t.int(), t[:1000].int(), codec="int8"),
        TypeError,
        ["all_gather_into_tensor: codec 'int8'", "int32[1000]"],
    ),
    "pair to gather": (
        lambda t: torch_ringdist.all_gather_into_tensor(t, t[:1000].clone(), codec="int4>int8"),
        ValueError,
        ["codec='int4>int8'", "one codec"],
    ),
    "residual without codec": (
        lambda t: torch_ringdist.all_reduce(t, residual=torch.zeros(2000)),
        ValueError,
        ["all_reduce: residual", "codec", "None"],
    ),
    "residual of a codec that may not": (
        lambda t: torch_ringdist.all_reduce(t, codec="bf16:stochastic", residual=torch.zeros(2000)),
        ValueError,
        ["all_reduce: residual", "'bf16:stochastic'", "diverge"],
    ),
    "residual of another dtype": (
        lambda t: torch_ringdist.all_reduce(t, codec="int4", residual=torch.zeros(2000).half()),
        TypeError,
        ["residual must be float32", "float16[2000]"],
    ),
    "residual too small": (
        lambda t: torch_ringdist.all_reduce(t, codec="int4", residual=torch.zeros(1999)),
        ValueError,
        ["residual must have as many elements as tensor, float32[2000]", "float32[1999]"],
    ),
    "residual with strides": (
        lambda t: torch_ringdist.all_reduce(t, codec="int4", residual=torch.zeros(2, 2000)[:, ::2]),
        ValueError,
        ["residual must be contiguous", "[2000, 2]"],
    ),
    "residual that is the tensor": (
        lambda t: torch_ringdist.all_reduce(t, codec="int4", residual=t),
        ValueError,
        ["residual shares memory"],
    ),
    "residual that is no tensor": (
        lambda t: torch_ringdist.all_reduce(t, codec="int4", residual=[0.0]),
        TypeError,
        ["residual must be a tensor", "list"],
    ),
    "residual on another device": (
        lambda t: torch_ringdist.all_reduce(
            t, codec="int4", residual=torch.zeros(2000, device="meta")
        ),
        TypeError,
        ["residual is on device meta", "cpu"],
    ),
    "group of another backend": (
        lambda t: torch_ringdist.all_reduce(t, group=oracle(), codec="int4"),
        ValueError,
        ["all_reduce: group must be one of the backend ringdist", "gloo"],
    ),
    "group that is none": (
        lambda t: torch_ringdist.all_reduce(t, group="world", codec="int4"),
        TypeError,
        ["all_reduce: group must be a ProcessGroup or None", "str"],
    ),
}


def _refused(case: str) -> None:
    call, kind, words = BAD[case]
    oracle()
    tensor = torch.arange(2000.0)
    if dist.get_rank() == 1:
        refuses(lambda: call(tensor), kind, words)
        same_bits(tensor, torch.arange(2000.0), "the tensor after the refused call")
    dist.all_reduce(tensor)
    same_bits(tensor, torch.arange(2000.0) * 2, "the call after it")


@pytest.mark.parametrize("case", BAD)
def test_bad_input(pools, case: str):
    pools(2).run(_refused, case)


def _different_codecs(codecs: tuple[str, str]) -> Raised | None:
    group = new_group()
    codec = codecs[dist.get_rank() % 2]
    error = caught(torch_ringdist.all_reduce, torch.ones(5000), group=group, codec=codec)
    if error is None:  # done before the other rank's error arrived
        error = caught(dist.barrier, group)
    dist.barrier()
    dist.destroy_process_group(group)
    return error


@pytest.mark.parametrize(
    ("codecs", "words"),
    [
        (("int8", "int4"), ["codec int8)", "codec int4)"]),
        (("int8", "none"), ["SUM, codec int8)", "SUM)"]),
        (("topk:10", "topk:20"), ["codec topk)", "the codec's parameters"]),
    ],
)
def test_ranks_with_different_codecs(pools, codecs: tuple[str, str], words: list[str]):
    for error in pools(2).run(_different_codecs, codecs):
        assert error is not None and "DistBackendError" in error.kinds, error
        assert all(word in error.text for word in ["disagree", *words]), error


def _group_option() -> list[float]:
    group = new_group(pg_options=torch_ringdist.Options(codec="int8"))

    def exact(call, *given: torch.Tensor) -> bool:
        outputs = []
        for of in (group, dist.group.WORLD):
            tensors = [t.clone() for t in given]
            call(of, *tensors)
            outputs.append(tensors[0])
        return torch.equal(*outputs)

    size = dist.get_world_size()
    long, short = noise(1, 1024 * size), noise(2, 1023)

    def reduce(of, tensor, op=SUM):
        dist.all_reduce(tensor, op, group=of)

    def scatter(of, out, tensor):
        dist.reduce_scatter_tensor(out, tensor, group=of)

    def gather(of, out, tensor):
        dist.all_gather_into_tensor(out, tensor, group=of)

    compressed = [
        exact(reduce, long),
        exact(reduce, long.bfloat16()),
        exact(lambda of, t: reduce(of, t, AVG), long),
        exact(scatter, long[:1024], long),
    ]
    untouched = [
        exact(reduce, short),
        exact(reduce, long.double()),
        exact(reduce, (long * 100).int()),
        exact(lambda of, t: reduce(of, t, MAX), long),
        exact(gather, noise(3, long.numel() * size), long),
        exact(lambda of, t: dist.broadcast(t, 0, group=of), long),
        exact(lambda of, t: torch_ringdist.all_reduce(t, group=of, codec="none"), long),
    ]
    dist.destroy_process_group(group)
    return compressed, untouched


def test_option_compresses_float_sums_of_a_group(pools):
    for compressed, untouched in pools(3).run(_group_option):
        assert not any(compressed), compressed
        assert all(untouched), untouched


def _option_refused(codec: str) -> Raised | None:
    return caught(new_group, pg_options=torch_ringdist.Options(codec=codec))


def test_option_is_checked_when_the_group_is_made(fresh_pool):
    for error in fresh_pool(2).run(_option_refused, "int5"):
        assert error is not None and "ValueError" in error.kinds, error
        assert "option codec='int5'" in error.text and "have: none, " in error.text


def _group_of(codec: str | None) -> None:
    options = torch_ringdist.Options(codec=codec)
    dist.destroy_process_group(new_group(pg_options=options))


def test_the_variable_that_makes_sums_lossy_says_so_once(fresh_pool):
    pool = fresh_pool(2, environment={"RINGDIST_CODEC": "onebit"})
    pool.run(_group_of, None)
    assert pool.log(0).count("RINGDIST_CODEC=onebit: sums and averages of 1024 floats") == 1
    assert "without error feedback, which this codec needs" in pool.log(0)
    assert "onebit" not in pool.log(1)


def test_an_option_warns_of_codecs_that_need_error_feedback(fresh_pool):
    pool = fresh_pool(1)
    pool.run(_group_of, "int8")
    assert "without error feedback" not in pool.log(0)
    pool.run(_group_of, "topk:10")
    assert "Options(codec='topk:10'): sums and averages" in pool.log(0)
