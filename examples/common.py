"""Shared code of the sharded-training examples: arguments, launch, data, and the final check."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

# Several ranks add up in another order than one process. In fp64 this differs by 1e-16 at first,
# and training amplifies it. In fp32 it would be 1e-7 at first, and soon as large as a mistake.
DTYPE = torch.float64
TOLERANCE = 1e-6


def make_parser(doc: str) -> argparse.ArgumentParser:
    """Returns a parser with the arguments that every example has; `doc` is the description."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--backend", default="ringdist", help="of init_process_group (default: ringdist)")
    add("--seed", type=int, default=0, help="of the parameters and the order of the data")
    add("--no-progress", action="store_true", help="no progress bar")
    return parser


def launch(
    args: argparse.Namespace, train: Callable[[], None], complaint: Callable[[int], str | None]
) -> int:
    """Calls `train` inside the default process group and returns the exit status.

    `complaint` gets the number of ranks. If it returns a problem with the arguments, that is
    printed instead.
    """
    if "RANK" not in os.environ:
        print(f"launch me with: torchrun --nproc-per-node=2 {sys.argv[0]}", file=sys.stderr)
        return 2
    if problem := complaint(int(os.environ["WORLD_SIZE"])):
        print(problem, file=sys.stderr)
        return 2
    torch.set_default_dtype(DTYPE)
    dist.init_process_group(args.backend)
    train()
    dist.barrier()
    dist.destroy_process_group()
    return 0


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Returns 1797 images of handwritten digits, [images, 64] from 0 to 1, and labels, int64
    [images].

    They are load_digits() of scikit-learn. They are read from its file, because its import would
    delay each rank that joins a group by two seconds.
    """
    if (sklearn := find_spec("sklearn")) is None or sklearn.origin is None:
        raise ModuleNotFoundError("the digits come with scikit-learn: pip install scikit-learn")
    rows = np.loadtxt(Path(sklearn.origin).parent / "datasets/data/digits.csv.gz", delimiter=",")
    return torch.tensor(rows[:, :-1], dtype=DTYPE) / 16, torch.tensor(
        rows[:, -1], dtype=torch.int64
    )


def compare(together: torch.Tensor, alone: torch.Tensor) -> None:
    """Compares the losses of both runs, one per step. Raises AssertionError if they differ by more
    than rounding."""
    apart = (together - alone).abs().max().item()
    print(f"last loss {together[-1]:.4f}, alone {alone[-1]:.4f}; at most {apart:.1e} apart")
    assert apart <= TOLERANCE, f"the losses are {apart} apart, which is not rounding"
