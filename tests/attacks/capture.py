"""Look for plain bytes in the packets of a job with a key.

    python -m tests.attacks.capture [--epochs 20] [--plain] [--torchrun]

Three ranks on three hosts, which are network namespaces, train examples/ddp_digits.py. They find
each other by env://, or by launchers of torchrun --rdzv-backend=ringdist. All packets between the
hosts are captured. The payload of each TCP connection must be records of TLS, and must contain
neither the host's name nor 16 bytes of the first parameters, which rank 0 sends to the others. Each
process must listen at the address of its host alone, at one port; rank 0 also at that of the store.
The first launcher of torchrun also has a TCPStore for groups of other backends, which nobody may
use. With nft, each host is behind a firewall that opens these ports only. The training must reach
0.97.

With --plain the job has no key, and the status is 0 if the check fails. It needs root and iproute2.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

from benchmarks.net import hosts as net
from examples.ddp_digits import Cnn
from tests.chaos.job_key import write_key
from tests.relay.relay import socket_in

RANKS = 3
PORT, STORE_PORT = 47000, 46999
LIMIT = 600.0  # seconds
ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "ddp_digits.py"
ACCURACY = 0.97
ETH_P_ALL, PACKET_OUTGOING, SO_RCVBUFFORCE = 3, 4, 33
MOST_RECORD = (1 << 14) + 256  # bytes (RFC 8446, section 5.2)
WINDOW, WINDOWS = 16, 24
FIREWALL = """
table inet ringdist {
  chain input {
    type filter hook input priority 0; policy drop;
    iifname lo accept
    ct state established accept
    meta l4proto { icmp, ipv6-icmp } accept
    tcp dport { %s } accept
  }
}
"""
HOST_NAME = "ringdist-captured-host"
RENAMED = ["unshare", "--uts", "sh", "-c", 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"']


class TcpStream:
    """One direction of a connection, put in order again."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._later: dict[int, bytes] = {}
        self._tail = b""
        self._record_left = 0
        self._header = b""
        self.bytes = 0
        self.problem = ""

    def add(self, sequence: int, payload: bytes, needles: list[bytes]) -> None:
        self._later[sequence] = max(self._later.get(sequence, b""), payload, key=len)
        while self._later:
            at = min(self._later, key=lambda one: (one - self._next + (1 << 31)) % (1 << 32))
            ahead = (at - self._next + (1 << 31)) % (1 << 32) - (1 << 31)
            if ahead > 0:
                return
            new = self._later.pop(at)[-ahead:] if ahead else self._later.pop(at)
            self._next = (self._next + len(new)) % (1 << 32)
            self._take(new, needles)

    def _take(self, new: bytes, needles: list[bytes]) -> None:
        self.bytes += len(new)
        text = self._tail + new
        if found := [one for one in needles if one in text]:
            self.problem = self.problem or f"it contains {found[0]!r}"
        self._tail = text[-64:]
        while new and not self.problem:
            if self._record_left:
                size = min(self._record_left, len(new))
                self._record_left -= size
                new = new[size:]
                continue
            size = 5 - len(self._header)
            self._header, new = self._header + new[:size], new[size:]
            if len(self._header) == 5:
                kind, version, self._record_left = struct.unpack(">BHH", self._header)
                if not (20 <= kind <= 23 and 0x301 <= version <= 0x303):
                    self.problem = f"no record of TLS begins with {self._header!r}"
                if self._record_left > MOST_RECORD:
                    self.problem = f"a record of TLS has {self._record_left} bytes"
                self._header = b""

    def is_whole(self) -> bool:
        return not self._later


class Capture:
    """Reads all packets that enter the switch, in a thread."""

    def __init__(self, hosts: net.Hosts, needles: list[bytes]) -> None:
        self._needles = needles
        self._sockets = []
        for host in range(RANKS):
            one = socket_in(
                hosts.switch, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)
            )
            one.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 256 << 20)
            one.bind((f"port{host}", 0))
            self._sockets.append(one)
        self.streams: dict[tuple[bytes, bytes], TcpStream] = {}
        self.packets = 0
        self.failure = ""
        self._threads = [
            threading.Thread(target=self._read, args=(one,), daemon=True) for one in self._sockets
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, one: socket.socket) -> None:
        one.settimeout(1.0)
        while True:
            try:
                frame, (_, _, kind, _, _) = one.recvfrom(1 << 17)
            except TimeoutError:
                continue
            except OSError:
                return
            try:
                if kind != PACKET_OUTGOING and frame[12:14] == b"\x08\x00" and frame[23] == 6:
                    self._take(frame[14:])
            except Exception as error:
                self.failure = repr(error)
                return

    def _take(self, packet: bytes) -> None:
        self.packets += 1
        header = (packet[0] & 15) * 4
        total = int.from_bytes(packet[2:4], "big") or len(packet)
        ports = packet[header : header + 4]
        sequence = int.from_bytes(packet[header + 4 : header + 8], "big")
        offset = header + (packet[header + 12] >> 4) * 4
        begins = packet[header + 13] & 2  # SYN
        key = (packet[12:16] + ports[:2], packet[16:20] + ports[2:])
        payload = packet[offset:total]
        if begins:
            self.streams[key] = TcpStream((sequence + 1) % (1 << 32))
        elif payload and key in self.streams:
            self.streams[key].add(sequence, payload, self._needles)

    def close(self) -> None:
        time.sleep(1.5)
        for one in self._sockets:
            one.close()

    def problems(self) -> list[str]:
        out = []
        pairs = {(source[:4], target[:4]) for source, target in self.streams}
        if len(pairs) != RANKS * (RANKS - 1):
            out.append(f"connections of {len(pairs)} pairs of hosts were captured")
        if self.failure:
            out.append(f"the capture ended: {self.failure}")
        for (source, target), stream in self.streams.items():
            name = f"{_text(source)} to {_text(target)}"
            if stream.problem:
                out.append(f"{name}: {stream.problem}")
            elif not stream.is_whole():
                out.append(f"{name}: packets were lost, so the capture is not complete")
        return out


def _text(end: bytes) -> str:
    return f"{socket.inet_ntoa(end[:4])}:{int.from_bytes(end[4:], 'big')}"


def needles() -> list[bytes]:
    """Returns what must not be in the packets."""
    torch.manual_seed(0)
    whole = torch.cat([one.detach().flatten() for one in Cnn().parameters()]).numpy().tobytes()
    step = len(whole) // WINDOWS // 4 * 4
    windows = [whole[at : at + WINDOW] for at in range(0, len(whole) - WINDOW, step)]
    return [*windows, HOST_NAME.encode()]


def listening(hosts: net.Hosts, host: int) -> list[str]:
    """Returns the addresses at which processes on a host listen."""
    text = subprocess.run(
        [*hosts.enter(host), "cat", "/proc/net/tcp", "/proc/net/tcp6"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    out = []
    for row in re.findall(r"^ *\d+: ([0-9A-F]+):([0-9A-F]{4}) [0-9A-F:]+ 0A ", text, re.MULTILINE):
        ip = socket.inet_ntoa(bytes.fromhex(row[0])[::-1]) if len(row[0]) == 8 else row[0]
        out.append(f"{ip}:{int(row[1], 16)}")
    return sorted(out)


def raise_firewall(hosts: net.Hosts) -> None:
    """Lets connections from other hosts pass to the ports of the job only."""
    if shutil.which("nft") is None:
        print("without a firewall: there is no nft")
        return
    for host in range(RANKS):
        ports = f"{PORT}, {STORE_PORT}" if host == 0 else f"{PORT}"
        rules = FIREWALL % ports
        subprocess.run([*hosts.enter(host), "nft", "-f", "-"], input=rules, text=True, check=True)
    dial = f"import socket; socket.create_connection(('{hosts.address(0)}', {PORT + 1}), 1)"
    words = [*hosts.enter(1), sys.executable, "-c", dial]  # without the firewall it is refused
    refused = subprocess.run(words, capture_output=True, text=True)
    assert "TimeoutError" in refused.stderr, f"the firewall does not work: {refused}"
    print("behind a firewall")


def train(
    hosts: net.Hosts, folder: Path, key: Path | None, epochs: int, torchrun: bool
) -> list[str]:
    """Trains on all hosts. Returns what is wrong."""
    ranks = []
    for rank in range(RANKS):
        variables = {
            **os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": "0",
            "RINGDIST_PORT": str(PORT), "RINGDIST_SOCKET_IFNAME": net.INTERFACE,
            "OMP_NUM_THREADS": "1", "MASTER_ADDR": hosts.address(0), "MASTER_PORT": str(STORE_PORT),
        }  # fmt: skip
        if key:
            variables["RINGDIST_KEY_FILE"] = str(key)
        if torchrun:
            words = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={RANKS}"]
            words += [
                "--rdzv-backend=ringdist",
                f"--rdzv-endpoint={hosts.address(0)}:{STORE_PORT}",
                "--rdzv-id=job",
            ]
            words += [f"--local-addr={hosts.address(rank)}"]
        else:
            words = [sys.executable]
        words += [str(EXAMPLE), f"--epochs={epochs}", "--no-progress"]
        words += [f"--checkpoint={folder / f'saved-{rank}.pt'}"]
        with (folder / f"rank-{rank}.log").open("w") as log:
            ranks.append(
                subprocess.Popen(
                    [*hosts.enter(rank), *RENAMED, HOST_NAME, *words],
                    env=variables,
                    stdout=log,
                    stderr=log,
                    cwd=folder,
                )
            )
    wrong, ports = [], [set() for _ in range(RANKS)]
    deadline = time.monotonic() + LIMIT
    while any(one.poll() is None for one in ranks) and time.monotonic() < deadline:
        for host in range(RANKS):
            ports[host].update(listening(hosts, host))
        time.sleep(0.5)
    for rank, one in enumerate(ranks):
        if one.poll() != 0:
            one.kill()
            one.wait()
            wrong.append(f"rank {rank}: {(folder / f'rank-{rank}.log').read_text()[-2000:]}")
        expected = {f"{hosts.address(rank)}:{PORT}"}
        if rank == 0:
            expected.add(f"{hosts.address(0)}:{STORE_PORT}")
        print(f"rank {rank} listened at {', '.join(sorted(ports[rank]))}")
        if torchrun and rank == 0:
            ports[rank] = {one for one in ports[rank] if not one.startswith("0000")}
        if key and ports[rank] != expected:
            wrong.append(f"rank {rank} must listen at {sorted(expected)} alone")
    logs = "".join((folder / f"rank-{rank}.log").read_text() for rank in range(RANKS))
    accuracy = re.findall(r"accuracy[^0-9]*([01]\.\d+)", logs)  # rank 0 may be anywhere
    print(f"accuracy {accuracy[-1] if accuracy else '?'}")
    if epochs >= 20 and not (accuracy and float(accuracy[-1]) >= ACCURACY):
        wrong.append("accuracy")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.attacks.capture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--plain", action="store_true", help="a job without a key must be noticed")
    parser.add_argument("--torchrun", action="store_true", help="start the ranks by torchrun")
    options = parser.parse_args()
    if reason := net.why_not():
        print(f"left out: {reason}")
        return 0
    net.unwind_on_signals()
    with tempfile.TemporaryDirectory(prefix="ringdist-capture-") as name, net.Hosts(RANKS) as hosts:
        folder = Path(name)
        key = None if options.plain else write_key(folder / "job.key")
        if key:  # without one, UCX opens ports of its own
            raise_firewall(hosts)
        capture = Capture(hosts, needles())
        wrong = train(hosts, folder, key, options.epochs, options.torchrun)
        capture.close()
    problems = capture.problems()
    total = sum(one.bytes for one in capture.streams.values())
    print(
        f"{len(capture.streams) // 2} connections, {capture.packets} packets with "
        f"{total / 1e6:.1f} MB: {len(problems)} of {len(capture.streams)} streams are not TLS"
    )
    for text in (*wrong, *problems[:10]):
        print(f"FAILED: {text}" if text in wrong or not options.plain else f"noticed: {text}")
    if options.plain:
        noticed = any("no record of TLS" in text for text in problems)
        return 0 if noticed and not wrong and not capture.failure else 1
    return 1 if wrong or problems else 0


if __name__ == "__main__":
    sys.exit(main())
