"""Hosts as network namespaces, each on a link of a given rate to a common switch.

A host has one interface, `eth0`, and its peer is a port of a bridge. The bridge has its own
namespace, so nothing is added to the machine's own network and no packet leaves the namespaces.

Two token buckets shape each link. One is at the host's end, like a network card that sends. The
other is on the switch's port, like a switch that sends to the host. With the second one, several
senders share the link of a common receiver.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

INTERFACE = "eth0"
SUBNET = ipaddress.ip_network("10.77.0.0/24")  # not visible outside of the namespaces
PREFIX = "rdnet"
RATE = re.compile(r"none|[1-9][0-9]*(\.[0-9]+)?[kmg]bit")
# A small burst lets few bytes pass unshaped after a pause. 10 Gb/s still reaches 9.5 with it.
SHAPER = "burst 128kb latency 20ms"
MAX_HOSTS = 32
CARRIER_LIMIT = 30.0  # seconds
KILL_LIMIT = 5.0  # seconds


class CommandError(RuntimeError):
    """The command ip or tc failed; the text has the command and its output."""


def call(*words: str) -> str:
    """Returns the output of a command of iproute2. Raises CommandError."""
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise CommandError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def why_not() -> str | None:
    """Returns the reason for which this process cannot create hosts, or None."""
    missing = [name for name in ("ip", "tc") if not shutil.which(name)]
    if missing:
        return f"no {' and no '.join(missing)} in PATH: apt-get install iproute2"
    if os.geteuid() != 0:
        return "network namespaces need root: sudo .venv/bin/python -m benchmarks.net"
    probe = f"{PREFIX}-{os.getpid()}-probe"
    try:
        call("ip", "netns", "add", probe)
        call("ip", "netns", "del", probe)
    except CommandError as error:
        return f"root, but not allowed to make network namespaces ({error})"
    return None


def unwind_on_signals() -> None:
    """Makes signals that end a process act like Ctrl-C, so that every `with` block is left in
    order."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    # A shell starts background commands with SIGINT ignored, and Python keeps that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Hosts:
    """`count` hosts on links of `rate`, such as "100mbit", "1gbit" or "none"; a context manager.

    `congestion` is TCP's congestion control (see tcp_available_congestion_control in tcp(7)). It is
    always set, because the machine's own choice changes results by more than 5 %.

        with Hosts(4, "1gbit") as hosts:
            subprocess.run([*hosts.enter(0), "ip", "address"])

    Leaving the context kills all processes on the hosts and removes the hosts, also after an
    exception. Entering it also removes hosts that killed runs have left. Not thread-safe.

    Raises ValueError for a wrong argument, CommandError for a failed command of the system.
    """

    def __init__(self, count: int, rate: str = "none", congestion: str = "cubic") -> None:
        if not 1 <= count <= MAX_HOSTS:
            raise ValueError(f"hosts: got {count}, expected 1 to {MAX_HOSTS}")
        if not RATE.fullmatch(rate):
            raise ValueError(f"rate: got {rate!r}, expected 'none' or a rate as 100mbit or 1gbit")
        self.count = count
        self.rate = rate
        self.congestion = congestion
        self._names = [f"{PREFIX}-{os.getpid()}-h{host}" for host in range(count)]
        self.switch = f"{PREFIX}-{os.getpid()}-switch"  # namespace with a port for each host

    def address(self, host: int) -> str:
        return str(SUBNET[host + 1])

    def enter(self, host: int) -> list[str]:
        """Returns the words that, before a command, make it run on a host.

        `ip netns exec` also mounts the host's /sys, in which programs look for interfaces.
        """
        return ["ip", "netns", "exec", self._names[host]]

    def __enter__(self) -> Hosts:
        remove_leftovers()
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _build(self) -> None:
        for name in (self.switch, *self._names):
            call("ip", "netns", "add", name)
        call("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
        call("ip", "-n", self.switch, "link", "set", "bridge", "addrgenmode", "none", "up")
        for host, name in enumerate(self._names):
            self._plug(host, name)
        self._wait_for_carrier()

    def _plug(self, host: int, name: str) -> None:
        port, switch = f"port{host}", self.switch
        ends = ("type", "veth", "peer", "name", port, "netns", switch)
        call("ip", "-n", name, "link", "add", INTERFACE, *ends)
        if self.rate != "none":
            for namespace, interface in ((name, INTERFACE), (switch, port)):
                queue = ("qdisc", "add", "dev", interface, "root", "tbf", "rate", self.rate)
                call("tc", "-n", namespace, *queue, *SHAPER.split())
        # No IPv6 addresses, because their neighbour discovery would count as traffic.
        master = ("master", "bridge", "addrgenmode", "none", "up")
        call("ip", "-n", switch, "link", "set", port, *master)
        call("ip", "-n", name, "link", "set", "lo", "up")
        address = f"{self.address(host)}/{SUBNET.prefixlen}"
        call("ip", "-n", name, "address", "add", address, "noprefixroute", "dev", INTERFACE)
        call("ip", "-n", name, "link", "set", INTERFACE, "addrgenmode", "none", "up")
        route = (str(SUBNET), "dev", INTERFACE, "congctl", self.congestion)
        call("ip", "-n", name, "route", "replace", *route, "src", self.address(host))

    def _wait_for_carrier(self) -> None:
        """Waits until the interfaces are usable. Libraries that look for them earlier do not find
        them."""
        end = time.monotonic() + CARRIER_LIMIT
        for name in self._names:
            while _state(name) != "UP":
                if time.monotonic() > end:
                    raise CommandError(f"{INTERFACE} of {name} has no carrier")
                time.sleep(0.02)

    def _remove(self) -> None:
        with _undisturbed():
            for name in (*self._names, self.switch):
                _remove(name)


def _state(namespace: str) -> str:
    [link] = json.loads(call("ip", "-n", namespace, "-j", "link", "show", INTERFACE))
    return link["operstate"]


def remove_leftovers() -> None:
    """Removes the hosts of runs that have no process any more."""
    for line in call("ip", "netns", "list").splitlines():
        name = line.split()[0]
        match = re.match(rf"{PREFIX}-([0-9]+)-", name)
        if match and not os.path.exists(f"/proc/{match[1]}"):
            _remove(name)


def _remove(namespace: str) -> None:
    """Kills the processes in the namespace and deletes it. A namespace lives as long as its last
    process."""
    with contextlib.suppress(CommandError):  # it may not exist
        end = time.monotonic() + KILL_LIMIT
        while pids := call("ip", "netns", "pids", namespace).split():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            if time.monotonic() > end:
                break
            time.sleep(0.02)
        call("ip", "netns", "del", namespace)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Delays a second Ctrl-C until the removal has finished."""
    signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
