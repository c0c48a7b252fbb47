"""The verifier at full size on a GPU: honest work passes with margin, dishonest work fails, and what it all costs.

Needs PyTorch, and the folder that ``verifier_bundle.py`` made, named by ``PTXBENCH_VERIFIER_BUNDLE``. Measured values
go to the file given by ``--results``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ptxbench.core import Task
from ptxbench.devices.cuda import ExecutorProcess, read_bundle
from ptxbench.devices.cuda.driver import Driver
from ptxbench.devices.cuda.verifier import Check, OutputStatistics, SharedBuffer, Verifier
from ptxbench.judge import MAX_FACTOR, RMS_FACTOR
from ptxbench.tasks import get_task

pytestmark = pytest.mark.gpu

BUNDLE = os.environ.get("PTXBENCH_VERIFIER_BUNDLE", "")
TASKS = ("gemm_n7168_k5120", "mha_fwd_d128", "mha_fwd_d128_causal", "mha_bwd_d128", "mha_bwd_d128_causal")
STEP_SECONDS = 60.0
MOST_MAKE_S = {"gemm_n7168_k5120": 1.0, "mha_fwd_d128": 2.0, "mha_bwd_d128": 3.0}
MOST_CHECK_S = 0.002


class Bench:
    """A verifier with one task open, and its buffers as tensors of this process."""

    def __init__(self, task: Task) -> None:
        self.torch: Any = pytest.importorskip("torch")
        self.task = task
        self.sizes = task.of_tier("core")[0].sizes
        self.verifier = Verifier(Path(BUNDLE) / "verifier.cubin")
        self.driver = Driver()
        (self.shared,) = self.verifier.open(task, self.sizes)
        self._mapped: list[int] = []
        self.tensors = {a.name: self._tensor(self.shared[a.name], a.name) for a in task.arguments}
        self.sample = 0

    def _tensor(self, buffer: SharedBuffer, name: str) -> Any:
        argument = next(a for a in self.task.arguments if a.name == name)
        start = self.driver.import_(bytes.fromhex(buffer.handle))
        self._mapped.append(start)
        words, dtype = ("<f4", self.torch.float32) if argument.dtype == "f32" else ("<i2", self.torch.bfloat16)

        class Memory:
            __cuda_array_interface__ = {
                "shape": argument.dims(self.sizes), "typestr": words, "data": (start + buffer.offset, False),
                "version": 3,
            }

        return self.torch.as_tensor(Memory(), device="cuda").view(dtype)

    def stage(self, base: int) -> float:
        self.sample += 1
        return self.verifier.stage(base, self.sample)

    def run(self, work: Any) -> set[str]:
        """Does the work on the shared inputs; the outputs that it wrote."""
        outputs = work({a.name: self.tensors[a.name] for a in self.task.inputs})
        for name, values in outputs.items():
            self.tensors[name].copy_(values)
        self.torch.cuda.synchronize()
        return set(outputs)

    def run_if_possible(self, name: str, work: Any) -> set[str]:
        """The same; nothing where a library refuses."""
        try:
            return self.run(work)
        except RuntimeError:
            if "(torch)" not in name:
                raise
            return set()

    def close(self) -> None:
        self.tensors.clear()
        for start in self._mapped:
            self.driver.close_import(start)
        self.verifier.close()
        self.torch.cuda.empty_cache()


@pytest.fixture(scope="module", params=TASKS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    if not BUNDLE:
        pytest.skip("PTXBENCH_VERIFIER_BUNDLE names no bundle (see verifier_bundle.py)")
    made = Bench(get_task(request.param))
    yield made
    made.close()


def works(task: Task) -> tuple[dict[str, Any], dict[str, Any]]:
    import verifier_kernels

    if task.operation == "gemm":
        return verifier_kernels.GEMM_HONEST, verifier_kernels.GEMM_WRONG
    direction = task.operation.removeprefix("attention_")
    return verifier_kernels.attention_work(task.options.get("causal", False), direction)


def right(found: OutputStatistics) -> bool:
    """The rule of `judge.Measurement`."""
    return found.rms <= RMS_FACTOR and found.worst_rms_block <= RMS_FACTOR and found.max <= MAX_FACTOR


def described(check: Check, written: set[str]) -> dict[str, Any]:
    return {
        name: {
            "rms": found.rms, "worst_rms_block": found.worst_rms_block, "max": found.max, "bad_share": found.bad_share,
            "first_bad": found.first_bad, "unwritten": found.unwritten, "not_finite": found.not_finite,
        }
        for name, found in check.outputs.items()
        if name in written
    }


def test_honest_passes_and_dishonest_fails(bench: Bench, results: Any) -> None:
    task, section = bench.task, f"verdicts {bench.task.name}"
    base = bench.verifier.make("normal", 20261129).base
    honest, wrong = works(task)
    failures: list[str] = []
    for name, work in {**honest, **wrong}.items():
        bench.stage(base)
        written = bench.run_if_possible(name, work)
        if not written:
            results.record(section, **{name: "the library refused"})
            continue
        check = bench.verifier.check(MAX_FACTOR)
        passed = all(right(check.outputs[output]) for output in written)
        results.record(section, **{name: {"passed": passed, "outputs": described(check, written)}})
        results.write()
        if passed != (name in honest):
            failures.append(name)
        assert check.changed_inputs == check.stray_writes == ()
    bench.verifier.drop(base)
    assert not failures


def test_honest_passes_on_every_distribution(bench: Bench, results: Any) -> None:
    honest, _ = works(bench.task)
    failures: list[str] = []
    for distribution in bench.task.distributions:
        made = bench.verifier.make(distribution, 7)
        for name, work in honest.items():
            bench.stage(made.base)
            written = bench.run_if_possible(name, work)
            if not written:
                continue
            check = bench.verifier.check(MAX_FACTOR)
            results.record(
                f"distributions {bench.task.name}", **{f"{distribution}, {name}": described(check, written)}
            )
            results.write()
            # Only what emulates the honest algorithm must pass anywhere; libraries have shortcuts of their own.
            if name in ("emulated", "cublas") and not all(right(check.outputs[output]) for output in written):
                failures.append(f"{distribution}, {name}")
        bench.verifier.drop(made.base)
    assert not failures


def test_known_good_kernels_pass(bench: Bench, results: Any) -> None:
    cases = {n: c for n, c in read_bundle(Path(BUNDLE)).items() if n.startswith(f"{bench.task.name}--")}
    imports = {name: {"handle": b.handle, "offset": b.offset} for name, b in bench.shared.items()}
    base = bench.verifier.make("normal", 11).base
    failures: list[str] = []
    for name, case in cases.items():
        with ExecutorProcess() as executor:
            executor.request(
                "load", STEP_SECONDS, artifact=case.artifact.model_dump(mode="json"),
                plan=case.plan.model_dump(mode="json"), imports=imports,
            )
            for _ in range(3):
                bench.stage(base)
                reply = executor.request("run", STEP_SECONDS, graph=False)
                assert reply.fault is None, (name, reply.fault)
                check = bench.verifier.check(MAX_FACTOR)
                if not all(right(found) for found in check.outputs.values()):
                    failures.append(name)
        results.record(f"known-good {bench.task.name}", **{name: described(check, set(check.outputs))})
        results.write()
    bench.verifier.drop(base)
    assert not failures


def test_what_nobody_wrote_is_found(bench: Bench) -> None:
    base = bench.verifier.make("normal", 3).base
    bench.stage(base)
    check = bench.verifier.check(MAX_FACTOR)
    for found in check.outputs.values():
        assert found.unwritten == found.bad > 0.9 * found.elements
        assert not right(found)
    first = bench.task.inputs[0].name
    bench.tensors[first].view(bench.torch.int16).flatten()[12345] ^= 1
    bench.torch.cuda.synchronize()
    assert bench.verifier.check(MAX_FACTOR).changed_inputs == (first,)
    bench.verifier.drop(base)


def test_what_it_costs(bench: Bench, results: Any) -> None:
    made = [bench.verifier.make("normal", seed) for seed in (1, 2, 3)]
    stages: list[float] = []
    checks: list[dict[str, float]] = []
    rounds: list[float] = []
    for number in range(10):
        stages.append(bench.stage(made[number % 3].base))
        started = time.perf_counter()
        checks.append(bench.verifier.check(MAX_FACTOR).seconds)
        rounds.append(time.perf_counter() - started)
    for one in made:
        bench.verifier.drop(one.base)
    whole = sum(made[-1].seconds.values())
    results.record(
        f"seconds {bench.task.name}", start=bench.verifier.start_s, make=[one.seconds for one in made],
        stage=stages, check=checks, check_with_reply=rounds,
    )
    results.write()
    assert whole < MOST_MAKE_S[bench.task.name.removesuffix("_causal")]
    if bench.task.operation == "gemm":
        assert sorted(sum(one.values()) for one in checks)[len(checks) // 2] < MOST_CHECK_S
