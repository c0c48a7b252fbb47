"""Fault operators: rows of ``faults.toml`` that change one place of a good kernel, and what the judge must say."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable
from importlib import resources
from typing import Literal, NamedTuple

from pydantic import model_validator

from ptxbench.adapt.data.families import Variant
from ptxbench.adapt.data.otherwise import REWRITES
from ptxbench.adapt.data.transform import CHANGES
from ptxbench.core import Outcome, Record, Verdict

HAZARD = "hazard"
"""The kind of a fault that leaves the result right under every schedule, but breaks a rule of the instruction set."""

SLOW = "slow"
"""The kind of a fault that only costs time; it needs a device that times."""

ORDERLY = ("descriptor", "sums", "epilogue", "softmax", "mask", "host")
"""Topics of faults that give the same wrong result in every legal order of events."""

OF_ORDER = "an order that nothing enforces"
"""What the judge says of a result that is right in one order and wrong in another."""

FAILURES: tuple[str, ...] = (
    *(outcome.value for outcome in Outcome if not outcome.accepted), HAZARD, SLOW,
)  # fmt: skip
"""Every kind of failure that a repair row can have."""


class Diagnosis(Record):
    """What a verdict must be: its kind of failure, and a pattern that its words must contain (ignoring case)."""

    outcome: str
    says: str

    @model_validator(mode="after")
    def _known(self) -> Diagnosis:
        if self.outcome not in FAILURES:
            raise ValueError(f"unknown kind of failure '{self.outcome}'")
        re.compile(self.says)
        return self


class Fault(Record):
    """One operator. See the head of ``faults.toml``; it applies to kernels with more than ``above_shared_bytes`` of
    shared memory; ``slow_ratio`` is the largest speed of a slow one, as a share of
    the good kernel's.
    """

    name: str
    topic: str
    find: str
    replace: str = ""
    apply: str = ""
    where: Literal["first", "last", "all"] = "first"
    above_shared_bytes: int = 0
    diagnoses: tuple[Diagnosis, ...]
    why: str
    fix: str
    slow_ratio: float = 0.7

    @model_validator(mode="after")
    def _known(self) -> Fault:
        if self.apply and self.apply not in CHANGES and self.apply not in REWRITES:
            raise ValueError(f"fault '{self.name}' applies an unknown change '{self.apply}'")
        re.compile(self.find, re.MULTILINE)
        return self

    def apply_to(self, variant: Variant) -> str | None:
        """The faulty source, or None where the fault does not apply to this kernel."""
        matches = list(re.finditer(self.find, variant.source, re.MULTILINE))
        if not matches or variant.plan.facts["shared_bytes"] <= self.above_shared_bytes:
            return None
        match self.where:
            case "first":
                chosen = matches[:1]
            case "last":
                chosen = matches[-1:]
            case "all":
                chosen = matches
        if self.apply in REWRITES:
            return REWRITES[self.apply](variant, chosen[0])
        source = variant.source
        for found in reversed(chosen):
            text = CHANGES[self.apply](found) if self.apply else found.expand(self.replace)
            source = source[: found.start()] + text + source[found.end() :]
        return source if source != variant.source else None

    @property
    def only_slow(self) -> bool:
        """Whether only a device that times can show it."""
        return all(diagnosis.outcome == SLOW for diagnosis in self.diagnoses)

    def confirmed(self, source: str, faulty: Verdict, good: Verdict) -> str:
        """The kind of failure that the verdict on the faulty ``source`` shows, if it is one of this fault's diagnoses.

        Empty otherwise. A fault that is wrong in every order must not be told as one of order.
        """
        words = verdict_words(faulty, source)
        for diagnosis in self.diagnoses:
            if not _kind_holds(diagnosis.outcome, faulty, good, self.slow_ratio):
                continue
            if diagnosis.outcome == Outcome.WRONG_RESULT and self.topic in ORDERLY and OF_ORDER in words:
                continue
            if re.search(diagnosis.says, words, re.IGNORECASE):
                return diagnosis.outcome
        return ""


class Change(NamedTuple):
    """The place of a fault: 1-based line in the faulty file, and the lines there in both files."""

    line: int
    faulty: tuple[str, ...]
    good: tuple[str, ...]


def load_faults() -> tuple[Fault, ...]:
    """The rows of ``faults.toml``; `ValueError` on a row that contradicts itself or a name used twice."""
    text = (resources.files("ptxbench.adapt.data") / "faults.toml").read_text(encoding="utf-8")
    faults = tuple(Fault.model_validate(row) for row in tomllib.loads(text)["faults"])
    names = [fault.name for fault in faults]
    if len(set(names)) < len(names):
        raise ValueError(f"faults.toml names a fault twice: {sorted(n for n in names if names.count(n) > 1)}")
    return faults


def verdict_words(verdict: Verdict, source: str) -> str:
    """Everything that a verdict says, with the lines of the source that it names: where diagnoses are looked for."""
    hazards: Iterable[str] = (f"{hazard.kind} {hazard.message}" for hazard in verdict.hazards)
    remarks: Iterable[str] = (remark.message for remark in verdict.remarks if remark.severity == "error")
    said = "\n".join((verdict.reason, verdict.advice, *verdict.detail, *hazards, *remarks))
    lines = source.splitlines()
    named = {int(number) for number in re.findall(r"\bline (\d+)", said)}
    named |= {verdict.source_line, *(hazard.source_line for hazard in verdict.hazards)}
    return "\n".join((said, *(lines[number - 1].strip() for number in sorted(named) if 1 <= number <= len(lines))))


def changes(faulty: str, good: str) -> list[Change]:
    """Where two sources differ, in the order of the faulty one's lines."""
    old, new = faulty.splitlines(), good.splitlines()
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    return [
        Change(i1 + 1, tuple(old[i1:i2]), tuple(new[j1:j2]))
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    ]


def _kind_holds(kind: str, faulty: Verdict, good: Verdict, slow_ratio: float) -> bool:
    if kind == HAZARD:
        return faulty.outcome.accepted and bool(faulty.hazards)
    if kind == SLOW:
        timed = faulty.timing is not None and good.timing is not None
        return timed and faulty.timing.speedup.high < slow_ratio * good.timing.speedup.low  # type: ignore[union-attr]
    return faulty.outcome.value == kind
