"""Training that loses ranks and takes new ones without losing a step.

    @elastic.run                       # called again after ranks were lost or have joined
    def train(state):
        model = DistributedDataParallel(state.module)
        for x, y in DataLoader(data, batch_sampler=state.sampler):
            (loss(model(x), y) * state.weight).backward()
            state.optimizer.step()
            state.commit()

    elastic.init(min_ranks=2)
    sampler = elastic.Sampler(data, global_batch=128)
    train(elastic.State(module=net, optimizer=optimizer, sampler=sampler, epoch=0))

Launch it with ``python -m torch_ringdist run --nproc-per-node=4 script.py``.
docs/explanation/elastic.md has more details.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

from torch_ringdist.elastic._decorator import run, set_job
from torch_ringdist.elastic._sampler import Sampler
from torch_ringdist.elastic._settings import read
from torch_ringdist.elastic._state import Change, State

if TYPE_CHECKING:
    from torch_ringdist._options import Options

__all__ = ["Change", "Sampler", "State", "init", "run"]


def init(
    min_ranks: int | None = None,
    rejoin_timeout: float | timedelta = 300.0,
    timeout: timedelta = timedelta(minutes=30),
    checkpoint: str | os.PathLike[str] | None = "elastic_checkpoint",
    options: Options | None = None,
) -> None:
    """Finds the job of this process. Call it before anything else of torch.distributed.

    The process joins the group, or creates it, when the training function is called. Until then the
    other ranks do not notice it.

    Args:
        min_ranks: with fewer ranks, training waits. If None, it is --min-ranks of the launcher, or
            else 1.
        rejoin_timeout: seconds, or a timedelta. It limits how long training waits for ranks, how
            long a process waits to be admitted, and how long survivors take to agree.
        timeout: timeout of the group's operations.
        checkpoint: a folder in which the state is saved while training waits, and when all ranks
            leave. State.load() reads it. None disables saving.
        options: the Options of init_process_group(pg_options=).

    Raises:
        ArgumentError: the process was not launched by ``python -m torch_ringdist run`` and
            RINGDIST_RDZV is not set, or a value is not accepted. Also if the process has trained
            this job already.
        TypeError: an argument of another type.
        torch.distributed.DistError: the store that RINGDIST_RDZV names does not answer.
    """
    set_job(read(min_ranks, rejoin_timeout, timeout, checkpoint, options))
