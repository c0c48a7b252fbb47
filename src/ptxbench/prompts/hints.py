"""What a finding means and what to do about it, as rows: outcomes, compiler notes, patterns of wrong results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ptxbench.core import Outcome


class Meaning(NamedTuple):
    """An outcome in words, and the next step."""

    means: str
    then: str


MEANINGS: Mapping[Outcome, Meaning] = {
    Outcome.COMPILE_ERROR: Meaning(
        "The source does not compile.", "Repair the first error first; later ones often follow from it."
    ),
    Outcome.CONTRACT_ERROR: Meaning(
        "The file breaks the contract between launch and the judge; no kernel was run.",
        "Change launch or its declaration as said above; leave the kernels as they are.",
    ),
    Outcome.LAUNCH_ERROR: Meaning(
        "A launch is impossible, or a kernel made an impossible access.",
        "Check sizes of grid, block, shared memory and tensor maps, then the address arithmetic at the place named.",
    ),
    Outcome.TIMEOUT: Meaning(
        "The kernel or launch did not come to an end.",
        "For every barrier that is waited on, check its arrival count, the announced bytes, the parity at which each "
        "side begins, and that both sides make the same number of steps.",
    ),
    Outcome.INTEGRITY_VIOLATION: Meaning(
        "The kernel touched memory that it must not touch, or was faster than the hardware can be.",
        "Write to the outputs and the workspace only, and inside their bounds at every size.",
    ),
    Outcome.WRONG_RESULT: Meaning(
        "The kernel runs, but its results are wrong.", "Find the one cause that explains the pattern, and change that."
    ),
    Outcome.INSTRUCTION_MISSING: Meaning(
        "The results are right, but the target's matrix instruction did not do the work.",
        "Do all matrix products with it, on operands of the task's type, and let its results reach the outputs.",
    ),
    Outcome.CORRECT_UNTIMED: Meaning(
        "Right, and the target's instruction did the work. This device does not measure time.",
        "Make it faster: larger tiles, more copies in flight, products that overlap with everything else.",
    ),
    Outcome.PASSED: Meaning("Right, carried and timed.", ""),
}

Hints = Sequence[tuple[str, str]]

REMARK_HINTS: Hints = (
    (r"C7508|setmaxnreg' ignored", "give the kernel __launch_bounds__(threads, 1), so that setmaxnreg is kept"),
    (
        r"serialized|C751[0-8]",
        "the assembler waits after every product: keep accumulators untouched between the first product and the wait, "
        "unroll loops over them, leave no product in flight across a condition or a loop's back edge, save registers",
    ),
    (
        r"C7519|arrive is injected",
        "accumulators were written by ordinary code: let the first product overwrite them (scale-d false) instead",
    ),
    (r"spill", "registers spill to memory: use a smaller tile or give the consumers more registers"),
    (r"not supported on|requires \.target|requires PTX ISA", "this instruction does not exist on the target"),
    (r"is undefined", "declare it, or include the header that does"),
    (r"asm operand|constraint", "check operand constraints: r 32-bit, l 64-bit, h 16-bit, f float, n constant"),
)

PATTERN_HINTS: Hints = (
    (r"^never written", "no thread stores there: check grid, tile loop, store coordinates and early exits"),
    (r"^zero everywhere", "the accumulators never reach the output, or the operands in shared memory are zero"),
    (r"^the constant", "the same register or row is stored everywhere"),
    (r"^NaN|^infinity", "an overflow or an uninitialised value: check -inf minus -inf, division by zero, and waits"),
    (r"^rounded toward zero", "convert with round to nearest (__float2bfloat16_rn)"),
    (r"^scaled by", "a factor is missing or applied twice"),
    (r"^transposed", "rows and columns of the fragment, or the order of the operands, are exchanged"),
    (r"^shifted", "an offset in the load or store coordinates, or the fragment layout, is off by that much"),
    (r"are missing.*added twice", "a stage was read before its new data came, or overwritten before it had been read"),
    (r"are missing", "steps along the sum are skipped: check the loop bounds and the tail of the ring"),
    (r"added twice", "steps along the sum are repeated: check the loop bounds and the ring's parity"),
    (r"^small errors", "sums or operands have too few bits: accumulate in fp32, and round to the output type once"),
    (r"holds the result of", "the row offset of a head or batch is wrong"),
    (r"of every \d+", "part of each tile is wrong: check the swizzle and the mapping of lanes to rows or columns"),
    (r"rows of warp", "the rows of one warp are wrong: check the warp's index in its row offset"),
    (r"one whole", "a whole tile is wrong: check the tile's index and the blocks at the edges"),
)


def hint(rows: Hints, text: str) -> str:
    """What the first row that matches says; empty if none does."""
    return next((words for pattern, words in rows if re.search(pattern, text)), "")
