"""Reads the state of numpy's global random generator cheaply if it has not changed."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

# The result of numpy.random.get_state(), with the words of MT19937, numpy's default, as bytes.
State = Any

# Size of the C structure of MT19937: 624 words and their position.
_BYTES = 625 * 4
_HAS_GAUSS = 3  # index in a State


class NumpyRandom:
    """Caches the state, because numpy.random.get_state() takes 70 us to make an object of each
    word.

    It is called only if the generator's memory has changed.
    """

    def __init__(self) -> None:
        self._memory = b""
        self._state: State = None

    def read(self) -> State:
        """Returns the state, or None if numpy was not imported."""
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return None
        generator = numpy.random.mtrand._rand._bit_generator
        if type(generator) is not numpy.random.MT19937:
            return numpy.random.get_state(legacy=False)
        memory = ctypes.string_at(generator.ctypes.state_address, _BYTES)
        # A normal number that numpy keeps for the next call is used without a change of that
        # memory.
        if memory != self._memory or self._state[_HAS_GAUSS]:
            kind, words, *rest = numpy.random.get_state()
            self._memory, self._state = memory, (kind, words.tobytes(), *rest)
        return self._state

    @staticmethod
    def write(state: State) -> None:
        if state is None:
            return
        numpy = sys.modules["numpy"]
        if isinstance(state, tuple):
            kind, words, *rest = state
            state = (kind, numpy.frombuffer(words, numpy.uint32), *rest)
        numpy.random.set_state(state)
