"""State of a training function with Horovod's interface."""

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
    """Base class of ObjectState, TorchState, and user classes with save(), restore() and sync().

    It is the only entry of an elastic.State.
    """

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        """Creates the elastic.State.

        Args:
            bcast_object: sends rank 0's object to all ranks and returns it.
            get_rank: ignored, for compatibility with Horovod.
        """
        self._bcast_object = bcast_object
        self._reset_callbacks: list[Callable[[], Any]] = []
        # Objects of the user are pickled, as in Horovod.
        self._elastic = elastic.State(horovod=_Content(self), trust_members=True)

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Adds functions to call in order before the training function runs with other ranks,
        including the first time. They may, for instance, set the learning rate."""
        self._reset_callbacks += callbacks

    def on_reset(self) -> None:
        """Calls reset() and the callbacks, after ranks have changed."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Ends a step: calls save() and check_host_updates()."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Checks, without communication, if ranks wait to join or leave.

        A process that has received SIGTERM leaves here, and the call does not return.

        Raises:
            HostsUpdatedInterrupt: ranks change. elastic.run handles it and undoes unsaved changes.
        """
        if leave_was_asked():
            raise Leave
        if is_elastic() and _group.has_failed():
            raise HostsUpdatedInterrupt

    def save(self) -> None:
        """Saves the state in memory, for restore()."""
        raise NotImplementedError

    def restore(self) -> None:
        """Restores the state of the last save()."""
        raise NotImplementedError

    def sync(self) -> None:
        """Copies rank 0's state to all ranks."""
        raise NotImplementedError

    def reset(self) -> None:
        """Called when ranks have changed; does nothing by default."""

    def _names(self) -> list[str]:
        return []

    def _content(self) -> dict[str, Any]:
        """Returns the contents to keep across generations."""
        return {}

    def _put(self, content: dict[str, Any]) -> None:
        """Replaces the contents."""


class _Content(Part):
    """Part of elastic.State for this State. Ranks are not compared, because rank 0's state is used
    in the end."""

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
    """Keeps its arguments as attributes. All ranks pass the same names.

    Objects with state_dict() and load_state_dict() are saved by these. All others are copied and
    pickled as a whole.
    """

    def __init__(
        self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        """Stores the arguments.

        Raises:
            ValueError: a name that State itself uses.
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
                value.zero_grad()  # left by an unfinished step
            load_state(value, saved)


class TorchState(ObjectState):
    """State of a model, its optimizer and other objects of a training, such as samplers, schedulers
    and numbers. The arguments become attributes."""

    def __init__(
        self, model: nn.Module | None = None, optimizer: Optimizer | None = None, **kwargs: Any
    ) -> None:
        """Stores the arguments.

        Args:
            model, optimizer: further ones may be passed by other names.
            kwargs: see ObjectState.

        Raises:
            ValueError: a name that State itself uses.
        """
        super().__init__(_broadcast, rank, model=model, optimizer=optimizer, **kwargs)


def _broadcast(tree: Any) -> Any:
    return broadcast_tree(tree, root_rank=0)


def _is_stateful(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
