"""Horovod's Keras callbacks, for training loops in PyTorch and for Lightning.

    callbacks = hvd.callbacks.CallbackList(
        [
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateWarmupCallback(warmup_epochs=5),
            hvd.callbacks.BestModelCheckpoint(filepath="best.pt"),
        ],
        model=model, optimizer=optimizer, steps_per_epoch=len(loader),
    )
    for epoch in callbacks.epochs(90):
        for x, y in callbacks.batches(loader):
            ...
        callbacks.on_epoch_end(epoch, {"loss": loss, "val_loss": val_loss})

Each callback also works without the list, through on_train_begin(), on_epoch_begin() and so on.
lightning() combines them into one callback of Lightning. docs/reference/horovod.md lists the
differences from Horovod.
"""

from torch_ringdist.horovod.callbacks._broadcast import (
    BroadcastGlobalVariablesCallback as BroadcastGlobalVariablesCallback,
)
from torch_ringdist.horovod.callbacks._callback import Callback as Callback
from torch_ringdist.horovod.callbacks._checkpoint import BestModelCheckpoint as BestModelCheckpoint
from torch_ringdist.horovod.callbacks._lightning import lightning as lightning
from torch_ringdist.horovod.callbacks._list import CallbackList as CallbackList
from torch_ringdist.horovod.callbacks._metrics import MetricAverageCallback as MetricAverageCallback
from torch_ringdist.horovod.callbacks._schedule import (
    LearningRateScheduleCallback as LearningRateScheduleCallback,
)
from torch_ringdist.horovod.callbacks._warmup import (
    LearningRateWarmupCallback as LearningRateWarmupCallback,
)
