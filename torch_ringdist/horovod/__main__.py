"""Runs a script that imports horovod.torch: ``python -m torch_ringdist.horovod script.py``."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from torch_ringdist._launch.horovod_names import folder_of_names


# Runs the script given on the command line, with its folder first on the path.
def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print("usage: python -m torch_ringdist.horovod SCRIPT [ARGUMENTS]", file=sys.stderr)
        print(
            "Runs a script that imports horovod.torch, as one rank: of the launcher that has "
            "started this (torchrun -m torch_ringdist.horovod, mpirun), or alone.",
            file=sys.stderr,
        )
        sys.exit(0 if sys.argv[1:2] in (["-h"], ["--help"]) else 2)
    del sys.argv[0]
    if names := folder_of_names():
        sys.path.append(names)
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
