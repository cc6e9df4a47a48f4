"""Training that loses ranks and takes new ones without losing a step.

    @elastic.run                       # entered anew whenever ranks were lost, or have come
    def train(state):
        model = DistributedDataParallel(state.module)
        for x, y in DataLoader(data, batch_sampler=state.sampler):
            (loss(model(x), y) * state.weight).backward()
            state.optimizer.step()
            state.commit()

    elastic.init(min_ranks=2)
    sampler = elastic.Sampler(data, global_batch=128)
    train(elastic.State(module=net, optimizer=optimizer, sampler=sampler, epoch=0))

Launched with ``python -m torch_ringdist run --nproc-per-node=4 script.py``. docs/elastic.md has the
rest.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

from torch_ringdist.elastic._elastic_loop import run, set_job
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
    """Find the job that this process is launched for. Before anything else of torch.distributed.

    The process becomes a member of the group, or founds it, when the training function is called:
    until then the others do not notice it.

    Args:
        min_ranks: with fewer, training waits. The launcher's --min-ranks if None, else 1.
        rejoin_timeout: seconds, or a timedelta: how long it waits, how long a process waits to be
            let in, and how long survivors look for an agreement.
        timeout: of the operations of the group.
        checkpoint: a folder, where the state is saved while training waits, and when all ranks
            leave. State.load() reads it. None: it is not.
        options: as init_process_group(pg_options=).

    Raises:
        ArgumentError: not launched by ``python -m torch_ringdist run``, and no RINGDIST_RDZV; a
            value that is not accepted.
        TypeError: an argument of another type.
        torch.distributed.DistError: nobody holds the store that RINGDIST_RDZV names.
    """
    set_job(read(min_ranks, rejoin_timeout, timeout, checkpoint, options))
