"""What a training function works on, in Horovod's words."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn
from torch.optim import Optimizer

from torch_ringdist import elastic
from torch_ringdist._errors import ArgumentError
from torch_ringdist.elastic import _group
from torch_ringdist.elastic._leave import Leave, leave_was_asked
from torch_ringdist.elastic._parts import Part, Tree, load_state
from torch_ringdist.horovod import _global_state
from torch_ringdist.horovod._basics import rank
from torch_ringdist.horovod._errors import HostsUpdatedInterrupt
from torch_ringdist.horovod._launch_info import is_elastic
from torch_ringdist.horovod._state import broadcast_tree


class State:
    """What others are made of: ObjectState, TorchState, and a user's own that has save(), restore()
    and sync().

    On top of elastic.State, of which it is the one entry.
    """

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        """
        Args:
            bcast_object: gives rank 0's object to all ranks.
            get_rank: of Horovod; not needed here.
        """
        self._bcast_object = bcast_object
        self._reset_callbacks: list[Callable[[], Any]] = []
        self._elastic = elastic.State(horovod=_Content(self))

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """To be called, in turn, whenever the training function is to be entered with other ranks,
        the first time too: say, for the learning rate."""
        self._reset_callbacks += callbacks

    def on_reset(self) -> None:
        """Other ranks are there: reset(), and the callbacks."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """save(), and check_host_updates(): a step is done."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Whether ranks wait to be let in, or leave; without communication. A process that was
        asked to end (SIGTERM) leaves here: then the call does not return.

        Raises:
            HostsUpdatedInterrupt: for elastic.run, which undoes what was not saved.
        """
        if leave_was_asked():
            raise Leave
        if is_elastic() and _group.has_failed():
            raise HostsUpdatedInterrupt

    def save(self) -> None:
        """In memory, for restore()."""
        raise NotImplementedError

    def restore(self) -> None:
        """As of the last save()."""
        raise NotImplementedError

    def sync(self) -> None:
        """Rank 0's on all ranks."""
        raise NotImplementedError

    def reset(self) -> None:
        """What else there is to do when the ranks are others: nothing."""

    def _names(self) -> list[str]:
        return []

    def _content(self) -> dict[str, Any]:
        """What outlives a generation."""
        return {}

    def _put(self, content: dict[str, Any]) -> None:
        """Keeps what it is given."""


class _Content(Part):
    """Of a State, with elastic.State: rank 0's counts in the end, so no rank's is compared."""

    shared = False

    def __init__(self, state: State) -> None:
        self._state = state

    def read(self) -> Tree:
        return self._state._content()

    def write(self, tree: Tree) -> None:
        self._state._put(copy.deepcopy(tree))

    def describe(self) -> str:
        return f"a {type(self._state).__name__} of {', '.join(self._state._names())}"


class ObjectState(State):
    """Its arguments are attributes: what has state_dict() and load_state_dict() is kept by these,
    anything else is copied and pickled as a whole. All ranks give the same names."""

    def __init__(
        self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        """
        Raises:
            ValueError: a name that State has itself.
        """
        for name, value in kwargs.items():
            if name.startswith("_") or hasattr(type(self), name):
                raise ArgumentError(
                    f"elastic.{type(self).__name__}: {name!r} is a name of its own; call the "
                    "argument otherwise"
                )
            setattr(self, name, value)
        self._saved = list(kwargs)
        super().__init__(bcast_object, get_rank)

    def save(self) -> None:
        self._elastic.commit()

    def restore(self) -> None:
        self._elastic._put_back(goes_on=_global_state.current() is not None)

    def sync(self) -> None:
        self._put(self._bcast_object(self._content()))
        self._elastic._take()

    def _names(self) -> list[str]:
        return self._saved

    def _content(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self._saved}
        return {
            name: value.state_dict() if _is_stateful(value) else value
            for name, value in values.items()
        }

    def _put(self, content: dict[str, Any]) -> None:
        for name, saved in content.items():
            value = getattr(self, name)
            if not _is_stateful(value):
                setattr(self, name, saved)
                continue
            if isinstance(value, nn.Module):
                value.zero_grad()  # of a step that is not done
            load_state(value, saved)


class TorchState(ObjectState):
    """Of a model, its optimizer and whatever else training changes: samplers, schedulers, numbers.
    Its arguments are its attributes."""

    def __init__(
        self, model: nn.Module | None = None, optimizer: Optimizer | None = None, **kwargs: Any
    ) -> None:
        """
        Args:
            model, optimizer: more of them may be given by other names.
            kwargs: as of ObjectState.

        Raises:
            ValueError: a name that State has itself.
        """
        super().__init__(_broadcast, rank, model=model, optimizer=optimizer, **kwargs)


def _broadcast(tree: Any) -> Any:
    return broadcast_tree(tree, root_rank=0)


def _is_stateful(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
