"""Sends parameters and the state of optimizers from one rank to all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
    """Copies the root's values to all ranks, in place.

    Args:
        params: model.state_dict(), model.named_parameters(), or tensors in the same order on all
            ranks. In a dict, values that are not tensors are ignored.
        root_rank: a global rank in the set.
        process_set: the ranks.

    Raises:
        ValueError: `params` has another type.
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
    """Returns the root's tree of dicts and lists on all ranks.

    Tensors are sent as tensors, all other values pickled. The root gets its own tree back.
    """
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
    """Copies the root's state and options (such as learning rates) to all ranks, without a step.

    If the root's optimizer has no state, missing gradients are set to zeros.

    Args:
        optimizer: an optimizer of the same parameters on all ranks.
        root_rank: a global rank in the set.
        model: the model with the parameters. Its sparse embeddings get sparse zeros.
        process_set: the ranks.
    """
    state = broadcast_tree(optimizer.state_dict(), root_rank, process_set)
    # The root loads it too, so that the same casts happen on all ranks.
    load_in_place(optimizer, optimizer.load_state_dict, state)
    if not state["state"]:
        embeddings = (torch.nn.Embedding, torch.nn.EmbeddingBag)
        modules = [] if model is None else model.modules()
        tables = {one.weight for one in modules if isinstance(one, embeddings) and one.sparse}
        is_sparse = isinstance(optimizer, torch.optim.SparseAdam)
        for one in optimizer.param_groups:
            for p in one["params"]:
                if p.requires_grad and p.grad is None:
                    zeros = torch.zeros_like(p)
                    p.grad = zeros.to_sparse(1) if is_sparse or p in tables else zeros


def load_in_place(
    optimizer: Optimizer, load: Callable[[dict[str, Any]], None], state_dict: dict[str, Any]
) -> None:
    """Calls `load` and keeps the groups and the state of the optimizer as objects: schedulers and
    DistributedOptimizer share them with the original optimizer."""
    groups, state = optimizer.param_groups, optimizer.state
    load(state_dict)
    if optimizer.param_groups is groups:
        return
    for old, new in zip(groups, optimizer.param_groups, strict=True):
        old.clear()
        old.update(new)
    new_state = dict(optimizer.state)
    state.clear()
    state.update(new_state)
    optimizer.param_groups, optimizer.state = groups, state
