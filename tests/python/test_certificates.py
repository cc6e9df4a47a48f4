"""Ranks have certificates of a private authority instead of a key of the job."""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import re
import socket
import ssl
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import test_join
import torch
import torch.distributed as dist
from support.job_key import needs_tls, write_key
from support.launched import preloaded
from support.pool import Pool, free_port
from support.rank import Ranks, caught, init, poll
from test_encryption import _everything, _ports
from test_shrink_stopped import PEER_TIMEOUT, leave_the_sleeper_behind
from test_transports import SCRIPT, net, torchrun

import torch_ringdist
from torch_ringdist import _dump as dumps
from torch_ringdist.__main__ import main

pytestmark = [
    needs_tls,
    pytest.mark.default_of("RINGDIST_TRANSPORT", reason="certificates need transport tcp"),
]
Start = Callable[..., Pool]


def _key(*words: str) -> None:
    assert main(["key", *words]) == 0


def _make_member(folder: Path, name: str, ranks: str, authority: str = "authority") -> None:
    _key("request", "--owner", name, "--ranks", ranks, str(folder / name))
    _key("sign", "--ca", str(folder / authority), str(folder / f"{name}.csr"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Has an authority, and members r0, r1 and r2 for one rank each."""
    _key("ca", str(tmp_path / "authority"))
    for rank in range(3):
        _make_member(tmp_path, f"r{rank}", str(rank))
    return tmp_path


def _variables(folder: Path, name: str) -> dict[str, str]:
    return {
        "RINGDIST_CERT": str(folder / f"{name}.pem"),
        "RINGDIST_CERT_KEY": str(folder / f"{name}.key"),
        "RINGDIST_CA": str(folder / "authority/ca.pem"),
    }


# Gives a rank the certificate of this name for it.
def _use(folder: Path, names: tuple[str, ...], rank: int) -> None:
    if names[rank]:
        os.environ.update(_variables(folder, names[rank]))


@pytest.fixture
def start(fresh_pool: Start, folder: Path) -> Start:
    def start(
        names: tuple[str, ...] = ("r0", "r1", "r2"), transport: str = "shm,tcp", **more: object
    ) -> Pool:
        variables = {"RINGDIST_TRANSPORT": transport, "RINGDIST_PEER_TIMEOUT": str(PEER_TIMEOUT)}
        enter = functools.partial(_use, folder, names)
        return fresh_pool(len(names), environment=variables, enter=enter, **more)

    return start


def _dump(pid: int, variables: dict[str, str]) -> str:
    words = ["-m", "torch_ringdist", "dump", str(pid)]
    done = preloaded.run(words, env={**os.environ, **variables}, timeout=60)
    return done.stdout + done.stderr


@pytest.mark.parametrize("transport", ["tcp", "shm,tcp"])
def test_ranks_work(start: Start, folder: Path, transport: str):
    pool = start(transport=transport)
    pool.run(_everything)
    pool.run(_subgroup)
    pid = pool.run(os.getpid)[0]
    assert "rank 0 of 3" in _dump(pid, _variables(folder, "r2"))
    assert "it answers only its own user" in _dump(pid, {})


def _dial(address: tuple[str, int], files: tuple[Path, Path], name: str) -> None:
    """Connects with a certificate and its key, and with this server name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(*files)
    with (
        contextlib.suppress(OSError),  # it is refused
        socket.create_connection(address, timeout=20) as plain,
        context.wrap_socket(plain, server_hostname=name) as secure,
    ):
        secure.recv(1)


def test_a_member_in_the_name_of_another_is_refused(start: Start, folder: Path):
    _expired(folder)
    _key("ca", str(folder / "other"))
    _make_member(folder, "foreign", "1", authority="other")
    pool = start(transport="tcp")
    pool.run(_everything)
    [address] = pool.run(_ports)[0]
    to, of_rank_1 = (dumps.find(pid)[0][-16:] for pid in pool.run(os.getpid)[:2])
    tries = [
        ("r2", "r2", "owner 'r2' for rank 2, which is not that of the process it claims to be"),
        ("past", "r0", "owner 'r0' for rank 0, which has expired"),
        ("foreign", "foreign", "owner 'foreign' for rank 1, which another authority has signed"),
    ]
    for certificate, key, text in tries:
        files = folder / f"{certificate}.pem", folder / f"{key}.key"

        def is_named(files: tuple[Path, Path] = files, text: str = text) -> bool:
            _dial(address, files, f"rd-{of_rank_1}-{to}")  # at most one line in a second
            return text in pool.log(0)

        assert poll(is_named), pool.log(0)
    pool.run(_everything)


def _subgroup() -> None:
    pair = dist.new_group([0, 2])
    if Ranks.rank != 1:
        dist.all_reduce(tensor := torch.ones(3), group=pair)
        assert tensor.tolist() == [2.0] * 3


@pytest.mark.hosts
def test_two_hosts(folder: Path, tmp_path: Path):
    _make_member(folder, "all", "any")
    script = tmp_path / "both.py"
    script.write_text(SCRIPT)
    variables = {**os.environ, "DONE": str(tmp_path / "done"), "OMP_NUM_THREADS": "1"}
    variables |= {"BETWEEN": "tcp", **_variables(folder, "all")}
    with net.Hosts(2) as hosts:
        variables["METHOD"] = f"ringdist://{hosts.address(0)}:46999"  # torchrun has a TCPStore
        assert torchrun(hosts, [str(script)], tmp_path, per_host=2, environment=variables) == 0
    assert len(list(tmp_path.glob("done*"))) == 4


# One certificate serves all, because newcomers get their ranks later.
def test_newcomers_find_a_store_of_members(
    folder: Path, fresh_pool: Start, monkeypatch: pytest.MonkeyPatch
):
    _make_member(folder, "all", "any")
    monkeypatch.setattr(test_join, "key_variables", lambda *_: _variables(folder, "all"))
    test_join.test_the_store_is_lost_and_newcomers_find_the_next(fresh_pool, folder, True)


# Members agree by signed messages, and ranks have new numbers, which no certificate has.
def test_a_rank_that_stopped_is_left_behind(start: Start):
    leave_the_sleeper_behind(start())


def _of_own_store(port: int) -> None:
    dist.init_process_group(
        "ringdist",
        init_method=f"ringdist://127.0.0.1:{port}",
        rank=Ranks.rank,
        world_size=3,
        timeout=datetime.timedelta(seconds=40),
    )
    _everything()


def test_ranks_find_each_other_in_a_store_of_ringdist(start: Start):
    start(init=False).run(_of_own_store, free_port())


def _begin() -> str:
    return caught(_all_reduce).text


def _all_reduce() -> None:
    init()
    dist.all_reduce(torch.ones(10))


@pytest.mark.parametrize(
    ("names", "part"),
    [
        (
            ("r0", "", "r2"),
            r"rank 1 has.*(authority|none)|rank \d has a key or certificate, rank 1",
        ),
        (("r0", "r2", "r2"), "owner 'r2' for rank 2, and this process is rank 1"),
        (("r0", "foreign", "r2"), "rank 1.*authority|rank [02].*authority"),
    ],
    ids=["none", "of another rank", "of another authority"],
)
def test_a_rank_without_its_certificate_is_named_everywhere(
    start: Start, folder: Path, names: tuple[str, ...], part: str
):
    _key("ca", str(folder / "other"))
    _make_member(folder, "foreign", "1", authority="other")
    pool = start(names, init=False)
    if "foreign" in names:
        pool.run(_trust_foreign, str(folder / "other/ca.pem"))
    for text in pool.run(_begin):
        assert re.search(part, text), text


def _trust_foreign(authority: str) -> None:
    if Ranks.rank == 1:
        os.environ["RINGDIST_CA"] = authority


def _texts(cases: dict[str, dict[str, str]]) -> dict[str, str]:
    out = {}
    before = dict(os.environ)
    for name, variables in cases.items():
        os.environ.update(variables)
        out[name] = caught(init, name).text
        for variable in variables:
            os.environ.pop(variable)
        os.environ.update(before)
    return out


def _expired(folder: Path) -> None:
    """Signs the request of r0 with an end in the past, or soon."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    key = serialization.load_pem_private_key((folder / "authority/ca.key").read_bytes(), None)
    model = x509.load_pem_x509_certificate((folder / "r0.pem").read_bytes())
    now = datetime.datetime.now(datetime.timezone.utc)
    for name, hours in (("past", -1), ("soon", 23)):
        builder = (
            x509.CertificateBuilder()
            .subject_name(model.subject)
            .issuer_name(model.issuer)
            .public_key(model.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=2))
            .not_valid_after(now + datetime.timedelta(hours=hours))
        )
        for extension in model.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        made = builder.sign(key, hashes.SHA256())
        (folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))


def test_each_bad_file_has_its_error(start: Start, folder: Path):
    _expired(folder)
    _key("ca", str(folder / "other"))
    (folder / "text.pem").write_text("no certificate\n")
    (folder / "open.key").write_bytes((folder / "r0.key").read_bytes())
    (folder / "open.key").chmod(0o640)
    (folder / "shared.pem").write_bytes((folder / "authority/ca.pem").read_bytes())
    (folder / "shared.pem").chmod(0o664)
    cases = {
        "key": {"RINGDIST_KEY_FILE": str(write_key(folder / "job.key"))},
        "some": {"RINGDIST_CERT_KEY": ""},
        "past": {"RINGDIST_CERT": str(folder / "past.pem")},
        "other": {"RINGDIST_CA": str(folder / "other/ca.pem")},
        "open": {"RINGDIST_CERT_KEY": str(folder / "open.key")},
        "unfit": {"RINGDIST_CERT_KEY": str(folder / "r1.key")},
        "text": {"RINGDIST_CERT": str(folder / "text.pem")},
        "absent": {"RINGDIST_CA": str(folder / "absent")},
        "shared": {"RINGDIST_CA": str(folder / "shared.pem")},
        "ucx": {"RINGDIST_TRANSPORT": "shm,ucx"},
        "rank": _variables(folder, "r2"),  # last, since its files are then those of the process
    }
    (errors,) = start(("r0",), init=False).run(_texts, cases)
    parts = {
        "key": "RINGDIST_KEY_FILE and RINGDIST_CERT, .* set one of the two",
        "some": "RINGDIST_CERT, RINGDIST_CERT_KEY and RINGDIST_CA; not set: RINGDIST_CERT_KEY",
        "past": "RINGDIST_CERT names .*/past.pem, .*owner 'r0' for rank 0, which has expired: let",
        "other": "RINGDIST_CERT names .*/r0.pem, .* which another authority has signed: let",
        "rank": "RINGDIST_CERT names .*/r2.pem, .*for rank 2, and this process is rank 0: give",
        "open": "RINGDIST_CERT_KEY names .*/open.key, which others may use, with mode 0640: run",
        "unfit": "RINGDIST_CERT_KEY names .*/r1.key, which is not the key of the certificate",
        "text": "RINGDIST_CERT names .*/text.pem, which has no certificate in PEM form: make",
        "absent": "RINGDIST_CA names .*/absent, which cannot be read .No such file",
        "shared": "RINGDIST_CA names .*/shared.pem, which others may change, with mode 0664: run",
        "ucx": "together with RINGDIST_CERT, because ucx does not encrypt: use shm,tcp",
    }
    for name, part in parts.items():
        assert re.search(part, errors[name]), (name, errors[name])


def test_an_end_within_a_day_is_warned_of(start: Start, folder: Path):
    _expired(folder)
    (folder / "soon.key").write_bytes((folder / "r0.key").read_bytes())
    (folder / "soon.key").chmod(0o600)
    pool = start(("soon",))
    assert re.search(r"RINGDIST_CERT names .*/soon.pem, which expires at 20", pool.log(0))


def test_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("authority/ca.key", "r0.key"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600, name
    _key("request", "--owner", "carol", str(folder / "c"))
    sign = ["key", "sign", "--ca", str(folder / "authority"), str(folder / "c.csr")]
    assert main(sign) == 1
    assert "names no ranks: give --ranks" in capsys.readouterr().err
    _key(*sign[1:], "--ranks", "0,2-4", "--days", "7")
    assert "a certificate of 'carol' for ranks 0, 2, 3, 4, until 2" in capsys.readouterr().out
    assert main([*sign, "--ranks", "1"]) == 1  # it exists
    assert "c.pem" in capsys.readouterr().err
    assert main(["key", "sign", "--ca", str(folder), str(folder / "c.csr")]) == 1
    assert "ca.pem" in capsys.readouterr().err
    assert main(["key", "request", "--owner", "", str(folder / "d")]) == 1
    assert "--owner must have 1 to 64" in capsys.readouterr().err
    assert main([*sign, "--ranks", "1", "--days", "4000"]) == 1
    assert "the authority itself expires in 36" in capsys.readouterr().err
    (folder / "e.csr").touch()  # then no private key stays without its request
    assert main(["key", "request", "--owner", "e", str(folder / "e")]) == 1
    assert "e.csr" in capsys.readouterr().err and not (folder / "e.key").exists()
    with pytest.raises(SystemExit):
        main(["key", "request", "--owner", "d", "--ranks", "1-", str(folder / "d")])
    assert "must be as 2, or 0,4-7, or any; got '1-'" in capsys.readouterr().err


def test_the_command_line_needs_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.delitem(sys.modules, "torch_ringdist._certificates", raising=False)
    monkeypatch.delattr(torch_ringdist, "_certificates", raising=False)
    assert main(["key", "ca", str(tmp_path / "authority")]) == 1
    assert "pip install 'torch-ringdist[certificates]'" in capsys.readouterr().err
