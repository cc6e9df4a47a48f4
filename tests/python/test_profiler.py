"""PyTorch's tools: records of operations in profiles and traces, and the debug server."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import torch
import torch.distributed as dist
from support.calls import OPERATIONS, Call
from support.rank import new_group
from torch._C._distributed_c10d import _WorkerServer

import torch_ringdist

# Names of records that differ from the operation's name.
RECORDS = {
    "all_reduce_coalesced": ["all_reduce"],
    "all_gather_coalesced": ["all_gather"],
    "all_gather_into_tensor_coalesced": ["all_gather_into_tensor"],
    "reduce_scatter_tensor_coalesced": ["reduce_scatter_tensor"],
    "all_to_all_single": ["all_to_all"],
    "send_recv": ["send", "recv"],
}


def _records() -> tuple[dict[str, int], dict[str, int]]:
    call = Call(dist.group.WORLD, count=4)
    two = [torch.ones(4), torch.ones(8)]
    with torch.autograd.profiler.profile(record_shapes=True) as profile:
        works = [start(call) for start in OPERATIONS.values()]
        works.append(dist.all_reduce_coalesced(two, async_op=True))
        for work in works:
            work.wait()
    events = [e for e in profile.function_events if e.name.startswith("ringdist:")]
    assert all(e.is_async for e in events), events
    [send] = [e for e in events if e.name == "ringdist:send"]
    assert send.input_shapes == [[4]], send.input_shapes
    found = Counter(e.name.removeprefix("ringdist:") for e in events)
    wanted = Counter(record for name in OPERATIONS for record in RECORDS.get(name, [name]))
    wanted["all_reduce"] += 1  # for two tensors
    return found, wanted


@pytest.mark.parametrize("size", [2, 3])
def test_every_operation_leaves_a_record(pools, size: int):
    for found, wanted in pools(size).run(_records):
        assert found == wanted


def _any_source() -> list[str]:
    with torch.autograd.profiler.profile() as profile:
        if dist.get_rank() == 0:
            dist.recv(torch.empty(4))
        else:
            dist.send(torch.ones(4), 0)
    return [e.name for e in profile.function_events if e.name.startswith("ringdist:")]


def test_a_receive_from_anywhere_has_a_name_of_its_own(pools):
    assert pools(2).run(_any_source) == [["ringdist:recvAnySource"], ["ringdist:send"]]


def _codecs() -> list[str]:
    tensor = torch.randn(5000)
    with torch.autograd.profiler.profile() as profile:
        torch_ringdist.all_reduce(tensor, codec="int4")
        torch_ringdist.all_reduce(tensor, codec="topk:10>int8")
        torch_ringdist.all_gather_into_tensor(torch.empty(10_000), tensor, codec="bf16")
        torch_ringdist.all_reduce(tensor, codec="none")
    return [e.name for e in profile.function_events if e.name.startswith("ringdist:")]


def test_a_record_shows_the_codec(pools):
    records = ["all_reduce(int4)", "all_reduce(topk:10>int8)", "all_gather_into_tensor(bf16)"]
    wanted = [f"ringdist:{record}" for record in (*records, "all_reduce")]
    for found in pools(2).run(_codecs):
        assert sorted(found) == sorted(wanted)


def _served() -> str:
    server = _WorkerServer("127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{server.port}/handler/ringdist_dump"
        with urlopen(Request(url, method="POST"), timeout=20) as answer:
            return answer.read().decode()
    finally:
        server.shutdown()


def test_torchs_debug_server_has_the_state(pools):
    for text in pools(2).run(_served):
        assert text.startswith("ringdist: process ") and "group" in text


def _described(folder: str) -> list[dict[str, Any]]:
    world, rank = dist.get_world_size(), dist.get_rank()
    group = new_group()
    trace = Path(folder) / f"{rank}.json"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(1000, dtype=torch.bfloat16), group=group)
        dist.all_gather_into_tensor(torch.ones(world * 3), torch.ones(3), group=group)
        dist.barrier(group=group)
    profile.export_chrome_trace(str(trace))
    name = group.group_name
    dist.all_reduce(torch.ones(2), group=group)  # nothing is recorded
    dist.destroy_process_group(group)
    events = [
        one["args"]
        for one in json.loads(trace.read_text())["traceEvents"]
        if one.get("name") == "record_param_comms"
    ]
    assert all(one["Process Group Name"] == name for one in events), events
    return events


def test_traces_have_group_sizes_and_numbers(pools, tmp_path: Path):
    for rank, events in enumerate(pools(2).run(_described, str(tmp_path))):
        reduce, gather, barrier = events
        assert reduce["Collective name"] == "all_reduce" and reduce["dtype"] == "BFloat16"
        assert reduce["In msg nelems"] == reduce["Out msg nelems"] == 1000
        assert reduce["Group size"] == 2 and reduce["Rank"] == rank
        assert gather["Collective name"] == "all_gather_into_tensor"
        assert (gather["In msg nelems"], gather["Out msg nelems"]) == (3, 6)
        assert barrier["Collective name"] == "barrier"
        numbers = [one["Seq"] for one in events if "Seq" in one]  # torch 2.13 and newer
        assert numbers in ([1, 2, 3], [])
