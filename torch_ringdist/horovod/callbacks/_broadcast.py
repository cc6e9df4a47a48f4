"""Callback that starts all ranks with the state of one rank."""

from __future__ import annotations

from torch import nn
from torch.optim import Optimizer

from torch_ringdist.horovod._objects import broadcast_object
from torch_ringdist.horovod._sets import ProcessSet, global_process_set
from torch_ringdist.horovod._state import broadcast_optimizer_state, broadcast_parameters
from torch_ringdist.horovod.callbacks._callback import Callback, Logs


class BroadcastGlobalVariablesCallback(Callback):
    """Copies the root's model, optimizer (if there is one) and progress to all ranks when training
    begins.

    The progress consists of epoch, batch and callback states of the CallbackList that contains this
    callback. So only the root has to load a checkpoint.

    Args:
        root_rank: a global rank in the set.
        model, optimizer: needed without a CallbackList.
        process_set: the ranks.
    """

    def __init__(
        self,
        root_rank: int = 0,
        *,
        model: nn.Module | None = None,
        optimizer: Optimizer | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(model, optimizer)
        self.root_rank, self.process_set = root_rank, process_set
        self.progress: Callback | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Broadcasts. Raises ValueError if there is no model, or root_rank is not in the set."""
        root, ranks = self.root_rank, self.process_set
        broadcast_parameters(self._needed("model", self.model).state_dict(), root, ranks)
        if self.optimizer is not None:
            broadcast_optimizer_state(self.optimizer, root, process_set=ranks)
        if self.progress is not None:
            state = self.progress.state_dict()
            name = "BroadcastGlobalVariablesCallback"
            self.progress.load_state_dict(broadcast_object(state, root, name, ranks))
