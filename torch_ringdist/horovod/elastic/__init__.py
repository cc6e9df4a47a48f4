"""Horovod's elastic training over torch_ringdist.elastic, where ranks may be lost and may join.

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

Launch it with ``ringdistrun -np 3 --min-np 2``. docs/reference/horovod.md
lists the differences from Horovod, and docs/explanation/elastic.md explains how it works. A script
that is launched in another way trains with a fixed number of ranks.
"""

from torch_ringdist.horovod.elastic._retry_loop import run as run
from torch_ringdist.horovod.elastic._sampler import ElasticSampler as ElasticSampler
from torch_ringdist.horovod.elastic._state import ObjectState as ObjectState
from torch_ringdist.horovod.elastic._state import State as State
from torch_ringdist.horovod.elastic._state import TorchState as TorchState
