"""What a reply is worth before anybody judges its kernel."""

from __future__ import annotations

from collections.abc import Mapping

from ptxbench.core import Record, ReplyOutcome, ReplyRecord
from ptxbench.prompts import ExtractionOutcome, extract_kernel

_EXTRACTED: Mapping[ExtractionOutcome, ReplyOutcome] = {
    ExtractionOutcome.FENCED: ReplyOutcome.EXTRACTED,
    ExtractionOutcome.UNFENCED: ReplyOutcome.EXTRACTED,
    ExtractionOutcome.TRUNCATED: ReplyOutcome.TRUNCATED,
    ExtractionOutcome.UNFINISHED_THOUGHT: ReplyOutcome.TRUNCATED,
    ExtractionOutcome.SPLIT: ReplyOutcome.INCOMPLETE,
    ExtractionOutcome.PARTIAL_EDIT: ReplyOutcome.INCOMPLETE,
    ExtractionOutcome.NO_LAUNCH: ReplyOutcome.NO_CODE,
    ExtractionOutcome.PROSE: ReplyOutcome.NO_CODE,
    ExtractionOutcome.REFUSAL: ReplyOutcome.REFUSAL,
    ExtractionOutcome.EMPTY: ReplyOutcome.EMPTY,
}

# What the provider says of the end tells more than a text that holds no kernel.
_STOPPED: Mapping[str, tuple[ReplyOutcome, str]] = {
    "model_length": (ReplyOutcome.CONTEXT_OVERFLOW, "The conversation is longer than the model's context."),
    "content_filter": (ReplyOutcome.REFUSAL, "The provider's filter withheld the reply."),
    "max_tokens": (
        ReplyOutcome.TRUNCATED,
        "The reply reached its limit of tokens before the file was complete. Think less, or write a shorter file.",
    ),
}


class Reading(Record):
    """What a reply contains: a source to judge if ``outcome`` is `EXTRACTED`, else a note fit to be sent back."""

    outcome: ReplyOutcome
    source: str = ""
    note: str = ""


def read_reply(reply: ReplyRecord) -> Reading:
    """The kernel in a reply, or what the reply is instead. A complete kernel counts however the reply ended."""
    if reply.error:
        return Reading(outcome=ReplyOutcome.PROVIDER_ERROR, note=reply.error)
    found = extract_kernel(reply.text)
    if found.usable:
        return Reading(outcome=ReplyOutcome.EXTRACTED, source=found.source, note=found.note)
    if reply.stop in _STOPPED:
        outcome, note = _STOPPED[reply.stop]
        return Reading(outcome=outcome, note=note)
    return Reading(outcome=_EXTRACTED[found.outcome], note=found.note)
