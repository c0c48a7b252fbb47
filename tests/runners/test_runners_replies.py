"""What a reply is worth before it is judged."""

from __future__ import annotations

import pytest
from runs_support import TASK, kernel

from ptxbench.core import ReplyOutcome, ReplyRecord
from ptxbench.runners.replies import read_reply

WHOLE = kernel("0.9")


@pytest.mark.parametrize(
    ("text", "stop", "outcome"),
    [
        (WHOLE, "stop", ReplyOutcome.EXTRACTED),
        (WHOLE, "max_tokens", ReplyOutcome.EXTRACTED),
        (WHOLE[:-20], "max_tokens", ReplyOutcome.TRUNCATED),
        ("I was thinking about", "max_tokens", ReplyOutcome.TRUNCATED),
        ("<think>I was thinking about", "stop", ReplyOutcome.TRUNCATED),
        ("", "stop", ReplyOutcome.EMPTY),
        ("  \n", "stop", ReplyOutcome.EMPTY),
        ("I'm sorry, but I can't help with that.", "stop", ReplyOutcome.REFUSAL),
        ("", "content_filter", ReplyOutcome.REFUSAL),
        ("", "model_length", ReplyOutcome.CONTEXT_OVERFLOW),
        ("Use wgmma.", "stop", ReplyOutcome.NO_CODE),
        ("```cuda\n__global__ void k() {}\n```", "stop", ReplyOutcome.NO_CODE),
        ("```diff\n--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n```", "stop", ReplyOutcome.INCOMPLETE),
    ],
)
def test_outcome(text: str, stop: str, outcome: ReplyOutcome) -> None:
    reading = read_reply(ReplyRecord(task=TASK, call=1, text=text, stop=stop))
    assert reading.outcome is outcome
    assert bool(reading.source) is (outcome is ReplyOutcome.EXTRACTED)
    if outcome is not ReplyOutcome.EXTRACTED:
        assert reading.note.endswith(".")


def test_an_error_is_told() -> None:
    reading = read_reply(ReplyRecord(task=TASK, call=1, error="no route to host"))
    assert (reading.outcome, reading.note) == (ReplyOutcome.PROVIDER_ERROR, "no route to host")
