"""Parameters and the state of optimizers, from one rank to all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_flatten, tree_unflatten

from torch_ringdist._errors import ArgumentError
from torch_ringdist._tensor_meta import TensorMeta
from torch_ringdist.horovod._async import broadcast_async_
from torch_ringdist.horovod._handles import synchronize_all
from torch_ringdist.horovod._objects import broadcast_object
from torch_ringdist.horovod._sets import ProcessSet, global_process_set, group_of


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """In place: the root's values on all ranks.

    Args:
        params: model.state_dict(), model.named_parameters(), or tensors in the same order on all
            ranks. What is no tensor, in a dict, is left alone.
        root_rank: a global rank, in the set.
        process_set: the ranks.

    Raises:
        ValueError: params is something else.
    """
    if isinstance(params, Mapping):
        pairs = [(name, p) for name, p in sorted(params.items()) if isinstance(p, Tensor)]
    elif isinstance(params, Iterable) and not isinstance(params, Tensor):
        pairs = [one if isinstance(one, tuple) else (None, one) for one in params]
    else:
        raise ArgumentError(
            f"broadcast_parameters: params must be a dict, named parameters or tensors; got "
            f"{type(params).__name__}"
        )
    if not all(isinstance(p, Tensor) for _, p in pairs):
        raise ArgumentError("broadcast_parameters: params must hold tensors")
    handles = [broadcast_async_(p.data, root_rank, name, process_set) for name, p in pairs]
    synchronize_all(handles)


def broadcast_tree(tree: Any, root_rank: int, process_set: ProcessSet = global_process_set) -> Any:
    """The root's dicts, lists and what they hold: tensors as such, the rest pickled. On the root it
    is the tree itself."""
    group = group_of(process_set, "broadcast_object")
    is_root = group.members[group.rank] == root_rank
    leaves, form = tree_flatten(tree)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    plain = [TensorMeta.of(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    told = tree_unflatten(plain, form) if is_root else None
    told = broadcast_object(told, root_rank, process_set=process_set)
    if not is_root:
        leaves, form = tree_flatten(told)
        leaves = [leaf.allocate() if isinstance(leaf, TensorMeta) else leaf for leaf in leaves]
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    broadcast_parameters(tensors, root_rank, process_set)
    return tree_unflatten(leaves, form)


def broadcast_optimizer_state(
    optimizer: Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """The root's state and options (learning rates) on all ranks; nothing is stepped for it.

    Where the root's optimizer has no state, gradients that are missing become zeros.

    Args:
        optimizer: of the same parameters on all ranks.
        root_rank: a global rank, in the set.
        model: of Horovod; not needed here.
        process_set: the ranks.
    """
    state = broadcast_tree(optimizer.state_dict(), root_rank, process_set)
    # The root, too: what it casts, it casts on all.
    optimizer.load_state_dict(state)
    if not state["state"]:
        for one in optimizer.param_groups:
            for p in one["params"]:
                if p.requires_grad and p.grad is None:
                    p.grad = torch.zeros_like(p)
