"""What ptxas accepts and what the simulator executes of the instruction forms; writes the page with the result.

``python tests/oracles/isa_probe.py docs/vocabulary.md``
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from isa_forms import Form, Section, module, read_sections

from ptxbench.build import find_toolchain
from ptxbench.core import Target, UnsupportedError
from ptxbench.simulator import load

_ERROR = re.compile(r"line (\d+); (?:error|fatal)\s*: (.*)")
_PLACE = re.compile(r"^\S+ at PTX line \d+: ")
_FIRST_LINE = 5
_MOST_REASONS = 3
_HEAD = """# Vocabulary

What the simulator does with the PTX instructions that ptxas accepts for the two targets. Written by
`python tests/oracles/isa_probe.py docs/vocabulary.md` from `tests/oracles/isa_forms.txt`, PTX ISA 9.0: every form of
a pattern is given to ptxas and to the simulator. `{a,b}` stands for each choice, `<a,b>` too, where the choice is also
the type `T` (`U`, `W`) of operands. The columns of the targets count the forms that ptxas accepts there; forms that
exist on neither are left out. A form that is not executed is refused with its name and line; nothing is ignored.

The fragments of `wmma` have a layout that the ISA leaves open; here they lie like those of `mma.sync`. What is refused:

| instructions | why |
| --- | --- |
| sparse products (`.sp` of `mma`, `wgmma`, `tcgen05`) | the judge has no task with structured sparsity |
| textures, surfaces, `istypep` | no task has them, and the recorder makes no such objects |
| `multimem` | multicast objects span several GPUs; a launch plan is for one |
| `tcgen05.mma.ashift`, `tcgen05.shift` | the ISA's words leave open which way rows move |
| `tcgen05.cp` with decompression, `cvt.rs` to four elements | the ISA shows where bits lie in figures only |
| `mma.sync.m8n8k4` on f16, `wmma` but for 16x16x16 on f16 and bf16 | shapes of older targets that `mma.sync` replaces |
| some `v*` video instructions | an H200 computes something else than the ISA says |
"""


@dataclass(frozen=True)
class Row:
    """One pattern: its forms, the numbers accepted by target, and the reasons of refusal with their numbers."""

    pattern: str
    forms: int
    accepted: dict[Target, int]
    refused: Counter[str]

    @property
    def executed(self) -> int:
        """How many of the forms the simulator executes."""
        return self.forms - self.refused.total()


def accepted(forms: Sequence[Form], target: Target) -> set[int]:
    """The numbers of the forms that ptxas accepts: what it complains about is left out until nothing is left."""
    ptxas = find_toolchain().cuda / "bin" / "ptxas"
    alive = list(range(len(forms)))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "forms.ptx")
        while alive:
            source.write_text(module([forms[number] for number in alive], target))
            command = [str(ptxas), "-O0", f"-arch={target}", str(source), "-o", str(source.with_suffix(".cubin"))]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
            wrong = {int(found[1]) - _FIRST_LINE for found in _ERROR.finditer(done.stderr)}
            assert wrong, done.stderr
            alive = [number for place, number in enumerate(alive) if place not in wrong]
    return set(alive)


def refusal(form: Form, target: Target) -> str:
    """Why the simulator refuses a form; empty if it executes it."""
    try:
        load(module([form], target), ["k0"])
    except UnsupportedError as error:
        assert form.opcode in str(error) or "variable" in str(error), f"{error} does not name {form.opcode}"
        return _PLACE.sub("", str(error))
    return ""


def rows(section: Section) -> Iterator[Row]:
    """One row a pattern."""
    forms = list(section.forms())
    found = {target: accepted(forms, target) for target in Target}
    for pattern in section.patterns:
        numbers = [number for number, form in enumerate(forms) if form.pattern == pattern]
        existing = [number for number in numbers if any(number in found[target] for target in Target)]
        refused: Counter[str] = Counter()
        for number in existing:
            target = next(target for target in Target if number in found[target])
            reason = refusal(forms[number], target)
            if reason:
                refused[reason] += 1
        counts = {target: len(found[target].intersection(numbers)) for target in Target}
        yield Row(pattern, len(existing), counts, refused)


def _line(row: Row) -> str:
    opcode, _, operands = (part.strip() for part in row.pattern.partition("|"))
    state = "executed"
    if row.refused:
        reasons = "; ".join(reason for reason, _ in row.refused.most_common(_MOST_REASONS))
        state = f"refused: {reasons}" if not row.executed else f"{row.executed} executed; refused: {reasons}"
    counts = [str(row.accepted[target] or "–") for target in Target]
    cells = [f"`{opcode}`", f"`{operands}`" if operands else "", *counts, state]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page(found: Sequence[tuple[Section, Sequence[Row]]]) -> str:
    """The page as Markdown."""
    total = sum(row.forms for _, lines in found for row in lines)
    executed = sum(row.executed for _, lines in found for row in lines)
    text = [_HEAD, f"{total} forms, {executed} executed, {total - executed} refused by name.\n"]
    for section, lines in found:
        text.append(f"## {section.title}\n")
        text.append(f"| instruction | operands | {' | '.join(Target)} | simulator |\n| --- | --- | --- | --- | --- |")
        text.extend(_line(row) for row in lines)
        text.append("")
    return "\n".join(text)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page([(section, list(rows(section))) for section in read_sections()]))
