"""The examples, a few steps each. They compare their losses with a single process themselves."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from support.launched import preloaded
from support.torchrun import torchrun

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def alone(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    """Runs an example without torchrun, with the given variables."""
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    command = [str(EXAMPLES / f"{name}.py"), *arguments]
    return preloaded.run(command, env=environment | variables, timeout=110)


@pytest.mark.parametrize(
    "name,arguments,ranks",
    [
        ("fsdp2_char_lm", ("--steps=5",), 2),
        ("fsdp2_char_lm", ("--steps=5", "--replicas=2"), 4),
        ("tensor_parallel", ("--epochs=1",), 2),
        ("pipeline_parallel", ("--epochs=1",), 2),
        ("pipeline_parallel", ("--epochs=1",), 3),
    ],
)
def test_losses_are_those_of_one_process(name: str, arguments: tuple[str, ...], ranks: int):
    script = EXAMPLES / f"{name}.py"
    done = torchrun(script, "--no-progress", *arguments, ranks=ranks, timeout=100, forked=True)
    assert done.returncode == 0, done.stdout + done.stderr
    apart = re.search(r"last loss [\d.]+, alone [\d.]+; at most (\S+) apart", done.stdout)
    assert apart and float(apart[1]) < 1e-9, done.stdout


@pytest.mark.parametrize(
    "name,arguments,advice",
    [
        ("fsdp2_char_lm", ("--replicas=3",), "give a divisor of the number of ranks, 2"),
        ("pipeline_parallel", ("--microbatches=1",), "give at least 2, one per rank"),
    ],
)
def test_advice(name: str, arguments: tuple[str, ...], advice: str):
    done = alone(name, *arguments, RANK="0", WORLD_SIZE="2")
    assert done.returncode == 2 and advice in done.stderr, done.stdout + done.stderr


def test_without_torchrun():
    done = alone("tensor_parallel")
    assert done.returncode == 2 and "torchrun --nproc-per-node=2" in done.stderr, done.stderr
