"""Implements `plan --device cuda`: predicts whether NCCL or the host path is used, how, and why."""

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
    """Adds the options on tensors' devices and on GPUs."""
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu", help="of the tensors (default: cpu)")
    add("--gpus", type=int, metavar="N", help="of each host (default: one for each rank)")
    add("--device-path", choices=("nccl", "host"), help="as if by RINGDIST_DEVICE_PATH")


def check(args: argparse.Namespace) -> None:
    """Raises ValueError that names an option that is not accepted."""
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
    """Returns the result of device_route() (_C.pyi) with the key nccl_assumed; None for CPU
    tensors.

    Each rank is assumed to have NCCL. nccl_assumed is True if the path depends on that.

    Raises:
        ImportError: the library for CUDA is missing.
        ValueError: a group would refuse this operation.
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
    except TypeError as error:  # raised for unsupported arguments
        raise ValueError(str(error)) from None
    except RuntimeError as error:
        raise ImportError(f"--device cuda: {error}") from None
    return {**found, "nccl_assumed": args.device_path != "host"}


def rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns the rows for the head of the printed text."""
    way = "by NCCL" if found["by_nccl"] else "by way of the host"
    return [
        ("device", f"cuda, {way}"),
        ("why", f"{found['why']}{' (NCCL is assumed)' if found['nccl_assumed'] else ''}"),
        ("there", found["how"]),
        ("why", found["because"]),
    ]


def note(found: dict[str, Any]) -> str:
    """Returns a sentence on how far the rest of the text applies."""
    return _OF_THE_HOST if found["host_op"] else _UNTIMED
