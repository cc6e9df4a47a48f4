"""``torchrun --rdzv-backend=ringdist``: launchers and ranks meet in a store of ringdist's own.

It works as torchrun's c10d backend and takes the same options. There are three differences. The
store uses TLS with a key or a certificate. Launchers keep the state of their rendezvous as JSON, so
none unpickles a value of the store. Groups with the backend ringdist use the store, too.
"""

from __future__ import annotations

import json
import os
import pickle
import secrets
import socket
import weakref
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed.elastic.rendezvous import api, dynamic_rendezvous
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc, _RendezvousState
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from torch_ringdist._launch.addresses import is_here
from torch_ringdist._rendezvous import STORE_OF_RANKS, address_of_ranks
from torch_ringdist._served_store import open_or_serve, open_own

_PORT = 29400  # the default of torchrun's c10d backend
_NONE = b"none"  # value of the state before the first one
_NAME = "ringdist/name"  # key of a random name for the ranks of one rendezvous
_LISTS = ("wait_list", "redundancy_list")
_FIELDS = {"round", "complete", "deadline", "closed", "participants", "last_heartbeats", *_LISTS}


def create_handler(params: api.RendezvousParameters) -> api.RendezvousHandler:
    """Returns the handler of one launcher, and serves the store if the endpoint is this host.

    Args:
        params: the options of torchrun. `read_timeout` limits, in seconds, the time to connect to
            the store and to wait for a key; the default is 60. `is_host` decides whether this
            launcher serves it.

    Raises:
        RendezvousConnectionError: the store cannot be served or reached, or has another key.
        ValueError: an option is invalid. The key or certificate is bad (ArgumentError).
    """
    host, port = parse_rendezvous_endpoint(params.endpoint, default_port=_PORT)
    store = _open(host, port, params)
    backend = JsonBackend(store, params.run_id)
    handler = dynamic_rendezvous.create_handler(store, backend, params)
    weak = weakref.ref(handler)  # the store ends with the handler, so nothing else may hold either

    def join_and_tell() -> api.RendezvousInfo:
        alive = weak()
        assert alive is not None
        info = dynamic_rendezvous.DynamicRendezvousHandler.next_rendezvous(alive)
        if info.rank == 0:
            info.store.set(_NAME, secrets.token_hex(8))
        there = info.bootstrap_store_info
        assert there is not None
        master = f"{there.master_addr}:{there.master_port}"
        name = info.store.get(_NAME).decode()
        os.environ[STORE_OF_RANKS] = address_of_ranks(host, store.port, name, master)
        return info

    handler.next_rendezvous = join_and_tell  # type: ignore[method-assign]
    return handler


# Opens the store of the endpoint, and serves it unless another launcher of this host does.
def _open(host: str, port: int, params: api.RendezvousParameters) -> Any:
    seconds = params.get_as_int("read_timeout", 60)
    if seconds is None or seconds <= 0:
        raise ValueError(f"ringdist: --rdzv-conf: read_timeout must be above 0, got {seconds}")
    timeout = timedelta(seconds=seconds)
    asked = params.get_as_bool("is_host")
    try:
        if asked is not None:
            return open_own(host, port, serves=asked, timeout=timeout)
        return open_or_serve(host, port, _is_here(host), timeout)[0]
    except (OSError, dist.DistError) as error:
        raise api.RendezvousConnectionError(
            f"ringdist: --rdzv-endpoint={host}:{port}: {error}"
        ) from error


def _is_here(host: str) -> bool:
    try:
        return is_here(host)
    except OSError:  # no such name yet; a client repeats the look-up
        return host == socket.gethostname()


class JsonBackend(dynamic_rendezvous.RendezvousBackend):
    """Keeps the state of a rendezvous in a store, as JSON. Any thread.

    torch hands the state to a backend as a pickle, and takes it back as one. Here these pickles
    are made and read in one process.
    """

    def __init__(self, store: dist.Store, run_id: str) -> None:
        """Raises RendezvousConnectionError if the store fails, as do the other methods."""
        self._store, self._key = store, f"ringdist/torchrun/{run_id}"
        self._call(store.compare_set, self._key, "", _NONE.decode())

    @property
    def name(self) -> str:
        return "ringdist"

    def get_state(self) -> tuple[bytes, bytes] | None:
        """Returns the pickled state and its token, or None if there is no state yet.

        Raises:
            RendezvousStateError: the store has something else there.
        """
        return _pickled(self._call(self._store.get, self._key))

    def set_state(self, state: bytes, token: Any = None) -> tuple[bytes, bytes, bool] | None:
        """Replaces the state of `token` by `state`, a pickle of this process. Returns what
        get_state() would, and whether the state is the given one. Raises as get_state() does."""
        wanted = encode(pickle.loads(state))
        expected = (token or _NONE).decode()
        found = self._call(self._store.compare_set, self._key, expected, wanted)
        pair = _pickled(found)
        return None if pair is None else (*pair, found == wanted.encode())

    @staticmethod
    def _call(request: Callable[..., bytes], *arguments: str) -> bytes:
        try:
            return request(*arguments)
        except (ValueError, RuntimeError, TimeoutError) as error:
            raise api.RendezvousConnectionError(str(error)) from error


def _pickled(value: bytes) -> tuple[bytes, bytes] | None:
    return None if value == _NONE else (pickle.dumps(decode(value)), value)


def encode(state: _RendezvousState) -> str:
    """Returns the state as JSON, with nodes as lists of address, pid and number.

    Raises:
        RendezvousStateError: this torch has other fields in it.
    """
    if vars(state).keys() != _FIELDS:
        other = ", ".join(sorted(vars(state).keys() ^ _FIELDS))
        raise api.RendezvousStateError(
            f"ringdist: --rdzv-backend=ringdist does not know this torch ({other}): use c10d"
        )

    def listed(node: _NodeDesc) -> list[Any]:
        return [node.addr, node.pid, node.local_id]

    return json.dumps(
        {
            "round": state.round,
            "complete": state.complete,
            "deadline": state.deadline and state.deadline.isoformat(),
            "closed": state.closed,
            "participants": [[listed(node), rank] for node, rank in state.participants.items()],
            "last_heartbeats": [
                [listed(node), time.isoformat()] for node, time in state.last_heartbeats.items()
            ],
            **{name: sorted(map(listed, getattr(state, name))) for name in _LISTS},
        }
    )


def decode(value: bytes) -> _RendezvousState:
    """Returns the state of encode(). Raises RendezvousStateError if the value is something else."""
    state = _RendezvousState()
    try:
        given = json.loads(value)
        if given.keys() != _FIELDS:
            raise ValueError(f"the fields are {sorted(given)}")
        for name, kind in (("round", int), ("complete", bool), ("closed", bool)):
            setattr(state, name, _of(kind, given[name]))
        state.deadline = None if given["deadline"] is None else _time(given["deadline"])
        state.participants = {_node(node): _of(int, rank) for node, rank in given["participants"]}
        state.last_heartbeats = {
            _node(node): _time(time) for node, time in given["last_heartbeats"]
        }
        for name in _LISTS:
            setattr(state, name, set(map(_node, given[name])))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise api.RendezvousStateError(
            "ringdist: something else writes to the store of the rendezvous, or launchers have "
            f"different versions of torch-ringdist: {str(error)[:200]}"
        ) from error
    return state


def _node(given: Any) -> _NodeDesc:
    address, pid, number = given
    return _NodeDesc(_of(str, address), _of(int, pid), _of(int, number))


def _time(given: Any) -> datetime:
    time = datetime.fromisoformat(given)
    if time.tzinfo is None:
        raise ValueError("a time has no zone")
    return time


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {str(value)[:100]!r}")
    return value
