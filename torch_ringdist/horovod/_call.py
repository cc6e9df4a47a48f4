"""horovod.run(): calls a function on new ranks."""

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
    """Calls a function on new ranks and returns its results by rank.

    Args:
        func, args, kwargs: the function and its arguments. They are pickled with cloudpickle if it
            is installed. Otherwise the function must be importable.
        num_proc: number of ranks; 1 if None.
        np: older name of num_proc.
        hosts, hostfile: -H and --hostfile of ringdistrun. Hosts must share this host's folder for
            temporary files, which has the results.
        others: other options of Horovod. They have no effect here and must be None or False.

    Raises:
        ValueError: another option is given.
        HorovodInternalError: a rank has failed. It has printed the reason.
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
        # Ranks can import whatever this process can import.
        path = os.pathsep.join(part for part in sys.path if part)
        command += ["-x", f"PYTHONPATH={path}"]
        command += ["-H", hosts] if hosts else []
        command += ["--hostfile", hostfile] if hostfile else []
        command += [sys.executable, "-m", "torch_ringdist.horovod._call", folder]
        status = subprocess.run(command, check=False).returncode
        if status != 0:
            raise HorovodInternalError(f"horovod.run: a rank has failed (status {status})")
        return [pickle.loads(Path(folder, str(rank)).read_bytes()) for rank in range(ranks)]


# Returns cloudpickle if it is installed, else pickle.
def _pickler() -> Any:
    try:
        import cloudpickle  # type: ignore[import-untyped]
    except ImportError:
        return pickle
    return cloudpickle


def _call(folder: str) -> None:
    """Runs the function on a rank and stores the result in the folder."""
    func, args, kwargs = pickle.loads(Path(folder, "task").read_bytes())
    result = func(*args, **kwargs)
    Path(folder, os.environ["RANK"]).write_bytes(_pickler().dumps(result))


if __name__ == "__main__":
    _call(sys.argv[1])
