"""Scripts as users start them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def torchrun(
    script: Path,
    *arguments: str,
    ranks: int = 2,
    launch: tuple[str, ...] = (),
    timeout: float = 110,
) -> subprocess.CompletedProcess:
    """`launch` is for torchrun itself."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", *launch]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]  # any free port
    return subprocess.run(
        [*command, str(script), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
