"""The page of the mutation gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.mutations.mutants import CLASSES
from benchmarks.mutations.reasons import Reason, reason_for

Row = dict[str, Any]
OPERATIONS = ("delete", "duplicate", "earlier", "later", "weaken")


def write_page(page: Path, report: dict[str, Any], reasons: Sequence[Reason]) -> None:
    """Writes the page of a report."""
    rows: list[Row] = report["mutants"]
    files = [entry["file"] for entry in report["files"]]
    sections = [
        _head(report, rows, reasons),
        _by(rows, reasons, "class", [name for name, _ in CLASSES]),
        _by(rows, reasons, "operation", OPERATIONS),
        _by(rows, reasons, "file", files),
        _equivalent(rows, reasons),
        _missed(rows, reasons),
    ]
    page.write_text("\n".join(sections))


def _head(report: dict[str, Any], rows: Sequence[Row], reasons: Sequence[Reason]) -> str:
    raw, rest = _rates(rows, reasons)
    partial = [f["file"] for f in report["files"] if not f["all"]]
    note = f" Not all mutants of {', '.join(partial)} were tried." if partial else ""
    remark = f" {report['remark']}" if "remark" in report else ""
    command = " ".join(["python -m benchmarks.mutations --only", *report["only"]])
    return f"""# Mutation gate

Is a missing barrier noticed? Each synchronisation instruction of the bundled kernels is changed, at PTX level and
one at a time: deleted (a wait succeeds at once), duplicated, moved past the next instruction with an effect on
memory (earlier, later), or weakened (one more group may stay pending, a relaxed arrival, a fence of another space,
one arrival fewer). The mutant runs at the task's first small size (persistent kernels on one cluster, so that each
CTA takes several tiles) under the default schedules, the first of them with `--races`. *Verdict* means that it
would be judged wrong: a fault, a deadlock, another result, or a race that a schedule shows. *Hazard* means that a
rule is reported or a race inferred. A survivor is *equivalent* if `benchmarks/mutations/survivors.toml` says why,
and *missed* otherwise. Of the copies of a source line that the compiler made, the first and the last are mutated.

```text
{command}
```

Of {len(rows)} mutants of {len(report["files"])} kernels, **{raw:.1%}** are noticed; of those that are not
equivalent, **{rest:.1%}**. Without mutation every one of these kernels is clean under the same checks. Made on
{report["made"][:10]} in {report["seconds"] / 60:.0f} minutes.{note}{remark}

The second rate depends on the reasons. They were written after the survivors had been seen, many as patterns over a
class, and have not been reviewed by anybody else yet.
"""


def _rates(rows: Sequence[Row], reasons: Sequence[Reason]) -> tuple[float, float]:
    noticed = sum(row["noticed"] != "survived" for row in rows)
    equivalent = sum(bool(reason_for(row, reasons)) for row in rows if row["noticed"] == "survived")
    return noticed / max(len(rows), 1), noticed / max(len(rows) - equivalent, 1)


def _by(rows: Sequence[Row], reasons: Sequence[Reason], key: str, values: Iterable[str]) -> str:
    table = [f"## By {key}\n", f"| {key} | mutants | verdict | hazard | equivalent | missed | noticed of the rest |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for value in values:
        own = [row for row in rows if row[key] == value]
        if not own:
            continue
        count = Counter(row["noticed"] for row in own)
        equivalent = sum(bool(reason_for(row, reasons)) for row in own if row["noticed"] == "survived")
        missed = count["survived"] - equivalent
        rate = f"{_rates(own, reasons)[1]:.1%}" if len(own) > equivalent else "–"
        table.append(
            f"| {value} | {len(own)} | {count['verdict']} | {count['hazard']} | {equivalent} | {missed} | {rate} |"
        )
    return "\n".join([*table, ""])


def _equivalent(rows: Sequence[Row], reasons: Sequence[Reason]) -> str:
    survivors = [row for row in rows if row["noticed"] == "survived"]
    count = Counter(reason for row in survivors if (reason := reason_for(row, reasons)))
    lines = [f"| {reason} | {number} |" for reason, number in count.most_common()]
    return "\n".join(["## Called equivalent\n", "| because | mutants |", "|---|---|", *lines, ""])


def _missed(rows: Sequence[Row], reasons: Sequence[Reason]) -> str:
    missed = [row for row in rows if row["noticed"] == "survived" and not reason_for(row, reasons)]
    if not missed:
        return "## Missed\n\nNone.\n"
    lines = [f"| `{r['file']}` | {r['line']} | {r['operation']} | `{r['opcode']}` |" for r in missed]
    why = (
        "The lanes of a warp run together in the simulator, so that barriers of a warp are not checked. The\n"
        "`tcgen05.wait` below lies in a branch that these inputs do not take. A line may be that of a wrapper in the\n"
        "header set.\n"
    )
    head = ["## Missed\n", why, "| kernel | line | operation | instruction |", "|---|---|---|---|"]
    return "\n".join([*head, *lines, ""])
