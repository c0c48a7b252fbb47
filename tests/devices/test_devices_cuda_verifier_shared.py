"""Shared buffers on the simulator: fresh inputs, poison, guards, and the statistics that `judge` puts limits to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from verifier_machine import SimulatedMachine, program

from ptxbench.core import Task
from ptxbench.devices.cuda.memory import GUARD_BYTES
from ptxbench.devices.cuda.verifier.arrays import download
from ptxbench.devices.cuda.verifier.base import BaseSet, make_base
from ptxbench.devices.cuda.verifier.records import OutputStatistics
from ptxbench.devices.cuda.verifier.shared import SharedBuffers
from ptxbench.judge import MAX_FACTOR, RMS_FACTOR, measure, poison
from ptxbench.native import Cache
from ptxbench.simulator import Program
from ptxbench.tasks import OPERATIONS, Problem, Tensor, get_task, numpy_dtype

SIZES = {
    "gemm_n7168_k5120": {"M": 256, "N": 256, "K": 64},
    "gemm_ragged": {"M": 200, "N": 136, "K": 40},
    "mha_fwd_d128": {"B": 1, "H": 2, "S": 256, "D": 128},
    "mha_bwd_d128_causal": {"B": 1, "H": 2, "S": 128, "D": 128},
}


@dataclass
class Bench:
    task: Task
    sizes: dict[str, int]
    machine: SimulatedMachine
    shared: SharedBuffers
    base: BaseSet

    def inputs(self) -> dict[str, Tensor]:
        """What a kernel would read."""
        return {a.name: download(self.machine, self.shared.buffers[a.name].array) for a in self.task.inputs}

    def problem(self) -> Problem:
        operation, inputs = OPERATIONS[self.task.operation], self.inputs()
        arguments = (self.task, self.sizes, inputs)
        workload = self.task.workloads[0].model_copy(update={"sizes": self.sizes})
        return Problem(
            self.task, workload, "normal", 1, inputs, operation.truth(*arguments), operation.honest(*arguments),
            operation.noise(*arguments),
        )

    def write(self, outputs: dict[str, Tensor]) -> None:
        for name, values in outputs.items():
            dtype = numpy_dtype(self.shared.buffers[name].argument.dtype)
            self.machine.write(self.shared.buffers[name].array.address, values.astype(dtype).tobytes())

    def statistics(self) -> dict[str, OutputStatistics]:
        return self.shared.statistics(MAX_FACTOR)


@pytest.fixture(scope="module")
def kernels(shared_cache: Cache) -> Program:
    return program(shared_cache)


@pytest.fixture(scope="module", params=SIZES)
def bench(kernels: Program, request: pytest.FixtureRequest) -> Bench:
    task, sizes = get_task(request.param), SIZES[request.param]
    machine = SimulatedMachine(kernels)
    base = make_base(machine, task, sizes, "normal", 5)
    return Bench(task, sizes, machine, SharedBuffers(machine, task, sizes), base)


@pytest.fixture
def gemm(kernels: Program) -> Iterator[Bench]:
    task, sizes = get_task("gemm_n7168_k5120"), SIZES["gemm_n7168_k5120"]
    machine = SimulatedMachine(kernels)
    shared = SharedBuffers(machine, task, sizes)
    base = make_base(machine, task, sizes, "normal", 5)
    shared.stage(base, 1)
    yield Bench(task, sizes, machine, shared, base)
    shared.close()
    base.close()
    assert machine.allocations == 0


def right(statistics: OutputStatistics) -> bool:
    """The rule of `judge.Measurement`."""
    return (
        statistics.rms <= RMS_FACTOR and statistics.worst_rms_block <= RMS_FACTOR and statistics.max <= MAX_FACTOR
    )


@pytest.mark.parametrize("sample", [0, 1, 2])
def test_an_honest_answer_is_right_and_measured_as_the_judge_does(bench: Bench, sample: int) -> None:
    bench.shared.stage(bench.base, sample)
    problem = bench.problem()
    bench.write(problem.honest)
    for name, found in bench.statistics().items():
        judged = measure(problem, name, problem.honest[name])
        assert right(found)
        assert judged.ok
        assert (found.bad, found.first_bad, found.unwritten, found.not_finite) == (0, (), 0, 0)
        # The honest algorithm sums in another order here than there, so that yardsticks differ a little.
        assert found.rms == pytest.approx(judged.rms, rel=0.05)
        assert found.rms_blocks is not None
        assert found.max_blocks is not None
        np.testing.assert_allclose(found.rms_blocks.ravel(), judged.rms_blocks.ravel(), rtol=0.1)
        np.testing.assert_allclose(found.max_blocks.ravel(), judged.max_blocks.ravel(), rtol=0.3)
        assert found.worst_rms_block == found.rms_blocks.max() == found.rms_blocks[found.worst_block]
        np.testing.assert_allclose(bench.shared.truth(name), problem.truth[name], rtol=1e-9, atol=1e-12)
    assert bench.shared.changed_inputs() == bench.shared.stray_writes() == ()


def test_errors_are_those_of_the_judge(bench: Bench) -> None:
    """With errors far larger than yardsticks differ."""
    bench.shared.stage(bench.base, 3)
    problem = bench.problem()
    rng = np.random.default_rng(0)
    wrong = {
        name: (values.astype(np.float64) * (1 + 0.1 * rng.standard_normal(values.shape))).astype(values.dtype)
        for name, values in problem.honest.items()
    }
    bench.write(wrong)
    for name, found in bench.statistics().items():
        judged = measure(problem, name, wrong[name])
        assert found.rms == pytest.approx(judged.rms, rel=0.05)
        assert found.max == pytest.approx(judged.max_blocks.max(), rel=0.3)
        assert found.bad_share == pytest.approx((judged.ratio > MAX_FACTOR).mean(), abs=0.02)
        assert found.rms_blocks is not None
        np.testing.assert_allclose(found.rms_blocks.ravel(), judged.rms_blocks.ravel(), rtol=0.1)
        assert not right(found)


def test_inputs_are_fresh_for_every_sample(bench: Bench) -> None:
    seen: list[dict[str, Tensor]] = []
    for sample in (0, 1, 2):
        bench.shared.stage(bench.base, sample)
        seen.append(bench.inputs())
    for name in seen[0]:
        assert (seen[0][name] == download(bench.machine, bench.base.inputs[name])).all()
        if name != "LSE":
            assert (seen[1][name] != seen[0][name]).mean() > 0.3
            assert (seen[1][name] != seen[2][name]).mean() > 0.3
        else:
            assert (seen[1][name] != seen[0][name]).mean() > 0.3 or (seen[2][name] != seen[0][name]).mean() > 0.3


def test_what_is_not_written_is_found(bench: Bench) -> None:
    bench.shared.stage(bench.base, 0)
    for name, found in bench.statistics().items():
        assert found.unwritten == found.bad > 0.9 * found.elements
        assert not right(found)
        output = download(bench.machine, bench.shared.buffers[name].array)
        assert (output.view(np.uint8) == poison(output.shape, output.dtype).view(np.uint8)).all()
    bench.shared.stage(bench.base, 1)
    problem = bench.problem()
    before = {a.name: download(bench.machine, bench.shared.buffers[a.name].array).copy() for a in bench.task.outputs}
    bench.write(problem.honest)
    name = bench.task.outputs[0].name
    left = problem.honest[name].copy()
    left.reshape(-1)[-40:] = before[name].reshape(-1)[-40:]
    bench.write({name: left})
    found = bench.statistics()[name]
    assert 36 <= found.unwritten == found.bad <= 40
    assert not right(found)


def test_one_element_is_found_wherever_it_lies(gemm: Bench) -> None:
    problem = gemm.problem()
    for index in ((0, 0), (255, 255), (130, 7)):
        wrong = problem.honest["C"].copy()
        wrong[index] = problem.truth["C"][index] + 0.05 * np.sqrt(np.mean(np.square(problem.truth["C"])))
        gemm.write({"C": wrong})
        found = gemm.statistics()["C"]
        assert (found.bad, found.first_bad) == (1, index)
        assert found.max > MAX_FACTOR
        assert found.bad_blocks is not None
        assert np.argwhere(found.bad_blocks).tolist() == [[0, index[0] // 128, index[1] // 128]]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_never_passes(gemm: Bench, value: float) -> None:
    wrong = gemm.problem().honest["C"].copy()
    wrong[200, 3] = value
    gemm.write({"C": wrong})
    found = gemm.statistics()["C"]
    assert (found.not_finite, found.bad, found.first_bad) == (1, 1, (200, 3))
    assert found.rms == found.worst_rms_block == found.max == np.inf
    assert found.worst_block == (0, 1, 0)


def test_a_changed_input_is_named(gemm: Bench) -> None:
    array = gemm.shared.buffers["B"].array
    value = gemm.machine.read(array.address + 2 * 777, 2)
    gemm.machine.write(array.address + 2 * 777, bytes([value[0] ^ 1, value[1]]))
    assert gemm.shared.changed_inputs() == ("B",)
    gemm.shared.stage(gemm.base, 1)
    assert gemm.shared.changed_inputs() == ()


@pytest.mark.parametrize("end", ["before", "behind", "at the end"])
def test_a_write_outside_is_named(gemm: Bench, end: str) -> None:
    buffer = gemm.shared.buffers["C"]
    places = {"before": buffer.start + 8, "behind": buffer.array.address + buffer.bytes, "at the end": buffer.end - 4}
    assert buffer.end - buffer.start >= buffer.bytes + 2 * GUARD_BYTES
    gemm.machine.write(places[end], b"\0\0\0\0")
    assert gemm.shared.stray_writes() == ("C",)
    gemm.shared.stage(gemm.base, 2)
    assert gemm.shared.stray_writes() == ()


def test_nothing_staged_is_said(gemm: Bench) -> None:
    gemm.shared.forget(gemm.base)
    with pytest.raises(ValueError, match="nothing was staged"):
        gemm.statistics()
    gemm.shared.stage(gemm.base, 0)


def test_other_places_lie_otherwise_and_are_given_back(kernels: Program) -> None:
    task, sizes = get_task("gemm_n7168_k5120"), SIZES["gemm_n7168_k5120"]
    machine = SimulatedMachine(kernels)
    places = [SharedBuffers(machine, task, sizes, skip=skip) for skip in (0, 1, 600)]
    starts = [[buffer.start for buffer in place.buffers.values()] for place in places]
    distances = {tuple(np.diff(place)) for place in starts}
    assert len(distances) == 3
    base = make_base(machine, task, sizes, "normal", 5)
    places[0].stage(base, 1)
    first = download(machine, places[0].buffers["A"].array)
    places[2].stage(base, 2)
    assert (download(machine, places[0].buffers["A"].array) == first).all()
    assert (download(machine, places[2].buffers["A"].array) != first).any()
    for place in places:
        place.forget(base)
        place.close()
    base.close()
    assert machine.allocations == 0
