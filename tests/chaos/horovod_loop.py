"""A script with a training function of hvd.elastic, in steps of some milliseconds.

Each entry of the function prints a line `entered RANK SIZE STEP MEMBERS`, where MEMBERS are those
of a process set of ranks 0 and 1. The end prints `done RANK SIZE STEP SUM`, where SUM is the total
of all additions.
"""

from __future__ import annotations

import argparse
import os
import time

import horovod.torch as hvd
import torch
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.torch.elastic import ObjectState, TorchState
from horovod.torch.elastic import State as _State

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--pause", type=float, default=0.02)
parser.add_argument("--own-state", action="store_true", help="a State of the user's")
parser.add_argument("--fail-at", type=int, default=-1, help="ranks disagree in this step, for ever")
args = parser.parse_args()


class OwnState(_State):
    def __init__(self) -> None:
        super().__init__(hvd.broadcast_object, hvd.rank)
        self.step, self.total = 0, torch.zeros(1)
        self.save()

    def save(self) -> None:
        self.saved = self.step, self.total.clone()

    def restore(self) -> None:
        self.step, self.total = self.saved[0], self.saved[1].clone()

    def sync(self) -> None:
        self.step, self.total = self._bcast_object((self.step, self.total))
        self.save()


assert issubclass(TorchState, ObjectState) and issubclass(HostsUpdatedInterrupt, RuntimeError)
pair = hvd.ProcessSet([0, 1])
hvd.init(process_sets=[pair])


@hvd.elastic.run
def train(state: _State, steps: int) -> None:
    members = pair.process_set_id and pair.size()
    print("entered", hvd.rank(), hvd.size(), state.step, members, os.getpid(), flush=True)
    while state.step < steps:
        shape = hvd.rank() + 1 if state.step == args.fail_at else 1
        one = hvd.allreduce(torch.ones(shape), op=hvd.Average, name="one")
        if members and pair.included():
            assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=pair).item() == 2
        time.sleep(args.pause)
        state.total += one
        state.step += 1
        state.commit()


state = OwnState() if args.own_state else TorchState(step=0, total=torch.zeros(1))
resets = []
state.register_reset_callbacks([lambda: resets.append(hvd.size())])
try:
    train(state, steps=args.steps)
except HorovodInternalError as error:
    raise SystemExit(str(error)) from error
print("done", hvd.rank(), hvd.size(), state.step, state.total.item(), flush=True)
hvd.shutdown()
