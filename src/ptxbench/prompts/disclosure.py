"""What a model may be told: nothing that gives away held-out sizes, seeds, or how inputs are drawn.

A kernel could write what it learns about hidden sizes into its outputs, return codes or barriers, from where it would
come back in messages. So every free number in what was found at a hidden size is left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ptxbench.core import Task, Verdict, sizes_text
from ptxbench.tasks import get_task

HIDDEN = "a held-out size"
_MARK = "…"

_INPUTS = {
    "normal": "plain random inputs",
    "wide_range": "inputs of a wide dynamic range",
    "spikes": "inputs with many zeros and a few large values",
    "equal_rows": "inputs with constant rows",
    "large_logits": "inputs with large scores",
    "equal_logits": "inputs with equal scores",
}

# A number that stands by itself, or one in a phrase whose numbers come from a short fixed list and not from the sizes.
_NUMBER = re.compile(
    r"(?P<kept>of every \d+|\(one whole (?:8|16|32|64|128|256)x(?:8|16|32|64|128|256) tile\)|diagonal 128x128 blocks"
    r"|shifted by [+-]\d+|tiles of \d+ keys|the 16 rows of warp \d of|2\^x|1/√?D"
    r"|at (?:most|least) \d\d% |\d\d% is needed)"
    r"|(?<!\w)[-+]?(?:0x[0-9a-f]+|\d+(?:x\d+)+|\d+(?:,\d+)*(?:\.\d+)?(?:e[-+]?\d+)?)(?!\w)%?",
    re.IGNORECASE,
)


def inputs_in_words(distribution: str) -> str:
    """A distribution as a model may know it, such as ``inputs with large scores``."""
    return _INPUTS.get(distribution, f"{distribution.replace('_', ' ')} inputs")


def without_numbers(text: str, keep: Collection[str] = ()) -> str:
    """``text`` with every number replaced that could come from a size, whatever it counts, except those in ``keep``."""
    return _NUMBER.sub(lambda match: match[0] if match["kept"] or match[0] in keep else _MARK, text)


@dataclass(frozen=True)
class Disclosure:
    """What may be said about one verdict. ``limits`` are the numbers of the target's data sheet."""

    task: Task
    limits: frozenset[str]
    _recorded: bool
    _tried_hidden: bool

    @classmethod
    def of(cls, verdict: Verdict, stated: Task | None = None) -> Disclosure:
        """For the task as the prompt has ``stated`` it, or as the row of the verdict's task says.

        `UsageError` if there is no task of that name.
        """
        task = stated or get_task(verdict.task)
        return cls(
            task,
            frozenset(map(str, verdict.target.sheet.model_dump().values())),
            bool(verdict.artifact_digest) and not verdict.correctness.workloads,
            any(not _shown(task, run.sizes) for run in verdict.correctness.workloads),
        )

    def shows(self, sizes: Mapping[str, int]) -> bool:
        """Whether the prompt names these sizes."""
        return _shown(self.task, sizes)

    def at(self, sizes: Mapping[str, int]) -> str:
        """The sizes, or that they are held out."""
        return sizes_text(sizes) if self.shows(sizes) else HIDDEN

    def message(self, text: str) -> str:
        """A reason, advice or detail of the verdict, as far as it may be told.

        Where the text names sizes, they decide. A refusal of the recorder does not say at which sizes it came, and is
        treated as if they were hidden.
        """
        names = "|".join(map(re.escape, self.task.sizes))
        place = re.compile(rf"\b(?:{names})=\d+(?:, (?:{names})=\d+)*")
        hidden = self._recorded and place.search(text) is None
        for match in place.finditer(text):
            pairs = (pair.split("=") for pair in match[0].split(", "))
            hidden |= not self.shows({name: int(value) for name, value in pairs})
        if hidden:
            text = without_numbers(place.sub(HIDDEN, text), self.limits)
        return re.sub(r"\bon (\w+) inputs\b", lambda match: f"on {inputs_in_words(match[1])}", text)

    def finding(self, text: str) -> str:
        """A detail of a fault or a hazard's message, which does not say at which sizes it came.

        It has no numbers once hidden sizes were run.
        """
        return without_numbers(text) if self._tried_hidden else text


def _shown(task: Task, sizes: Mapping[str, int]) -> bool:
    return any(dict(sizes) == workload.sizes for workload in task.of_tier("core", "small"))
