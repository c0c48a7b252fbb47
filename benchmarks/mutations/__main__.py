"""Runs the mutation gate.

python -m benchmarks.mutations [--only TEXT ...] [--most N] [--seed N] [--budget SECONDS]
python -m benchmarks.mutations --oracles        kernels of Triton, where it is installed
python -m benchmarks.mutations --render         only the page, from the results that are there
python -m benchmarks.mutations --again N        tries N of the mutants once more and compares
python -m benchmarks.mutations --correct KIND ...
                                                tries once more, and corrects, those that were missed or noticed by KIND

A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import numpy as np

from benchmarks.mutations.ledger import Ledger, simulator_digest
from benchmarks.mutations.mutants import REPEAT
from benchmarks.mutations.page import write_page
from benchmarks.mutations.reasons import read_reasons, reason_for
from benchmarks.mutations.trying import Subject, attempt, subject
from ptxbench.cli.machine import make_evaluator
from ptxbench.solutions import solutions


def subjects(*, oracles: bool) -> Iterator[tuple[str, Callable[[], Subject]]]:
    """Names of kernels, and what makes each ready."""
    if oracles:
        from benchmarks.mutations.oracles import ORACLES, oracle  # needs Triton

        for name in ORACLES:
            yield name, lambda name=name: oracle(name)
        return
    evaluator = make_evaluator(threading.Event(), lambda stage: None)
    for row in solutions():
        yield row.file, lambda row=row: subject(evaluator, row)


def try_all(kernel: Subject, ledger: Ledger, most: int, seed: int, ends: float) -> int:
    """Tries the drawn mutants that were not tried yet, until the time ends; how many."""
    drawn = kernel.draw(most, seed)
    ledger.begin(kernel, len(drawn), seed)
    tried = 0
    for mutant in drawn:
        begin = time.monotonic()
        if begin > ends:
            break
        if not ledger.has(kernel.file, mutant):
            outcome = attempt(kernel, mutant)
            ledger.add(kernel.file, mutant, outcome, time.monotonic() - begin)
            tried += 1
    ledger.save()
    return tried


def try_again(kernel: Subject, ledger: Ledger, count: int, seed: int) -> list[str]:
    """Tries ``count`` mutants of the results once more; a line for each that has another outcome."""
    known = [mutant for mutant in kernel.mutants() if ledger.has(kernel.file, mutant)]
    chosen = np.random.default_rng(seed).choice(len(known), min(count, len(known)), replace=False)
    changed: list[str] = []
    for mutant in (known[index] for index in sorted(chosen)):
        row = ledger.rows[kernel.file, mutant.kernel, mutant.number]
        outcome = attempt(kernel, mutant)
        if (outcome.noticed, outcome.kind) != (row["noticed"], row["kind"]):
            changed.append(f"{kernel.file} {mutant.number}: {row['noticed']} {row['kind']}, now {outcome}")
    return changed


def correct(kernel: Subject, ledger: Ledger, kinds: Collection[str], ends: float) -> list[str]:
    """Tries mutants that were missed, or noticed by one of ``kinds``, once more, until time ends; a line for each."""
    reasons, lines = read_reasons(), list[str]()
    for mutant in kernel.mutants():
        row = ledger.rows.get((kernel.file, mutant.kernel, mutant.number))
        if row is None or time.monotonic() > ends or mutant.operation == REPEAT:
            continue
        if row["kind"] in kinds or (row["noticed"] == "survived" and not reason_for(row, reasons)):
            lines.append(f"{mutant.number}: {row['noticed']} {row['kind']}, now ")
            outcome = attempt(kernel, mutant)
            ledger.correct(kernel.file, mutant, outcome)
            lines[-1] += f"{outcome.noticed} {outcome.kind}"
    ledger.save()
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/cpu/mutations.json"))
    parser.add_argument("--page", type=Path, default=Path("docs/mutations.md"))
    parser.add_argument("--only", nargs="*", default=[""], help="parts of file names; without it, all kernels")
    parser.add_argument("--oracles", action="store_true", help="kernels of Triton instead of the bundled ones")
    parser.add_argument("--most", type=int, default=10_000, help="mutants to draw of a kernel that has more")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--budget", type=float, default=7200.0, help="seconds after which no mutant begins")
    parser.add_argument("--render", action="store_true", help="only write the page, from the results that are there")
    parser.add_argument("--again", type=int, metavar="N", help="try N mutants of each kernel once more")
    parser.add_argument("--correct", nargs="*", metavar="KIND", help="try those missed, or noticed by KIND, once more")
    options = parser.parse_args()
    ends = time.monotonic() + options.budget
    ledger = Ledger(options.out)
    if not options.render:
        print(f"simulator {simulator_digest()}", flush=True)
        for name, make in subjects(oracles=options.oracles):
            if not any(part in name for part in options.only) or time.monotonic() > ends:
                continue
            if options.again:
                changed = try_again(make(), ledger, options.again, options.seed) if name in ledger.files else []
                print(f"{name}: {len(changed)} changed", *changed, sep="\n  ", flush=True)
            elif options.correct is not None:
                lines = correct(make(), ledger, options.correct, ends) if name in ledger.files else []
                print(f"{name}: {len(lines)} tried again", *lines, sep="\n  ", flush=True)
            else:
                tried = try_all(make(), ledger, options.most, options.seed, ends)
                print(f"{name}: {tried} mutants", flush=True)
    if not options.again:
        write_page(options.page, ledger.report(), read_reasons())


if __name__ == "__main__":
    main()
