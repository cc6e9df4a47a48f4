"""Exchanges values between ranks as JSON of a few types.

Pickles would run code of the sender. Values of other types are pickled only where all ranks have
agreed to trust each other, with State(trust_members=True).
"""

from __future__ import annotations

import base64
import json
import math
import pickle
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from torch_ringdist._errors import ArgumentError
from torch_ringdist._printable import printable
from torch_ringdist._tensor_meta import TensorMeta

_MOST = 64 << 20  # bytes of a message
_MOST_GATHERED = 8 << 20  # bytes of each rank's message in gather()
_TENSOR_BITS = 48  # addresses of a process have no more
_PLAIN = frozenset({type(None), bool, int, float, str})  # types that JSON has
_SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "size": torch.Size}
_MAPPINGS: dict[str, Any] = {"dict": dict, "ordered": OrderedDict, "counter": Counter}
_TAGS = {kind: tag for tag, kind in {**_SEQUENCES, **_MAPPINGS}.items()}
_HOLDERS = frozenset({list, tuple, dict, OrderedDict})  # types that may hold tensors
_DEVICES = frozenset({"cpu", "cuda"})
# Quantized tensors need more than a shape.
_DTYPES = {
    name: one
    for one in vars(torch).values()
    if isinstance(one, torch.dtype) and not (name := str(one).partition(".")[2]).startswith("q")
}


class MessageError(RuntimeError):
    """A rank has sent something else than the others expect.

    Attributes:
        rank: the sender.
        why: text that follows the rank in messages.
    """

    def __init__(self, rank: int, what: str, why: str) -> None:
        self.rank, self.why = rank, f"has sent something else than {what}: {printable(why)}"
        super().__init__(
            f"ringdist: elastic: rank {rank} {self.why}. Do all ranks run the same version of "
            "torch_ringdist?"
        )


class PickleError(ValueError):
    """A message has a pickle, and its sender is not trusted. `kind` is the name of its type."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(f"a pickle of {kind}")


Check = Callable[[Any], None]  # raises ValueError for a value that is not accepted


def encode(value: Any, name: str, trusts: bool = False) -> bytes:
    """Returns the message for a value, with the shape in place of each tensor.

    Args:
        value: None, numbers, texts, bytes, tensors, dtypes, devices, and lists, tuples, sets, dicts
            and Counters of these.
        name: name of the value for errors.
        trusts: pickle values of other types.

    Raises:
        ArgumentError: `value` contains another type, is nested too deep, or has an int that is too
            long.
    """
    try:
        return json.dumps(_encoded(value, name, trusts), separators=(",", ":")).encode()
    except (ValueError, RecursionError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"ringdist: State: {name} cannot be sent: {error}") from error


def _encoded(value: Any, name: str, trusts: bool, inside: bool = False) -> Any:
    """Implements encode(). `inside` is True for members of a type that cannot hold tensors."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, float):  # numpy.float64, which schedulers may compute
        return float(value)
    if kind in _TAGS:
        within = inside or kind not in _HOLDERS
        if isinstance(value, dict):
            return [
                _TAGS[kind],
                *(
                    [
                        _encoded(key, f"a key of {name}", trusts, True),
                        _encoded(one, f"{name}[{key!r}]", trusts, within),
                    ]
                    for key, one in value.items()
                ),
            ]
        members = (_encoded(one, f"{name}[{i}]", trusts, within) for i, one in enumerate(value))
        return [_TAGS[kind], *members]
    if not inside and isinstance(value, torch.Tensor) and travels(value):
        return ["tensor", list(value.shape), _name_of(value.dtype), value.device.type]
    if kind is bytes:
        return ["bytes", base64.b64encode(value).decode()]
    if kind is complex:
        return ["complex", value.real, value.imag]
    if kind is torch.dtype and _name_of(value) in _DTYPES:
        return ["dtype", _name_of(value)]
    if kind is torch.device:
        return ["device", value.type]
    kind_name = f"{kind.__module__}.{kind.__qualname__}"
    if trusts:
        return ["pickle", base64.b64encode(pickle.dumps(value)).decode(), kind_name]
    raise ArgumentError(
        f"ringdist: State: {name} is a {kind_name}, which other ranks "
        "would have to unpickle, and that runs code of the sender. Convert it, as with float(...) "
        "or dict(...), or give State(trust_members=True)"
    )


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """Returns the tensors of a value for which encode() puts their shapes, in that order."""
    leaves = pytree.tree_leaves(tree, is_leaf=is_leaf)
    return [one.detach() for one in leaves if isinstance(one, torch.Tensor) and travels(one)]


def with_tensors(outline: Any, tensors: Iterable[torch.Tensor]) -> Any:
    """Returns a decoded value with the tensors of tensors_of() in place of each TensorMeta."""
    left = iter(tensors)

    def put(leaf: Any) -> Any:
        return next(left) if isinstance(leaf, TensorMeta) else leaf

    return pytree.tree_map(put, outline, is_leaf=is_leaf)


def check_tensors(outline: Any, tensors: Any) -> None:
    """Raises ValueError unless with_tensors() may be called with these arguments."""
    leaves = pytree.tree_leaves(outline, is_leaf=is_leaf)
    metas = [one for one in leaves if isinstance(one, TensorMeta)]
    if type(tensors) is not list or len(tensors) != len(metas):
        raise ValueError("another number of tensors")
    for meta, one in zip(metas, tensors, strict=True):
        good = isinstance(one, torch.Tensor) and one.layout is torch.strided
        if not good or (one.shape, one.dtype) != (meta.shape, meta.dtype):
            raise ValueError("tensors of other shapes")


# Returns True if the tensor itself is sent, after a message with its TensorMeta.
def travels(tensor: torch.Tensor) -> bool:
    strided = tensor.layout is torch.strided and tensor.device.type in _DEVICES
    return strided and _name_of(tensor.dtype) in _DTYPES


def is_leaf(value: Any) -> bool:
    """Returns True if messages have no tensors inside of the value. It is for torch's pytree."""
    return type(value) not in _HOLDERS


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).partition(".")[2]


def decode(message: bytes, trusts: bool = False) -> Any:
    """Returns the value of a message, with a TensorMeta in place of each tensor.

    Raises:
        PickleError: the message has a pickle, and `trusts` is False.
        ValueError: the bytes are no message.
    """
    try:
        return _decoded(json.loads(message), trusts)
    except (TypeError, LookupError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _decoded(value: Any, trusts: bool, inside: bool = False) -> Any:
    """Implements decode(). `inside` is True for members of a type that cannot hold tensors."""
    if type(value) in _PLAIN:
        return value
    if type(value) is not list or not value or type(value[0]) is not str:
        raise ValueError("no tag")
    tag, *rest = value
    if inside and tag == "tensor":
        raise ValueError("a tensor in a set, a Counter or a key")
    if tag in _SEQUENCES:
        within = inside or _SEQUENCES[tag] not in _HOLDERS
        return _SEQUENCES[tag]([_decoded(one, trusts, within) for one in rest])
    if tag in _MAPPINGS:
        if any(type(one) is not list for one in rest):
            raise ValueError(f"a {tag} without pairs")
        within = inside or _MAPPINGS[tag] not in _HOLDERS
        pairs = ((_decoded(k, trusts, True), _decoded(v, trusts, within)) for k, v in rest)
        return _MAPPINGS[tag](dict(pairs))
    if tag == "pickle" and not trusts:
        raise PickleError(str(rest[-1])[:200])
    if tag not in _READERS:
        raise ValueError(f"unknown tag {tag[:20]!r}")
    return _READERS[tag](*rest)


def _meta(shape: Any, dtype: str, device: str) -> TensorMeta:
    meta = TensorMeta(torch.Size(shape), _DTYPES[dtype], device)
    check_shape(meta.shape, meta.dtype.itemsize)
    if device not in _DEVICES:
        raise ValueError(f"a tensor on {device!r:.20}")
    return meta


def check_shape(shape: Any, itemsize: int) -> None:
    """Raises ValueError unless `shape` is a torch.Size of a tensor that memory can hold."""
    good = type(shape) is torch.Size and all(length >= 0 for length in shape)
    if not good or math.prod(max(length, 1) for length in shape) * itemsize >> _TENSOR_BITS:
        raise ValueError("a tensor of an impossible shape")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_READERS: dict[str, Callable[..., Any]] = {
    "tensor": _meta,
    "bytes": _bytes,
    "complex": complex,
    "dtype": lambda name: _DTYPES[name],
    "device": lambda kind: torch.device({one: one for one in _DEVICES}[kind]),
    "pickle": lambda text, kind: pickle.loads(_bytes(text)),
}


def check_texts(value: Any) -> None:
    """Raises ValueError unless `value` is a dict of texts by name."""
    texts = [one for pair in value.items() for one in pair] if type(value) is dict else [None]
    if any(type(one) is not str for one in texts):
        raise ValueError("no texts by name")


def check_text(value: Any) -> None:
    """Raises ValueError unless `value` is a text."""
    if type(value) is not str:
        raise ValueError("no text")


def broadcast(value: Any, source: int, what: str, check: Check, trusts: bool = False) -> Any:
    """Returns the value of rank `source` on all ranks, with a TensorMeta in place of each tensor.

    All ranks call it. The source gets its own value back.

    Args:
        value: the value on the source; ignored on other ranks.
        source: rank that sends.
        what: description of the value for errors.
        check: check of the decoded value.
        trusts: pickle values of other types. It is equal on all ranks.

    Raises:
        MessageError: the source has sent something else. All other ranks raise it.
        ArgumentError: this rank is the source, and the value cannot be sent.
    """
    sends = dist.get_rank() == source
    data = bytearray(_limited(encode(value, what, trusts), what, trusts) if sends else b"")
    size = torch.tensor([len(data)], dtype=torch.int64, device="cpu")
    dist.broadcast(size, src=source)
    if not 0 < (count := int(size)) <= (_MOST if not trusts else 1 << _TENSOR_BITS):
        raise MessageError(source, what, f"{count} bytes")
    data = data if sends else bytearray(count)
    dist.broadcast(torch.frombuffer(data, dtype=torch.uint8), src=source)
    return value if sends else _checked(bytes(data), source, what, check, trusts)


def gather(mine: Any, what: str, check: Check) -> list[Any]:
    """Returns the values of all ranks. All ranks call it.

    Raises:
        MessageError: a rank has sent something else. All ranks raise it, for the lowest such rank.
    """
    data = encode(mine, what)
    ranks = range(dist.get_world_size())
    sizes = [torch.zeros(1, dtype=torch.int64, device="cpu") for _ in ranks]
    dist.all_gather(sizes, torch.tensor([len(data)], dtype=torch.int64, device="cpu"))
    counts = [int(size) for size in sizes]
    for rank, count in enumerate(counts):
        if not 0 < count <= _MOST_GATHERED:
            raise MessageError(rank, what, f"{count} bytes")
    padded = bytearray(data.ljust(max(counts)))
    everyone = [bytearray(len(padded)) for _ in ranks]
    dist.all_gather(
        [torch.frombuffer(one, dtype=torch.uint8) for one in everyone],
        torch.frombuffer(padded, dtype=torch.uint8),
    )
    return [_checked(bytes(everyone[r][: counts[r]]), r, what, check, False) for r in ranks]


def _limited(message: bytes, what: str, trusts: bool) -> bytes:
    if len(message) > _MOST and not trusts:
        raise ArgumentError(
            f"ringdist: State: {what} has {len(message) >> 20} MiB beside its tensors, and at most "
            f"{_MOST >> 20} are sent: keep large data in tensors"
        )
    return message


def _checked(message: bytes, sender: int, what: str, check: Check, trusts: bool) -> Any:
    try:
        value = decode(message, trusts)
        check(value)
    except ValueError as error:
        raise MessageError(sender, what, str(error)[:200]) from error
    return value
