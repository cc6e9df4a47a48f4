"""Effects and limits of `import torch` and `import torch_ringdist`, and the factory."""

from __future__ import annotations

import datetime
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import fake_native
import pytest
import torch
import torch.distributed as dist
from support.pool import free_port

import torch_ringdist
from torch_ringdist import _native, _registration

PACKAGE_PARENT = Path(torch_ringdist.__file__).resolve().parents[1]


def run_python(code: str, *folders: Path, arguments: tuple[str, ...] = (), **variables: str) -> str:
    """Returns the output of a fresh interpreter that finds torch_ringdist and `folders`."""
    path = os.pathsep.join([*map(str, folders), str(PACKAGE_PARENT)])
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": path, **variables},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Returns a folder on the path that declares the entry point, like an installed package."""
    folder = tmp_path / "test-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: test\nVersion: 0\n")
    (folder / "entry_points.txt").write_text(
        "[torch.backends]\nringdist = torch_ringdist._registration:autoload\n"
    )
    return tmp_path


@pytest.mark.check
def test_import_registers_for_cpu_and_cuda():
    assert dist.is_backend_available("ringdist")
    assert dist.Backend.backend_capability["ringdist"] == ["cpu", "cuda"]
    assert dist.Backend.default_device_backend_map["cpu"] == "gloo"


def test_registering_again_changes_nothing():
    before = list(dist.Backend.backend_list)
    _registration.register()
    _registration.autoload()
    assert dist.Backend.backend_list == before


def test_import_of_torch_registers_and_maps_no_file_of_ours(installed: Path):
    out = run_python(
        "import sys, torch, torch.distributed as dist\n"
        "assert 'torch_ringdist' in sys.modules\n"
        "print(dist.is_backend_available('ringdist'))\n"
        "maps = open('/proc/self/maps').read()\n"
        "print('torch_ringdist' in maps, 'libucp' in maps)\n",
        installed,
        TORCH_DEVICE_BACKEND_AUTOLOAD="1",
    )
    assert out.split() == ["True", "False", "False"]


def test_import_of_torch_survives_a_registration_that_fails(installed: Path):
    # An older or newer torch may reject the call, and `import torch` must still work.
    (installed / "sitecustomize.py").write_text(
        "import sys\n"
        "class Breaker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch_ringdist._registration':\n"
        "            import torch.distributed as dist\n"
        "            def refuse(*a, **k): raise TypeError('register_backend: no such argument')\n"
        "            dist.Backend.register_backend = refuse\n"
        "sys.meta_path.insert(0, Breaker())\n"
    )
    out = run_python(
        "import torch\n"
        "print(torch.distributed.is_backend_available('ringdist'))\n"
        "try:\n"
        "    import torch_ringdist\n"
        "except TypeError as error:\n"
        "    print(error)\n",
        installed,
        TORCH_DEVICE_BACKEND_AUTOLOAD="1",
    )
    assert out.splitlines() == ["False", "register_backend: no such argument"]


# Each import of torch runs autoload(), also in programs that do not use ringdist. _native loads _C
# later.
def test_import_and_autoload_load_four_small_modules():
    out = run_python(
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "from torch_ringdist._registration import autoload\n"
        "autoload()\n"
        "print(sorted(set(sys.modules) - before))",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    names = ["", "._coalescing", "._native", "._registration", "._rendezvous"]
    assert out.strip() == str([f"torch_ringdist{name}" for name in names])


def test_names_that_no_group_needs_are_bound_when_one_is_asked_for():
    out = run_python(
        "import sys, threading\n"
        "import torch\n"
        "from torch_ringdist import _native\n"
        "native = _native.load()\n"
        "from torch_ringdist._C import create_backend, shutdown\n"
        "assert 'info' not in vars(native)\n"
        "sys.setswitchinterval(1e-6)\n"
        "found = []\n"
        "ask = lambda name: found.append(getattr(native, name))\n"
        "names = ['info', 'stats', 'dump', 'options', 'check_codec'] * 4\n"
        "threads = [threading.Thread(target=ask, args=[name]) for name in names]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "print(len(found), len(set(found)), native.__name__, native.info.__module__)\n"
        "print(hasattr(native, 'nothing'), native.__spec__.name)\n"
    )
    name = "torch_ringdist._C"
    assert out.split() == ["20", "5", name, name, "False", name]


def test_group_without_the_import_maps_one_ucx(installed: Path):
    out = run_python(
        "import os\n"
        "rank = 0 if os.fork() else 1\n"  # before torch has threads
        "import torch, torch.distributed as dist\n"
        f"store = dist.TCPStore('127.0.0.1', {free_port()}, 2, is_master=rank == 0)\n"
        "dist.init_process_group('ringdist', store=store, rank=rank, world_size=2)\n"
        "ones = torch.ones(3)\n"
        "dist.all_reduce(ones)\n"
        "paths = {line.split()[-1] for line in open('/proc/self/maps') if 'libucp.so' in line}\n"
        "assert ones.tolist() == [2, 2, 2] and len(paths) == 1, (ones, paths)\n"
        "dist.barrier()\n"
        "dist.destroy_process_group()\n"
        "if rank == 0:\n"
        "    print(os.wait()[1])\n",
        installed,
        TORCH_DEVICE_BACKEND_AUTOLOAD="1",
        RINGDIST_TRANSPORT="ucx",
    )
    assert out == "0\n"


def test_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'allreduce'"):
        torch_ringdist.allreduce  # noqa: B018
    assert {"Options", "info", "stats", "dump"} <= set(dir(torch_ringdist))


_WALK = """
import importlib, inspect, pkgutil, pydoc, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import torch_ringdist

def walk(module):
    public = getattr(module, "__all__", None)
    names = [n for n in dir(module) if not n.startswith("_")] if public is None else public
    for name in names:
        getattr(module, name)
    inspect.getmembers(module)
    pydoc.render_doc(module)
    for found in pkgutil.iter_modules(module.__path__, module.__name__ + "."):
        name = found.name.rpartition(".")[2]
        if not name.startswith(("_", "lib")) and name != "torchft":  # libringdist_ucx.so
            child = importlib.import_module(found.name)
            assert getattr(module, name) is child
            if found.ispkg:
                walk(child)

assert hasattr(torch_ringdist, "horovod") and not hasattr(torch_ringdist, "torchft")
walk(torch_ringdist)
visible = {name for name in dir(torch_ringdist) if not name.startswith("__")}
assert visible == set(torch_ringdist.__all__), visible ^ set(torch_ringdist.__all__)
try:
    from torch_ringdist import torchft
except ImportError as error:
    assert "pip install torchft" in str(error), error
try:
    torch_ringdist.Options(algorithm="ring")
    print("built")
except ImportError as error:
    assert "make build" in str(error), error
    print("not built")
"""


@pytest.mark.parametrize("missing", ["nothing", "torch_ringdist._C"])
def test_every_public_name_can_be_had_and_documented(missing: str):
    """Also works where torchft or the native module is missing, as where documentation is built."""
    out = run_python(_WALK, arguments=("torchft", missing))
    assert out.split("\n")[-2] == ("built" if missing == "nothing" else "not built")


READ = _registration.read_costs


def group_of(members: list[int]) -> SimpleNamespace:
    """Returns the arguments that torch passes to a factory."""
    return SimpleNamespace(
        store="store",
        group_rank=1,
        group_size=3,
        timeout=datetime.timedelta(seconds=5),
        group_id="name",
        global_ranks_in_group=members,
    )


@pytest.mark.parametrize(("given", "members"), [([], [0, 1, 2]), ([4, 6, 9], [4, 6, 9])])
def test_factory_passes_the_group_on(monkeypatch, given: list[int], members: list[int]):
    calls = fake_native.install(monkeypatch)
    assert _registration.create(group_of(given), None) == "backend"
    assert calls.created == [
        ("store", 1, 3, datetime.timedelta(seconds=5), "name", members, {}, READ)
    ]


def test_factory_passes_options_as_text(monkeypatch):
    calls = fake_native.install(monkeypatch)
    options = torch_ringdist.Options(segment_bytes=4096, peer_timeout=2.5, trace=True)
    _registration.create(group_of([]), options)
    assert calls.created[0][-2] == {
        "segment_bytes": "4096",
        "peer_timeout": "2.5",
        "trace": "true",
    }


def test_factory_hands_out_what_exists_already(monkeypatch):
    calls = fake_native.install(monkeypatch)
    assert _registration.create(group_of([]), _registration.Successor("another")) == "another"
    assert calls.created == []


def test_factory_refuses_foreign_options(monkeypatch):
    calls = fake_native.install(monkeypatch)
    foreign = dist.ProcessGroupGloo._Options()
    with pytest.raises(TypeError, match=r"torch_ringdist\.Options or None, got a .*Options"):
        _registration.create(group_of([]), foreign)
    assert calls.created == []


def test_native_module_is_stopped_once_and_only_by_its_own_process(monkeypatch):
    calls = fake_native.install(monkeypatch)
    _native._stop()
    assert calls.shutdowns == 0, "it is not loaded"
    _native.load()
    _native.load()
    owner = os.getpid()
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: owner + 1)
        _native._stop()
    assert calls.shutdowns == 0
    _native._stop()
    assert calls.shutdowns == 1
    _native._stop()
    assert calls.shutdowns == 1, "a child of multiprocessing may have registered it twice"


def test_a_child_whose_exit_handlers_were_cleared_is_stopped_all_the_same():
    # Python 3.13 and newer do this.
    out = run_python(
        "import os, sys, atexit, torch, torch_ringdist\n"
        "from multiprocessing import util\n"
        "from torch_ringdist import _native\n"
        "if child := os.fork():\n"
        "    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "atexit._clear()\n"
        "util._run_after_forkers()\n"
        "_native._stops[os.getpid()] = lambda: print('stopped', flush=True)\n"
    )
    assert out == "stopped\n"


def test_build_for_another_torch_names_both_versions(monkeypatch):
    fake_native.install(monkeypatch)
    fake_native.install_build_info(monkeypatch, "2.4.1")
    with pytest.raises(ImportError, match=r"built for torch 2\.4\.1") as caught:
        torch_ringdist.info()
    assert torch.__version__ in str(caught.value)
    assert "make build" in str(caught.value)


def test_build_for_another_patch_release_is_accepted(monkeypatch):
    fake_native.install(monkeypatch)
    major, minor = torch.__version__.split(".")[:2]
    fake_native.install_build_info(monkeypatch, f"{major}.{minor}.99")
    assert torch_ringdist.stats() == {"bytes_sent": 7}


@pytest.mark.parametrize("missing", ["torch_ringdist._C", "torch_ringdist._build_info"])
def test_missing_build_says_what_to_type(monkeypatch, missing: str):
    fake_native.install(monkeypatch)
    monkeypatch.delitem(sys.modules, missing)
    # Also works where the real module is built.
    monkeypatch.setattr(torch_ringdist, "__path__", ["/nonexistent"])
    # An editable install has its own finder, which would find the real module.
    finders = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
    monkeypatch.setattr(sys, "meta_path", finders)
    with pytest.raises(ImportError, match="not built") as caught:
        torch_ringdist.info()
    assert "pip install --no-build-isolation" in str(caught.value)
    assert str(PACKAGE_PARENT) in str(caught.value)


def test_options_survive_pickling_into_another_process(monkeypatch):
    fake_native.install(monkeypatch)
    options = torch_ringdist.Options(algorithm="ring")
    assert pickle.loads(pickle.dumps(options)) == options
