from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from ptxbench.build import find_toolchain
from ptxbench.core import (
    Candidate,
    Outcome,
    SandboxError,
    Target,
    UnsupportedError,
    UsageError,
    Verdict,
    make_candidate,
)
from ptxbench.devices import SimulatorDevice
from ptxbench.evaluate import LocalEvaluator, StoringEvaluator, evaluate_all, read_folder
from ptxbench.native import Cache
from ptxbench.record import find_recorder
from ptxbench.store import VerdictStore

ROW = {"task": "gemm_n7168_k5120", "target": Target.SM_90A}


def candidate(source: str, origin: str = "kernel.cu") -> Candidate:
    return make_candidate(source, origin=origin, **ROW)


class Scripted:
    """An evaluator that does what the source says: sleep, find an unknown instruction, or lose its sandbox."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    def evaluate(self, candidate: Candidate) -> Verdict:
        self.begun.append(candidate.origin)
        word, _, seconds = candidate.source.partition(" ")
        time.sleep(float(seconds or 0))
        if word == "unknown":
            raise UnsupportedError("the simulator lacks foo.bar")
        if word == "lost":
            raise SandboxError("the sandbox is gone")
        return Verdict(outcome=Outcome.COMPILE_ERROR, reason="no", origin=candidate.origin, device={}, **ROW)


def test_answers_come_in_the_order_of_the_candidates() -> None:
    sources = ["right 0.3", "right 0.0", "unknown 0.0"]
    candidates = [candidate(source, f"{index}.cu") for index, source in enumerate(sources)]
    heard: list[str] = []

    def on_answer(answer: object) -> None:
        assert threading.current_thread() is threading.main_thread()
        heard.append(answer.origin)  # type: ignore[attr-defined]

    answers = evaluate_all(Scripted(), candidates, jobs=3, on_answer=on_answer)
    assert [answer.origin for answer in answers] == ["0.cu", "1.cu", "2.cu"]
    assert heard[-1] == "0.cu"
    assert [answer.verdict is None for answer in answers] == [False, False, True]
    assert answers[2].problem == "the simulator lacks foo.bar"


def test_an_infrastructure_error_ends_the_batch() -> None:
    evaluator = Scripted()
    candidates = [candidate("lost", "0.cu"), *(candidate("right 0.2", f"{index}.cu") for index in range(1, 20))]
    with pytest.raises(SandboxError, match="gone"):
        evaluate_all(evaluator, candidates, jobs=2, on_answer=lambda answer: None)
    assert len(evaluator.begun) < 5


@pytest.fixture(scope="module")
def evaluator(shared_cache: Cache) -> LocalEvaluator:
    toolchain = find_toolchain()
    return LocalEvaluator(SimulatorDevice(), toolchain, find_recorder(toolchain, shared_cache), shared_cache, None)


def test_a_stored_verdict_is_taken_under_the_candidates_own_name(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    store = VerdictStore(tmp_path)
    first = StoringEvaluator(evaluator, store, resume=True).evaluate(candidate("not C++", "one.cu"))
    again = StoringEvaluator(evaluator, store, resume=True).evaluate(candidate("not C++", "two.cu"))
    anew = StoringEvaluator(evaluator, store, resume=False).evaluate(candidate("not C++", "one.cu"))
    assert again == first.model_copy(update={"origin": "two.cu"})
    assert anew.seeds != first.seeds
    assert store.get(evaluator.key(candidate("not C++"))) == anew


def test_a_damaged_verdict_is_judged_again(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    store = VerdictStore(tmp_path)
    resuming = StoringEvaluator(evaluator, store, resume=True)
    first = resuming.evaluate(candidate("not C++"))
    path = store.path(evaluator.key(candidate("not C++")))
    path.write_bytes(path.read_bytes()[:30])
    second = resuming.evaluate(candidate("not C++"))
    assert second.seeds != first.seeds
    assert store.get(evaluator.key(candidate("not C++"))) == second


def test_reading_a_folder(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "b.cu").write_text("int b;")
    (tmp_path / "deep" / "a.cu").write_text("int a;")
    (tmp_path / "empty.cu").write_text("")
    (tmp_path / "notes.txt").write_text("no candidate")
    (tmp_path / "folder.cu").mkdir()
    candidates, unreadable = read_folder(tmp_path, **ROW)
    assert [c.origin for c in candidates] == ["b.cu", "deep/a.cu"]
    assert list(unreadable) == ["empty.cu"]
    assert "is empty" in unreadable["empty.cu"]


def test_a_folder_without_candidates(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no \.cu file"):
        read_folder(tmp_path, **ROW)
