"""run(): a function on ranks of its own, as Horovod's."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod._errors import HorovodInternalError


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    np: int | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    **others: Any,
) -> list[Any]:
    """Call a function on so many new ranks; what it returns on each, in order.

    Args:
        func, args, kwargs: pickled, with cloudpickle where that is installed (else the function
            must be one that can be imported).
        num_proc: ranks; 1 if None. np: its older name.
        hosts, hostfile: as -H and --hostfile of ringdistrun. Hosts share this one's folder for
            temporary files, through which results come.
        others: options of Horovod's that have no meaning here must be None or False.

    Raises:
        ValueError: another option is given.
        HorovodInternalError: a rank has failed; it has said why.
    """
    given = sorted(name for name, value in others.items() if value not in (None, False))
    ranks = num_proc or np or 1
    unknown = [name for name in given if name not in ("use_gloo", "verbose")]
    if unknown:
        raise ArgumentError(f"horovod.run: not supported: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory(prefix="ringdist_call_") as folder:
        task = Path(folder, "task")
        pickler = _pickler()
        if pickler is pickle and getattr(func, "__module__", "") == "__main__":
            raise ArgumentError(
                f"horovod.run: {func.__name__}() is of the script itself, which ranks cannot "
                "import: put it into a module, or pip install cloudpickle"
            )
        task.write_bytes(pickler.dumps((func, tuple(args), dict(kwargs or {}))))
        command = [sys.executable, "-m", "torch_ringdist._launch.ringdistrun", "-np", str(ranks)]
        # What can be imported here can be there.
        path = os.pathsep.join(part for part in sys.path if part)
        command += ["-x", f"PYTHONPATH={path}"]
        command += ["-H", hosts] if hosts else []
        command += ["--hostfile", hostfile] if hostfile else []
        command += [sys.executable, "-m", "torch_ringdist.horovod._call", folder]
        status = subprocess.run(command, check=False).returncode
        if status != 0:
            raise HorovodInternalError(f"horovod.run: a rank has failed (status {status})")
        return [pickle.loads(Path(folder, str(rank)).read_bytes()) for rank in range(ranks)]


def _pickler() -> Any:
    try:
        import cloudpickle
    except ImportError:
        return pickle
    return cloudpickle


def _call(folder: str) -> None:
    """On a rank."""
    func, args, kwargs = pickle.loads(Path(folder, "task").read_bytes())
    result = func(*args, **kwargs)
    Path(folder, os.environ["RANK"]).write_bytes(_pickler().dumps(result))


if __name__ == "__main__":
    _call(sys.argv[1])
