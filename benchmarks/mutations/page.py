"""The page of the mutation gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.mutations.mutants import CLASSES, OPERATIONS, REPEAT
from benchmarks.mutations.reasons import Reason, last_reading, read_missed, reason_for

Row = dict[str, Any]
MISMATCHED = ("deadlock", "illegal_instruction")
"""What a repeated barrier leads to whose other threads do not repeat it."""
_COLUMNS = "mutants | verdict | hazard | equivalent | missed | noticed | noticed of the rest"


@dataclass(frozen=True)
class Tally:
    """Numbers of mutants by what became of them."""

    verdict: int
    hazard: int
    equivalent: int
    missed: int

    @property
    def noticed(self) -> int:
        return self.verdict + self.hazard

    @property
    def all(self) -> int:
        return self.noticed + self.equivalent + self.missed

    @property
    def raw(self) -> float:
        """The noticed share of all."""
        return self.noticed / max(self.all, 1)

    @property
    def rest(self) -> float:
        """The noticed share of those that are not equivalent."""
        return self.noticed / max(self.noticed + self.missed, 1)


def tally(rows: Iterable[Row], reasons: Sequence[Reason]) -> Tally:
    """Counts rows."""
    kinds = Counter(
        row["noticed"] if row["noticed"] != "survived" else "equivalent" if reason_for(row, reasons) else "missed"
        for row in rows
    )
    return Tally(kinds["verdict"], kinds["hazard"], kinds["equivalent"], kinds["missed"])


def mutants_of(report: Row) -> list[Row]:
    """The rows that may be wrong kernels: all but the repeats."""
    return [row for row in report["mutants"] if row["operation"] != REPEAT]


def repeats_of(report: Row) -> list[Row]:
    """The rows of repeated waits, fences and initialisations."""
    return [row for row in report["mutants"] if row["operation"] == REPEAT]


def write_page(page: Path, report: Row, reasons: Sequence[Reason]) -> None:
    """Writes the page of a report."""
    rows = mutants_of(report)
    files = [entry["file"] for entry in report["files"]]
    sections = [
        _head(report, reasons),
        _by(rows, reasons, "class", [name for name, _ in CLASSES]),
        _by(rows, reasons, "operation", OPERATIONS),
        _by(rows, reasons, "file", files),
        _repeats(report),
        _runs(report),
        _equivalent(rows, reasons),
        _missed(rows, reasons),
    ]
    page.write_text("\n".join(sections))


def _head(report: Row, reasons: Sequence[Reason]) -> str:
    count, files, reading = tally(mutants_of(report), reasons), len(report["files"]), last_reading()
    foreign = sum(entry["file"].startswith("triton/") for entry in report["files"])
    return f"""# Mutation gate

Is a missing barrier noticed? Each synchronisation instruction of a kernel is changed, at PTX level and one at a time:
deleted (a wait succeeds at once), duplicated, moved past the next instruction with an effect that others can see
(earlier, later), or weakened (one more group may stay pending, a relaxed arrival, a fence of another space, one
arrival fewer). The mutant runs at the task's first small size (persistent kernels on one cluster, so that each CTA
takes several tiles) under the default schedules, the first of them with `--races`, on normal inputs. What survives
runs again: attention on large logits, and on a longer sequence with an odd number of blocks and more of them than
stages; persistent kernels as they are launched; Triton's with another number of steps or tiles. The table of runs
counts these. *Verdict* means that it would be judged wrong: a fault, a deadlock, another result, or a race that a
schedule shows. *Hazard* means that a rule is reported or a race inferred. A survivor is *equivalent* if
`benchmarks/mutations/survivors.toml` says why, and *missed* otherwise. Of the copies of a source line that the compiler
made, the first and the last are mutated.

```text
python -m benchmarks.mutations --most N --seed N
python -m benchmarks.mutations --most N --seed N --oracles
python -m benchmarks.mutations --correct unwaited_tensor_load tensor_memory_race    # the same with --oracles
```

Of {count.all} mutants of {files} kernels ({foreign} of them compiled by Triton), **{count.raw:.1%}** are noticed; of
those that are not equivalent, **{count.rest:.1%}**. Without mutation our own kernels are clean under every default
schedule, each with `--races`; of Triton's the table of runs lists what is reported, which then counts for no mutant.

The second rate depends on the reasons. They were written after the survivors had been seen. For each of them somebody
who had not written it tried to refute it: by a schedule or a size at which the mutant fails, or by the words of the
PTX ISA. What could be refuted counts as missed, until something notices it. Every row has had two readers. Of the
{reading.rows} rows at the last reading, {reading.reworded} got another reason and {reading.taken_back} were taken back.
"""


def _by(rows: Sequence[Row], reasons: Sequence[Reason], key: str, values: Iterable[str]) -> str:
    table = [f"## By {key}\n", f"| {key} | {_COLUMNS} |", "|---|---|---|---|---|---|---|---|"]
    for value in values:
        count = tally((row for row in rows if row[key] == value), reasons)
        if count.all:
            rest = f"{count.rest:.1%}" if count.noticed + count.missed else "–"
            counts = (count.all, count.verdict, count.hazard, count.equivalent, count.missed)
            cells = (value, *counts, f"{count.raw:.1%}", rest)
            table.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*table, ""])


def _repeats(report: Row) -> str:
    rows = repeats_of(report)
    silent = sum(row["noticed"] == "survived" for row in rows)
    stuck = sum(row["kind"] in MISMATCHED for row in rows)
    return f"""## Repeats

What only waits, orders or initialises can be repeated: that adds order and takes none away, so that a right kernel
stays right unless it is a barrier that other threads pass elsewhere. Of {len(rows)} repeats {silent} are silent,
{stuck} are such barriers and end in a deadlock or an illegal instruction, and {len(rows) - silent - stuck} raise a
false alarm. They are in none of the rates.
"""


def _runs(report: Row) -> str:
    again = Counter((row["file"], row["simulator"]) for row in report["mutants"] if "simulator" in row)
    lines = [
        f"| {entry['file']} | {entry['drawn']} of {entry['mutants']} | {entry['seed']} | `{entry['simulator']}`"
        f"{''.join(f', {n} again on `{on}`' for (file, on), n in again.items() if file == entry['file'])} "
        f"| {entry['inputs']} | {entry['seconds']:.0f} | {', '.join(entry['known'])} |"
        for entry in report["files"]
    ]
    head = "Of a kernel with many mutants some are drawn. The digest is that of the simulator's code."
    columns = (
        "kernel", "tried (with repeats)", "seed of the draw", "simulator", "kinds of inputs and sizes", "seconds",
        "reported as it is",
    )  # fmt: skip
    table = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return "\n".join([f"## Runs\n\n{head}\n", *table, *lines, ""])


def _equivalent(rows: Sequence[Row], reasons: Sequence[Reason]) -> str:
    survivors = [row for row in rows if row["noticed"] == "survived"]
    count = Counter(reason for row in survivors if (reason := reason_for(row, reasons)))
    lines = [f"| {reason} | {number} |" for reason, number in count.most_common()]
    return "\n".join(["## Called equivalent\n", "| because | mutants |", "|---|---|", *lines, ""])


def _missed(rows: Sequence[Row], reasons: Sequence[Reason]) -> str:
    missed = [row for row in rows if row["noticed"] == "survived" and not reason_for(row, reasons)]
    if not missed:
        return "## Missed\n\nNone.\n"
    lines = [
        f"| `{r['file']}` | {r['line']} | {r['operation']} | `{r['opcode']}` | {reason_for(r, read_missed())} |"
        for r in missed
    ]
    why = (
        "The PTX ISA leaves these open; the simulator, and hardware as far as is known, are kind to the kernel. The\n"
        "ISA does not say which lane `elect.sync` chooses; here it is the lowest, which is thread 0, and program\n"
        "order is enough. To choose another would find these, but stops CUTLASS, where thread 0 announces the bytes\n"
        "only if it is the elected lane as well: on `sm_90a` its kernels wait for ever then. A line may be that of\n"
        "a wrapper in the header set.\n"
    )
    head = ["## Missed\n", why, "| kernel | line | operation | instruction | because |", "|---|---|---|---|---|"]
    return "\n".join([*head, *lines, ""])
