"""The kernel in a model's reply, or a named reason why there is none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

from ptxbench.core import Record
from ptxbench.prompts.blocks import Block, bare_block, fenced_blocks, visible_text

_REFUSAL = re.compile(
    r"\b(?:I|we)(?:'m| am| are)? (?:sorry|can(?:no|')t|can not|won't|will not|unable|not able|must decline|decline)\b"
    r"|\bI (?:do not|don't) (?:feel comfortable|think I can)\b|\bas an AI\b",
    re.IGNORECASE,
)
_OPENING = 600
"""Characters at the start of a reply in which a refusal is looked for."""

_ASK = "Answer with the complete source file in one fenced block."


class ExtractionOutcome(StrEnum):
    """What a reply contains. `FENCED` and `UNFENCED` have a source to judge; the others say why there is none."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    TRUNCATED = "truncated"
    SPLIT = "split"
    PARTIAL_EDIT = "partial_edit"
    NO_LAUNCH = "no_launch"
    UNFINISHED_THOUGHT = "unfinished_thought"
    REFUSAL = "refusal"
    PROSE = "prose"
    EMPTY = "empty"


class Extraction(Record):
    """``source`` is the piece of the reply that comes nearest to a kernel, verbatim; empty if there is no code.

    ``note`` is one sentence, fit to be sent to the model; empty for a plain success.
    """

    outcome: ExtractionOutcome
    source: str = ""
    note: str = ""

    @property
    def usable(self) -> bool:
        """Whether ``source`` is a complete file that can be judged."""
        return self.outcome in (ExtractionOutcome.FENCED, ExtractionOutcome.UNFENCED)


def extract_kernel(reply: str) -> Extraction:
    """Takes the kernel out of ``reply``: of several blocks the last complete one that defines ``launch``.

    Thoughts in tags are skipped, so that code tried out in them is not taken for the answer. Never raises.
    """
    visible = visible_text(reply)
    blocks = [block for piece in visible.pieces for block in fenced_blocks(piece)]
    blocks = [block for block in blocks if block.text.strip()]
    found = _from_blocks(blocks) if blocks else _from_bare_text(visible.pieces)
    if found is not None:
        return found
    if visible.unfinished:
        note = "The reply ends inside its reasoning, before an answer was given. Think less, and give the file."
        return Extraction(outcome=ExtractionOutcome.UNFINISHED_THOUGHT, note=note)
    text = "".join(visible.pieces)
    if not text.strip():
        return Extraction(outcome=ExtractionOutcome.EMPTY, note=f"The reply is empty. {_ASK}")
    if _REFUSAL.search(text[:_OPENING]):
        return Extraction(outcome=ExtractionOutcome.REFUSAL, note=f"The reply declines the task. {_ASK}")
    return Extraction(outcome=ExtractionOutcome.PROSE, note=f"The reply has no code. {_ASK}")


def _from_blocks(blocks: Sequence[Block]) -> Extraction:
    whole = [block for block in blocks if block.defines_launch and not block.is_edit]
    closed = [block for block in whole if block.closed]
    if closed:
        return _complete(closed[-1], blocks)
    if whole:
        return _truncated(whole[-1])
    edits = [block for block in blocks if block.is_edit]
    if edits:
        note = f"The reply changes an earlier file instead of giving a complete one. {_ASK}"
        return Extraction(outcome=ExtractionOutcome.PARTIAL_EDIT, source=edits[-1].text, note=note)
    last = next((block for block in reversed(blocks) if block.defines_kernel), blocks[-1])
    if not blocks[-1].closed:
        return _truncated(last)
    note = f"No block of the reply defines the function launch. {_ASK}"
    return Extraction(outcome=ExtractionOutcome.NO_LAUNCH, source=last.text, note=note)


def _complete(block: Block, blocks: Sequence[Block]) -> Extraction:
    if not block.defines_kernel and any(other.defines_kernel for other in blocks):
        note = f"The reply spreads the file over several blocks: launch is in one and kernels are in another. {_ASK}"
        return Extraction(outcome=ExtractionOutcome.SPLIT, source=block.text, note=note)
    later = blocks[blocks.index(block) + 1 :]
    cut = any(not other.closed and (other.defines_launch or other.defines_kernel) for other in later)
    note = "A later block is cut off; the last complete one was taken." if cut else ""
    return Extraction(outcome=ExtractionOutcome.FENCED, source=block.text, note=note)


def _from_bare_text(pieces: Sequence[str]) -> Extraction | None:
    blocks = [block for piece in pieces if (block := bare_block(piece)) is not None]
    if not blocks:
        if any(Block(piece, True).is_edit for piece in pieces):
            note = f"The reply changes an earlier file instead of giving a complete one. {_ASK}"
            return Extraction(outcome=ExtractionOutcome.PARTIAL_EDIT, source=pieces[-1], note=note)
        return None
    block = blocks[-1]
    if not block.closed:
        return _truncated(block)
    note = "The code has no fence; what looks like code was taken."
    return Extraction(outcome=ExtractionOutcome.UNFENCED, source=block.text, note=note)


def _truncated(block: Block) -> Extraction:
    note = f"The reply is cut off inside the code. Write less before it, or a shorter file. {_ASK}"
    return Extraction(outcome=ExtractionOutcome.TRUNCATED, source=block.text, note=note)
