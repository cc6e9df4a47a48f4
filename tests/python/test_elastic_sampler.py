"""elastic.Sampler: each index is in one step of an epoch, however the number of ranks changes."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from torch_ringdist import ArgumentError, elastic


def _ranks(size: int, length: int, **settings) -> list[elastic.Sampler]:
    samplers = [elastic.Sampler(range(length), **settings) for _ in range(size)]
    for rank, sampler in enumerate(samplers):
        sampler.begin(rank, size)
    return samplers


def _step(samplers: list[elastic.Sampler]) -> tuple[list[list[int]], list[float]]:
    """Returns the ranks' next batches, as a DataLoader sees them, and weights. Then commits the
    step."""
    batches = [next(iter(sampler)) for sampler in samplers]
    weights = [sampler.weight() for sampler in samplers]
    for sampler in samplers:
        sampler.advance(1)
    return batches, weights


@pytest.mark.parametrize("settings", [{"global_batch": 7}, {"batch_size": 3}], ids=str)
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.check
def test_sizes_change_in_an_epoch(settings: dict[str, int], drop_last: bool):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    drawn = random.Random(seed)
    for _ in range(50):
        length = drawn.randrange(1, 100)
        samplers = _ranks(drawn.randrange(1, 10), length, drop_last=drop_last, **settings)
        seen: list[int] = []
        while samplers[0]._left:
            batches, weights = _step(samplers)
            taken = [
                at for batch, weight in zip(batches, weights, strict=True) for at in batch if weight
            ]
            seen += taken
            size = len(samplers)
            # Gradients are averages over ranks of the means over their batches.
            for batch, weight in zip(batches, weights, strict=True):
                assert batch
                assert weight in (0, pytest.approx(len(batch) * size / len(taken)))
            position, samplers = samplers[0].state_dict(), samplers
            if drawn.random() < 0.4:
                samplers = _ranks(drawn.randrange(1, 10), length, drop_last=drop_last, **settings)
                for sampler in samplers:
                    sampler.load_state_dict(position)
        assert len(set(seen)) == len(seen)
        if drop_last:
            assert length - len(seen) < 7 * 9
        else:
            assert sorted(seen) == list(range(length))


def test_a_loader_with_workers_goes_through_an_epoch():
    [first, second] = _ranks(2, 10, global_batch=4, shuffle=False)
    data = list(range(10))
    batches = [
        [batch.tolist() for batch in DataLoader(data, batch_sampler=one, num_workers=1)]
        for one in (first, second)
    ]
    assert batches == [[[0, 1], [4, 5], [8]], [[2, 3], [6, 7], [9]]]
    assert first.seen == 0  # nothing was committed


def test_epochs_have_orders_of_their_own_and_all_ranks_the_same():
    orders = []
    for epoch in (0, 1, 0):
        samplers = _ranks(3, 30, global_batch=6, seed=5)
        for sampler in samplers:
            sampler.set_epoch(epoch)
        order = [at for _ in range(5) for batch in _step(samplers)[0] for at in batch]
        assert sorted(order) == list(range(30))
        orders.append(order)
    assert orders[0] != orders[1]
    assert orders[0] == orders[2]
    generator = torch.Generator().manual_seed(5)  # like DistributedSampler
    assert orders[0] == torch.randperm(30, generator=generator).tolist()


def test_an_epoch_that_is_over_is_not_begun_again_by_mistake():
    [sampler] = _ranks(1, 4, global_batch=4)
    assert len(list(sampler)) == 1
    sampler.advance(1)
    with pytest.raises(ArgumentError, match="epoch 0 is over"):
        list(sampler)
    sampler.begin(0, 1)  # the function is entered again after the last step
    assert list(sampler) == []
    sampler.set_epoch(1)
    assert len(list(sampler)) == 1


@pytest.mark.parametrize("drop_last", [False, True])
def test_the_length_is_that_of_the_iteration(drop_last: bool):
    sampler = elastic.Sampler(range(23), global_batch=4, drop_last=drop_last)
    state = elastic.State(sampler=sampler, epoch=0)
    loader, steps = DataLoader(range(23), batch_sampler=sampler), 5 if drop_last else 6
    for first in (0, 2, steps):
        left = steps - first if first < steps else steps
        assert len(loader) == left
        for at, _ in enumerate(loader):
            assert len(loader) == left
            state.commit()
            if at == 1 and first == 0:  # the function is entered again after two steps
                sampler.begin(0, 1)
                break
        else:
            assert at + 1 == len(loader)  # also after the loop
            state.epoch += 1


@pytest.mark.parametrize("batches", [1, 2])
def test_steps_that_are_not_committed_are_warned_of(batches: int, recwarn: pytest.WarningsRecorder):
    sampler = elastic.Sampler(range(16), global_batch=2)
    state = elastic.State(sampler=sampler, epoch=0)
    for _ in range(2):
        for at, _ in enumerate(sampler):
            if at % 2:  # gradients of two batches
                state.commit(batches)
        state.epoch += 1
    sampler.set_epoch(2)
    messages = [str(one.message) for one in recwarn]
    said = "all batches of epoch 0 were handed out, but 4 of its steps were not committed"
    assert [said in one for one in messages] == ([True] if batches == 1 else [])


def test_it_follows_the_epoch_of_its_state():
    sampler = elastic.Sampler(range(4), global_batch=4)
    state = elastic.State(sampler=sampler, epoch=0)
    assert len(list(sampler)) == 1
    state.commit()
    state.epoch += 1
    assert (len(list(sampler)), sampler.epoch, sampler.seen) == (1, 1, 0)


def test_without_an_iteration_the_length_is_what_is_left():
    [sampler] = _ranks(1, 5, global_batch=2, shuffle=False)
    taken: list[int] = []
    while len(sampler):
        taken += sampler.indices()
        sampler.advance(1)
    assert taken == [0, 1, 2, 3, 4]


def test_more_ranks_than_indices():
    samplers = _ranks(4, 2, global_batch=8, shuffle=False)
    batches, weights = _step(samplers)
    assert (batches, weights) == ([[0], [1], [0], [0]], [2, 2, 0, 0])
    assert Counter(sampler._left for sampler in samplers) == {0: 4}


def test_a_step_larger_than_the_data_is_refused():
    [first, second] = _ranks(2, 5, batch_size=3, drop_last=True)
    for sampler in (first, second):
        with pytest.raises(ArgumentError, match="a step takes 6 indices, and the data has 5"):
            next(iter(sampler))
    [alone] = _ranks(1, 5, batch_size=3, drop_last=True)
    assert len(list(alone)) == 1


def _iterate_without_a_state() -> None:
    sampler = elastic.Sampler(range(8), global_batch=4)
    with pytest.raises(
        ArgumentError, match=r"the group has 2 ranks, .* must be an entry of the State"
    ):
        list(DataLoader(range(8), batch_sampler=sampler))
    sampler.begin(dist.get_rank(), 2)
    assert len(list(sampler)) == 2


def test_a_sampler_without_a_state_is_refused(pools):
    pools(2).run(_iterate_without_a_state)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({}, ArgumentError, "either global_batch"),
        ({"global_batch": 4, "batch_size": 1}, ArgumentError, "either global_batch"),
        ({"global_batch": 0}, ArgumentError, "global_batch must be 1 or more, got 0"),
        ({"batch_size": 2.0}, TypeError, "batch_size must be a whole number, got 2.0"),
        ({"batch_size": True}, TypeError, "batch_size must be a whole number"),
        ({"batch_size": 2, "seed": -1}, ArgumentError, "seed must be 0 or more"),
    ],
)
def test_bad_arguments(arguments: dict, error: type[Exception], said: str):
    with pytest.raises(error, match=said):
        elastic.Sampler(range(10), **arguments)


def test_bad_data():
    with pytest.raises(TypeError, match="must have a length, as a map-style data set"):
        elastic.Sampler(iter(range(3)), global_batch=2)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="data is empty"):
        elastic.Sampler([], global_batch=2)
    sampler = elastic.Sampler(range(3), global_batch=3)
    with pytest.raises(ArgumentError, match="4 indices were taken, of data that has 3"):
        sampler.load_state_dict({"epoch": 0, "seen": 4})
    sampler.advance(1)
    with pytest.raises(ArgumentError, match="epoch 0 of the sampler is over"):
        sampler.advance(1)
