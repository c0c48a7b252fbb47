"""The mutation gate: what it changes, that the page follows from the results, and a sample of it."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from benchmarks.mutations.ledger import Ledger
from benchmarks.mutations.mutants import REPEAT, class_of, mutants
from benchmarks.mutations.page import MISMATCHED, mutants_of, repeats_of, tally, write_page
from benchmarks.mutations.reasons import last_reading, read_missed, read_reasons, reason_for
from benchmarks.mutations.trying import Outcome, Subject, attempt, news, subject

from ptxbench.check import Finding
from ptxbench.cli.machine import make_evaluator
from ptxbench.simulator.ptx import Instruction, emit, parse
from ptxbench.solutions import solutions

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "results" / "cpu" / "mutations.json"
PAGE = ROOT / "docs" / "mutations.md"
GOAL = 0.95  # of the mutants that are not equivalent

TEXT = """.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p)
{
.reg .pred %p<4>;
.reg .b32 %r<8>;
mov.u32 %r1, 1024;
st.shared.u32 [%r1+64], %r1;
bar.sync 0;
ld.shared.u32 %r2, [%r1+64];
mbarrier.init.shared.b64 [%r1], 2;
add.u32 %r3, %r1, 8;
cp.async.bulk.wait_group 0;
{
.reg .pred done;
mbarrier.try_wait.parity.shared.b64 done, [%r3], 1;
@done bra END;
}
END:
ret;
}
"""


def opcodes(text: str) -> list[str]:
    module = parse(text)
    return [i.opcode for i in module.function("k").body or () if isinstance(i, Instruction)]


def test_classes():
    assert class_of("bar.warp.sync") == "warp barrier"
    assert class_of("barrier.cluster.arrive.release.aligned") == "cluster barrier"
    assert class_of("fence.proxy.async.shared::cta") == "proxy fence"
    assert class_of("fence.acq_rel.gpu") == "memory fence"
    assert class_of("tcgen05.wait::ld.sync.aligned") == "tcgen05 wait"
    assert class_of("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16") is None


def test_each_instruction_is_changed_in_every_way_that_applies():
    found = {(m.group, m.operation): emit(m.module) for m in mutants(parse(TEXT), "k")}
    assert set(found) == {
        *(("CTA barrier", operation) for operation in ("delete", REPEAT, "earlier", "later")),
        *(("mbarrier init", operation) for operation in ("delete", REPEAT, "earlier", "later", "weaken")),
        *(("copy group", operation) for operation in ("delete", REPEAT, "earlier", "weaken")),
        *(("mbarrier wait", operation) for operation in ("delete", REPEAT, "weaken")),
    }
    assert "bar.sync" not in opcodes(found["CTA barrier", "delete"])
    assert opcodes(found["CTA barrier", REPEAT]).count("bar.sync") == 2
    earlier = opcodes(found["CTA barrier", "earlier"])
    assert earlier.index("bar.sync") < earlier.index("st.shared.u32")
    later = opcodes(found["CTA barrier", "later"])
    assert later.index("bar.sync") > later.index("ld.shared.u32")
    assert "mbarrier.init.shared.b64 [%r1], 1;" in found["mbarrier init", "weaken"]
    assert "setp.eq.u32 done, 0, 0;" in found["mbarrier wait", "delete"]
    assert "try_wait.parity.shared.b64 done, [%r3], 0;" in found["mbarrier wait", "weaken"]


def test_nothing_moves_past_what_it_depends_on():
    text = TEXT.replace("bar.sync 0;", "bar.sync %r1;").replace("st.shared.u32 [%r1+64], %r1;\n", "")
    assert "earlier" not in {m.operation for m in mutants(parse(text), "k") if m.group == "CTA barrier"}


def test_what_commutes_is_passed_over():
    """Two initialisations, and memory that nobody else sees."""
    text = TEXT.replace("add.u32 %r3, %r1, 8;", "mbarrier.init.shared.b64 [%r1+8], 1;\nld.param.u64 %rd1, [p];")
    found = {m.operation: emit(m.module) for m in mutants(parse(text), "k") if m.place == 1}
    later = opcodes(found["later"])
    init = "mbarrier.init.shared.b64"
    assert later[-5:-1] == [init, "ld.param.u64", "cp.async.bulk.wait_group", init]


def test_what_arrives_is_no_repeat():
    text = TEXT.replace("bar.sync 0;", "mbarrier.arrive.shared.b64 _, [%r1];")
    operations = {(m.group, m.operation) for m in mutants(parse(text), "k")}
    assert ("mbarrier arrival", "duplicate") in operations
    assert ("mbarrier arrival", REPEAT) not in operations


@pytest.fixture(scope="module")
def ring() -> Subject:
    row = next(row for row in solutions() if row.file == "gemm/sm_90a/02_ring.cu")
    return subject(make_evaluator(threading.Event(), lambda stage: None), row)


def test_a_sample_is_noticed(ring):
    """Every deletion in one kernel."""
    survivors = []
    for mutant in ring.mutants():
        if mutant.operation != "delete":
            continue
        row = {
            "file": ring.file, "class": mutant.group, "operation": "delete", "opcode": mutant.opcode,
            "line": mutant.line, "place": mutant.place, "number": mutant.number, "noticed": "survived",
        }  # fmt: skip
        if attempt(ring, mutant).noticed == "survived" and not reason_for(row, read_reasons()):
            survivors.append(row)
    assert survivors == []


def test_a_ledger_goes_on_where_it_was(ring, tmp_path):
    first, second = ring.draw(2, seed=1)
    ledger = Ledger(tmp_path / "results.json")
    ledger.begin(ring, 2, seed=1)
    ledger.add(ring.file, first, Outcome("hazard", "kind"), 1.0)
    ledger.save()
    again = Ledger(tmp_path / "results.json")
    again.begin(ring, 2, seed=1)
    assert again.has(ring.file, first)
    assert not again.has(ring.file, second)
    assert again.report()["mutants"] == ledger.report()["mutants"]
    again.begin(ring, 2, seed=2)
    assert not again.has(ring.file, first)


def test_a_row_may_be_corrected(ring, tmp_path):
    (mutant,) = ring.draw(1, seed=1)
    ledger = Ledger(tmp_path / "results.json")
    ledger.begin(ring, 1, seed=1)
    ledger.add(ring.file, mutant, Outcome("survived"), 1.0)
    ledger.correct(ring.file, mutant, Outcome("hazard", "kind"))
    ledger.save()
    (row,) = Ledger(tmp_path / "results.json").report()["mutants"]
    assert (row["noticed"], row["kind"], row["number"]) == ("hazard", "kind", mutant.number)
    assert row["simulator"] == ledger.files[ring.file]["simulator"]


def test_only_more_findings_of_a_kind_than_are_known_count(ring):
    known = replace(ring, known={"a": 2})
    findings = [Finding(severity="rule", kind=kind, message="") for kind in "aab"]
    assert [finding.kind for finding in news(known, findings)] == ["b"]
    assert [finding.kind for finding in news(known, [*findings, findings[0]])] == ["a", "a", "b", "a"]


def test_a_draw_is_a_part_in_order(ring):
    numbers = [mutant.number for mutant in ring.draw(5, seed=3)]
    assert len(numbers) == 5
    assert numbers == sorted(numbers) == [mutant.number for mutant in ring.draw(5, seed=3)]
    assert len(ring.draw(10_000, seed=3)) == sum(1 for _ in ring.mutants())


def test_the_page_shows_the_results(tmp_path):
    report = json.loads(RESULTS.read_text())
    write_page(tmp_path / "page.md", report, read_reasons())
    assert (tmp_path / "page.md").read_text() == PAGE.read_text()


def test_every_reason_is_needed():
    rows = mutants_of(json.loads(RESULTS.read_text()))
    unused = [reason for reason in read_reasons() if not any(reason.covers(row) for row in rows)]
    assert unused == []


def test_what_is_missed_is_explained():
    rows = mutants_of(json.loads(RESULTS.read_text()))
    missed = [row for row in rows if row["noticed"] == "survived" and not reason_for(row, read_reasons())]
    assert [row for row in missed if not reason_for(row, read_missed())] == []


def test_the_last_reading_was_of_all_rows():
    reading = last_reading()
    assert reading.rows >= len(read_reasons())
    assert reading.reworded + reading.taken_back <= reading.rows


def test_the_goal_is_met():
    assert tally(mutants_of(json.loads(RESULTS.read_text())), read_reasons()).rest >= GOAL


def test_no_repeat_raises_a_false_alarm():
    assert {row["kind"] for row in repeats_of(json.loads(RESULTS.read_text()))} <= {"", *MISMATCHED}


@pytest.mark.slow
def test_the_results_repeat(ring):
    """All mutants of one kernel, against the committed results."""
    committed = {
        row["number"]: row["noticed"]
        for row in json.loads(RESULTS.read_text())["mutants"] if row["file"] == ring.file
    }  # fmt: skip
    assert {m.number: attempt(ring, m).noticed for m in ring.mutants()} == committed
