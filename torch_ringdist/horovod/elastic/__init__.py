"""Horovod's elastic training over torch_ringdist.elastic: ranks may be lost, and may come.

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, epochs):
            for x, y in loader:
                ...
                sampler.record_batch(batch, batch_size)
                state.commit()
            sampler.set_epoch(state.epoch + 1)

    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)
    state.register_reset_callbacks([on_state_reset])
    train(state)

Launched by ``ringdistrun -np 3 --min-np 2``. docs/reference/horovod.md says how it differs from
Horovod's; docs/explanation/elastic.md, how it works. A script that is launched otherwise trains
with the ranks that it has.
"""

from torch_ringdist.horovod.elastic._retry_loop import run as run
from torch_ringdist.horovod.elastic._sampler import ElasticSampler as ElasticSampler
from torch_ringdist.horovod.elastic._state import ObjectState as ObjectState
from torch_ringdist.horovod.elastic._state import State as State
from torch_ringdist.horovod.elastic._state import TorchState as TorchState
