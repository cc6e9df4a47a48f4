"""One rank over torchft with gloo: a replica group of one process that makes the same sums."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torchft import Manager, ProcessGroupGloo
from torchft.coordination import LighthouseServer

from benchmarks.recovery.answer import Answer, Sums
from benchmarks.recovery.plan import SIZE, Plan
from benchmarks.recovery.processes import READY, Tell, log

HOST = "127.0.0.1"
# Values of torchft's train_ddp.py and README.
GLOO_TIMEOUT = timedelta(seconds=5)
MANAGER_TIMEOUT = timedelta(seconds=30)
LIGHTHOUSE = {"min_replicas": 1, "quorum_tick_ms": 100, "join_timeout_ms": 10000}


def serve(tell: Tell) -> None:
    """Runs the lighthouse and reports its address."""
    server = LighthouseServer(bind=f"{HOST}:0", **LIGHTHOUSE)
    tell(f"http://{HOST}:{server.address().rsplit(':', 1)[1]}")
    while True:
        signal.pause()


class Rank:
    def __init__(self, plan: Plan, rank: int, lighthouse: str) -> None:
        self._plan, self._rank = plan, rank
        self._sums = Sums(rank)
        self._store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        self._manager = Manager(
            pg=ProcessGroupGloo(timeout=GLOO_TIMEOUT),
            load_state_dict=lambda _: None,
            state_dict=dict,
            min_replica_size=1,
            use_async_quorum=False,  # the step number, which fixes the size, must precede the sum
            timeout=MANAGER_TIMEOUT,
            rank=0,
            world_size=1,
            store_addr=HOST,
            store_port=self._store.port,
            lighthouse_addr=lighthouse,
            replica_id=f"rank_{rank}",
            hostname=HOST,
        )

    def step(self) -> tuple[int, ...]:
        """Runs a step. Returns the participants of the sum if this rank committed it, else ()."""
        self._manager.start_quorum()
        step = self._manager.current_step()
        total = self._sums.mine(self._plan.count_of(step))
        self._manager.allreduce(total, reduce_op=dist.ReduceOp.SUM).wait()
        error = self._manager.errored()
        if not self._manager.should_commit():
            log(f"step {step} failed: {error}")
            return ()
        members = self._sums.members(total)
        if wrong := self._sums.wrong(total, members):
            raise ValueError(f"step {step}: {wrong}")
        return members

    def until(self, members: tuple[int, ...]) -> None:
        """Runs steps until this rank has committed a sum over these ranks."""
        while self.step() != members:
            pass

    def answer(self) -> Answer:
        self.until(self._plan.survivors)
        recovered_at = time.monotonic()
        log(f"step {self._manager.current_step()} is the first over all survivors")
        new_rank = self._manager.participating_rank()
        return Answer(self._rank, self._plan.survivors, new_rank, recovered_at)


def live(
    plan: Plan, rank: int, address: str, fork_children: Callable[[], None], tell: Tell
) -> None:
    """Runs a rank until it is killed. It continues after its report, because others may be a step
    behind."""
    torch.set_num_threads(1)
    one = Rank(plan, rank, address)
    one.until(tuple(range(SIZE)))
    fork_children()
    tell(READY)
    tell(one.answer())
    while True:
        one.step()
