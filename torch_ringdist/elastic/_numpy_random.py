"""The state of numpy's global random generator, at little cost where nothing was drawn."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

# As numpy.random.get_state() has it; the words of MT19937, numpy's own choice, as bytes.
State = Any

# Of the C structure of MT19937: 624 words, and how many were used.
_BYTES = 625 * 4
_HAS_GAUSS = 3  # where in a State


class NumpyRandom:
    """numpy.random.get_state() takes 70 us, as it makes an object of each word. So it is asked only
    where the generator's memory is another one than before."""

    def __init__(self) -> None:
        self._memory = b""
        self._state: State = None

    def read(self) -> State:
        """None where numpy was not imported."""
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return None
        generator = numpy.random.mtrand._rand._bit_generator
        if type(generator) is not numpy.random.MT19937:
            return numpy.random.get_state(legacy=False)
        memory = ctypes.string_at(generator.ctypes.state_address, _BYTES)
        # A normal number that is kept for the next call goes without a change of that memory.
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
