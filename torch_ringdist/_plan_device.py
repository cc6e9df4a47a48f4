"""What `plan --device cuda` adds: by NCCL or by way of the host, how, and why."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from torch_ringdist import _native

if TYPE_CHECKING:
    from torch_ringdist._plan import Question

_MOST_DEVICES = 1024
_UNTIMED = "There are no times for it: what devices and their links take is not known here."
_OF_THE_HOST = "What follows is the host's op, without the copies."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which tensors, and what there is for them."""
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu", help="of the tensors (default: cpu)")
    add("--gpus", type=int, metavar="N", help="of each host (default: one for each rank)")
    add("--device-path", choices=("nccl", "host"), help="as if by RINGDIST_DEVICE_PATH")


def check(args: argparse.Namespace) -> None:
    """ValueError names the option that is not accepted."""
    if args.device == "cpu":
        for name, value in (("--gpus", args.gpus), ("--device-path", args.device_path)):
            if value is not None:
                raise ValueError(f"{name}: only --device cuda takes it")
    elif args.scale or args.save:
        name = "--scale" if args.scale else "--save"
        raise ValueError(f"{name}: it is of times, of which --device cuda has none")
    elif args.operation.replace("_", "").lower() == "barrier":
        raise ValueError("--operation: a barrier is the host's, also with --device cuda")
    if args.gpus is not None and not 1 <= args.gpus <= _MOST_DEVICES:
        raise ValueError(f"--gpus: expected 1 to {_MOST_DEVICES}, got {args.gpus}")


def route(question: Question, algorithm: str, args: argparse.Namespace) -> dict[str, Any] | None:
    """As device_route() of _C.pyi, each rank being taken to have NCCL, and nccl_assumed: whether
    that matters. None: of the CPU's tensors.

    Raises:
        ImportError: there is no library for CUDA.
        ValueError: what a group would refuse.
    """
    if args.device == "cpu":
        return None
    try:
        found = _native.load().device_route(
            operation=question.operation,
            count=question.bytes // question.element_bytes,
            dtype=question.dtype,
            reduce_op=question.reduce_op,
            root=question.root,
            hosts=question.hosts,
            algorithm=algorithm,
            codec=question.codec,
            devices=args.gpus or max(map(len, question.hosts)),
            path=args.device_path or "",
            nccl=True,
        )
    except TypeError as error:  # what is not supported
        raise ValueError(str(error)) from None
    except RuntimeError as error:
        raise ImportError(f"--device cuda: {error}") from None
    return {**found, "nccl_assumed": args.device_path != "host"}


def rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Of the head of what is printed."""
    way = "by NCCL" if found["by_nccl"] else "by way of the host"
    return [
        ("device", f"cuda, {way}"),
        ("why", f"{found['why']}{' (NCCL is assumed)' if found['nccl_assumed'] else ''}"),
        ("there", found["how"]),
        ("why", found["because"]),
    ]


def note(found: dict[str, Any]) -> str:
    """What the rest of the text is worth."""
    return _OF_THE_HOST if found["host_op"] else _UNTIMED
