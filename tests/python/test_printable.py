"""Texts of other processes do not control the terminal."""

from __future__ import annotations

import pytest

from torch_ringdist import ArgumentError, _dump
from torch_ringdist.__main__ import main
from torch_ringdist._printable import printable
from torch_ringdist.elastic import _log, _rank_state
from torch_ringdist.elastic._messages import MessageError

HOSTILE = "a\x1b]0;title\x07\x9b2J\u202e\ud800\nringdist: the job has finished"
ESCAPED = "a\\x1b]0;title\\x07\\x9b2J\\u202e\\ud800\n    ringdist: the job has finished"


@pytest.mark.parametrize("text", ["", "rank 1: 5 \u00b5s", "\u65e5\u672c \U0001f600 [x]"])
def test_plain_texts_stay_as_they_are(text: str):
    assert printable(text) == text


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]):
    assert printable(HOSTILE) == ESCAPED
    assert printable("a" * 5000) == "a" * 4096 + "..."
    assert len(printable("\n" * (1 << 20))) < 30_000
    _log.event("failed", HOSTILE)
    assert capsys.readouterr().err == f"ringdist: {ESCAPED}\n"


def test_errors_and_dumps_have_no_control_characters(monkeypatch, capsys):
    assert ESCAPED in _rank_state.difference({HOSTILE: "a"}, "this process", {}, "the group")
    assert ESCAPED in str(MessageError(1, "texts", HOSTILE))
    monkeypatch.setattr(_dump, "ask", lambda pid: ["a\x1b[2J\nb\tc\n"])
    assert main(["dump", "1"]) == 0
    assert capsys.readouterr().out == "a\\x1b[2J\nb\\tc\n"


def test_checksums_with_names_of_others_are_printable(monkeypatch: pytest.MonkeyPatch):
    states = [
        _rank_state.RankState(f"{rank:032x}", 1, True, False, False, 1, "0" * 32, f"{rank:032x}")
        for rank in range(2)
    ]
    hashes = [{HOSTILE: str(rank)} for rank in range(2)]
    monkeypatch.setattr(_rank_state._messages, "gather", lambda *_: hashes)
    monkeypatch.setattr(_rank_state.dist, "barrier", lambda: None)
    with pytest.raises(ArgumentError) as raised:
        _rank_state.raise_difference(_rank_state.GenerationView(tuple(states)), {})
    assert f"after step 1 {ESCAPED} is not the same on ranks [0] and ranks [1]" in str(raised.value)
