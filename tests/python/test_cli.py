"""python -m torch_ringdist: info, codecs, help, and where commands print."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import fake_native
import pytest
from support.launched import preloaded
from test_cli_dump import reply, serve

import torch_ringdist
from torch_ringdist import _native
from torch_ringdist.__main__ import main
from torch_ringdist._costs import Costs, Link
from torch_ringdist._launch import ringdistrun

PACKAGE_PARENT = str(Path(torch_ringdist.__file__).resolve().parents[1])


def command_line(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs ``python -m torch_ringdist`` in its own process, with the module that was built."""
    return preloaded.run(
        ["-m", "torch_ringdist", *arguments],
        env={**os.environ, "PYTHONPATH": PACKAGE_PARENT, **variables},
        cwd="/",
        timeout=120,
    )


def test_help_teaches_by_example():
    done = command_line("--help")
    assert done.returncode == 0, done.stderr
    assert "ringdist dump 4711" in done.stdout


def test_without_a_command_the_commands_are_listed():
    done = command_line()
    assert done.returncode == 0 and done.stderr == ""
    for command in (
        *("status", "info", "doctor", "exporter", "codecs", "bench", "plan", "tune"),
        *("run", "store", "timeline", "key", "dump"),
    ):
        assert re.search(rf"^    {command} ", done.stdout, re.MULTILINE), done.stdout


def test_version():
    done = command_line("--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"torch_ringdist {torch_ringdist.__version__}\n"


def test_help_needs_no_folder_for_temporary_files(monkeypatch, capsys):
    def fail() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", fail)
    with pytest.raises(SystemExit) as ended:
        main(["run", "--help"])
    assert ended.value.code == 0
    assert "in the folder for temporary files" in " ".join(capsys.readouterr().out.split())


def print_everything() -> None:
    with serve(reply("rank 0 of 1 \u00fc"), "00000000000000ab"):
        assert main(["dump", str(os.getpid())]) == 0
    assert ringdistrun.main(["-np", "1", "--dry-run", "\u00fc"]) == 0


def test_text_that_stdout_cannot_encode_is_escaped(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    print_everything()
    sys.stdout.flush()
    assert sys.stdout.buffer.getvalue().count(b"\\xfc") == 2


@pytest.mark.parametrize("prints", [main, ringdistrun.main], ids=["command", "ringdistrun"])
def test_streams_that_are_closed_discard_what_is_printed(monkeypatch, prints):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    with pytest.raises(SystemExit) as ended:
        prints(["--no-such-option"])
    assert ended.value.code == 2
    print_everything()
    sys.stdout.close()
    sys.stderr.close()


def test_output_that_nobody_reads_is_no_traceback():
    child = subprocess.Popen(
        [sys.executable, "-m", "torch_ringdist", "info", "--json"],
        env={**os.environ, "PYTHONPATH": PACKAGE_PARENT},
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    child.stdout.close()  # like head, once it has its lines
    assert child.stderr.read() == ""
    assert child.wait(60) == 1


def test_what_builds_read_is_set_and_nothing_warns():
    """Programs also run in a shell that has built the package."""
    root = Path(__file__).parents[2]
    scripts = [root / "setup.py", *(root / "tools").glob("*.sh")]
    text = "".join(script.read_text() for script in scripts)
    read = set(re.findall(r"\$\{?(RINGDIST_[A-Z_]+)", text))
    read |= set(re.findall(r'environ(?:\.get\(|\[)"(RINGDIST_[A-Z_]+)"', text))
    read |= set(re.findall(r'is_on\("(RINGDIST_[A-Z_]+)"\)', text))
    assert len(read) >= 6, read
    done = command_line("info", **dict.fromkeys(read - {"RINGDIST_UCX"}, "ON"))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.check
def test_info_of_the_built_module():
    done = command_line("info", "--json", RINGDIST_ALGORITHM="direct")
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    variables = {row["name"]: row for row in out["variables"]}
    assert variables["RINGDIST_ALGORITHM"]["value"] == "direct"
    assert variables["RINGDIST_ALGORITHM"]["origin"] == "set"
    assert {row["name"] for row in out["algorithms"]} >= {"ring", "direct", "tree"}
    assert [row["name"] for row in out["transports"]] == [
        "shm",
        "ucx",
        "tcp",
    ]  # none that exist for tests only
    done = command_line("info")
    assert done.returncode == 0, done.stderr
    assert "RINGDIST_ALGORITHM" in done.stdout
    [cuda] = re.findall(r"^CUDA +(.*)$", done.stdout, re.MULTILINE)
    built = Path(PACKAGE_PARENT, "torch_ringdist", "libringdist_cuda.so").exists()
    assert cuda.startswith("not built;") != built, cuda
    assert "cannot open shared object file" not in done.stdout


def test_codecs_shows_each_codec_when_it_was_timed(monkeypatch, capsys):
    """The output must not be delayed, even into a pipe."""
    native = _native.load()
    seen = []

    def measure(spec: str, elements: int, seconds: float) -> dict[str, object]:
        seen.append(capsys.readouterr().out)
        return original(spec, elements, seconds)

    original = native.measure_codec
    monkeypatch.setattr(native, "measure_codec", measure)
    assert main(["codecs", "none", "int4", "onebit+h", "--mib", "1", "--seconds", "0.01"]) == 0
    seen.append(capsys.readouterr().out)
    assert [text.split()[0] for text in seen] == ["codec", "none", "int4", "onebit+h"]
    columns = {text.splitlines()[0].index(text.split()[1]) for text in seen}
    assert len(columns) == 1, "aligned"


def test_codecs_of_the_built_module():
    done = command_line("codecs", "int4", "onebit+h", "--mib", "1", "--seconds", "0.01", "--json")
    assert done.returncode == 0, done.stderr
    int4, onebit = json.loads(done.stdout)
    assert int4["codec"] == "int4" and onebit["codec"] == "onebit+h"
    assert 7.5 < int4["wire_ratio"] < 8 and 29 < onebit["wire_ratio"] < 32
    assert int4["relative_error"] < onebit["relative_error"] < 1
    done = command_line("codecs", "none", "--mib", "1", "--seconds", "0.01")
    assert done.returncode == 0 and done.stdout.startswith("codec")


def test_codecs_names_what_it_does_not_know():
    done = command_line("codecs", "int5")
    assert done.returncode == 1
    assert "unknown codec 'int5'; have: none" in done.stderr


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--mib", "0", "--mib: expected 1 to "),
        ("--mib", str(1 << 40), f"a fifth of the available memory, got {1 << 40}"),
        ("--seconds", "0", "--seconds: expected more than 0, at most 60, got 0.0"),
        ("--seconds", "61", "got 61.0"),
        ("--seconds", "inf", "got inf"),
        ("--seconds", "nan", "got nan"),
    ],
)
def test_codecs_has_limits(monkeypatch, capsys, option: str, value: str, words: str):
    monkeypatch.setattr(_native.load(), "measure_codec", None)
    assert main(["codecs", "none", option, value]) == 1
    assert words in capsys.readouterr().err


def test_bad_variable_is_named_by_info():
    done = command_line("info", RINGDIST_PEER_TIMEOUT="soon")
    assert done.returncode == 1
    assert "RINGDIST_PEER_TIMEOUT" in done.stderr and "soon" in done.stderr
    assert "Traceback" not in done.stderr


def test_info_shows_everything_aligned(monkeypatch, capsys):
    fake_native.install(monkeypatch)
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert "UCX              1.22.0 (wheel) /lib/libucp.so.0\n" in out
    assert "CUDA             kernels for 80, 90; NVIDIA H100 (9.0)\n" in out
    assert "\n  CUDA tensors of one rank on each: by NCCL: [[0]] on 1\n" in out
    assert "\n  CUDA tensors of two on one: by way of the host: [[0, 1]] on 1\n" in out
    assert "  local  ok            threads of one process\n" in out
    assert "  RINGDIST_ALGORITHM      ring  set      which schedule runs (default: auto)\n" in out
    assert "  RINGDIST_SOCKET_IFNAME  -     default  interfaces to use (default: empty)\n" in out


def test_info_as_json(monkeypatch, capsys):
    fake_native.install(monkeypatch)
    assert main(["info", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["transports"][0]["description"] == "threads of one process"
    assert out["transports"][1]["state"] == "no interface"
    assert out["variables"][0]["origin"] == "set"


def test_info_shows_the_costs_in_force(capsys, monkeypatch, tmp_path: Path):
    monkeypatch.delenv("RINGDIST_COSTS", raising=False)
    assert main(["info", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["costs"]["origin"] == "built in"
    assert set(out["costs"]) == {"origin", "inside", "between"}
    path = tmp_path / "costs.json"
    link = Link(123, 1e9, 2e9, 456, 7)
    Costs(link, link, {"host": "n1"}).to_file(path)
    monkeypatch.setenv("RINGDIST_COSTS", str(path))
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    assert f"costs, file {path} (made on n1)" in text
    assert "  latency_ns         123           123\n" in text
    path.write_text("{}")
    assert main(["info"]) == 1
    assert f"costs file '{path}'" in capsys.readouterr().err


def test_info_without_a_build_says_what_to_type(monkeypatch, capsys):
    fake_native.install(monkeypatch)
    fake_native.install_build_info(monkeypatch, "2.4.1")
    assert main(["info"]) == 1
    assert capsys.readouterr().err.startswith("torch_ringdist info: torch_ringdist was built for")


def test_info_names_a_bad_variable(monkeypatch, capsys):
    fake_native.install(monkeypatch)

    def refuse():
        raise ValueError("RINGDIST_ALGORITHM: unknown algorithm 'x'; have: ring, direct")

    monkeypatch.setattr(sys.modules["torch_ringdist._C"], "info", refuse)
    assert main(["info"]) == 1
    assert "unknown algorithm 'x'" in capsys.readouterr().err
