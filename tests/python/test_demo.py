"""The digits example: the same parameters as over gloo, recovery from the death of a rank, and a
job with a key."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist
from support.job_key import needs_tls, write_key
from support.launched import preloaded, python_path
from support.pool import free_port
from support.rank import Ranks, store_for
from support.torchrun import torchrun

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ddp_digits.py"

LAUNCHERS = {
    "run": ["-m", "torch_ringdist", "run", "--nproc-per-node=2", "--world-size=2"],
    "ringdistrun": ["-m", "torch_ringdist._launch.ringdistrun", "-np", "2", sys.executable],
    "torchrun": [
        *(preloaded.__file__, "torchrun", "--nproc-per-node=2"),
        *("--rdzv-backend=ringdist", "--rdzv-endpoint=localhost:0"),
    ],
}


def digits(folder: Path, *arguments: str, launch: tuple[str, ...] = ()) -> str:
    """Returns the output of torchrun with 2 ranks, into a pipe, where there are no progress
    bars."""
    checkpoint = f"--checkpoint={folder / 'digits.pt'}"
    done = torchrun(EXAMPLE, checkpoint, *arguments, launch=launch, forked=True)
    assert "\r" not in done.stderr and "step/s" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    assert "parameters identical on 2 ranks" in done.stdout, done.stdout
    return done.stdout


def _parameters_after(steps: int, folder: str) -> list[str]:
    """Returns hashes of this rank's parameters after training over gloo, gloo again, and
    ringdist."""
    sys.path.insert(0, str(EXAMPLE.parent))
    import ddp_digits

    hashes = []
    for backend in ("gloo", "gloo", "ringdist"):
        arguments = [f"--steps={steps}", f"--checkpoint={folder}/{len(hashes)}.pt", "--no-progress"]
        sys.argv = [str(EXAMPLE), f"--backend={backend}", *arguments]
        dist.init_process_group(
            backend,
            store=store_for(f"run {len(hashes)}"),
            rank=Ranks.rank,
            world_size=Ranks.launch.size,
        )
        trainer = ddp_digits.Trainer(ddp_digits.parse_arguments())
        trainer.run()
        assert trainer.step == steps and ddp_digits.identical_on_all_ranks(trainer.model)
        hashes.append(ddp_digits.parameter_hash(trainer.model).hex())
        dist.destroy_process_group()
    return hashes


def test_20_steps_end_with_the_parameters_that_gloo_gets(fresh_pool, tmp_path: Path):
    results = fresh_pool(2, init=False).run(_parameters_after, 20, str(tmp_path), timeout=90)
    for gloo, gloo_again, ours in results:
        assert gloo == gloo_again, "gloo does not repeat itself: nothing can be compared"
        # With 2 ranks there is only one order of additions: a + b = b + a.
        assert ours == gloo


def test_torchrun_resumes_after_a_kill(tmp_path: Path):
    arguments = ("--epochs=6", "--kill-at=50", "--kill-rank=1")
    output = digits(tmp_path, *arguments, launch=("--max-restarts=1",))
    resumed = re.search(r"resumed from .* at step (\d+)", output)
    assert resumed and int(resumed[1]) == 40, output
    accuracy = re.search(r"^accuracy ([\d.]+), .* MB sent through ringdist", output, re.MULTILINE)
    assert accuracy and float(accuracy[1]) >= 0.97, output


@needs_tls
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_job_with_a_key_learns_as_well(tmp_path: Path, launcher: str):
    key = write_key(tmp_path / "job.key")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RINGDIST_KEY_FILE": str(key)}
    environment["PYTHONPATH"] = python_path()
    script = [str(EXAMPLE), f"--checkpoint={tmp_path / 'digits.pt'}", "--epochs=6"]
    done = preloaded.run([*LAUNCHERS[launcher], *script], env=environment, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    accuracy = re.search(r"accuracy ([\d.]+), .* MB sent through ringdist", done.stdout)
    assert accuracy and float(accuracy[1]) >= 0.97, done.stdout


_REDUCE = """
import torch, torch.distributed as dist
dist.init_process_group("ringdist")
ones = torch.ones(1)
dist.all_reduce(ones)
print(f"sum {ones.item():.0f}")
dist.destroy_process_group()
"""


@pytest.mark.timeout(300)
def test_the_tutorials_line_for_several_machines(tmp_path: Path):
    """Runs two launchers here in place of two machines, because the host names do not matter."""
    page = (EXAMPLE.parents[1] / "docs" / "tutorials" / "first-run.md").read_text()
    [line] = re.findall(r"^torchrun (--nnodes=2 .*--master-addr.*)$", page, re.MULTILINE)
    script = tmp_path / "train.py"
    script.write_text(_REDUCE)
    port = str(free_port())
    for old, new in (("per-node=4", "per-node=1"), ("10.0.0.1", "127.0.0.1"), ("29500", port)):
        assert old in line
        line = line.replace(old, new)
    arguments = shlex.split(line.replace("train.py", str(script)))
    launchers = [
        preloaded.ForkedProcess(
            [sys.executable, preloaded.__file__, "torchrun", f"--node-rank={node}"]
            + [argument for argument in arguments if argument != "--node-rank=0"],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
        )
        for node in (0, 1)
    ]
    try:
        assert [launcher.wait(280) for launcher in launchers] == [0, 0]
        assert [one.stdout.read() for one in launchers if one.stdout] == [b"sum 2\n"] * 2
    finally:
        for launcher in launchers:
            launcher.kill()
