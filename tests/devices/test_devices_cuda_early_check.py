"""One check on a real GPU, before more is built on it. Measured values go to the file given by ``--results``.

It needs the folder that ``cuda_bundle.py`` made, named by ``PTXBENCH_EARLY_CHECK_BUNDLE``, and PyTorch as the judge.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from cuda_counting import WAYS
from cuda_support import Judge, Log, bit_equal_share, by_family, described, nvidia_smi, opcodes

from ptxbench.core import DeviceError, Fault, FaultKind, SiteCount
from ptxbench.devices.cuda import Case, ExecutorProcess, Reply, read_bundle, take_turns
from ptxbench.devices.cuda.counters import counters_library, site_counts
from ptxbench.devices.cuda.counting import count_plan
from ptxbench.devices.cuda.turns import timer_of
from ptxbench.native import Cache
from ptxbench.tasks import get_task

pytestmark = pytest.mark.gpu

BUNDLE = os.environ.get("PTXBENCH_EARLY_CHECK_BUNDLE", "")
CORE = "-core"
SOLUTIONS = tuple(sorted(place.name.removesuffix(CORE) for place in Path(BUNDLE).glob(f"*{CORE}"))) if BUNDLE else ()
CLUSTER_SOLUTION = "05_cluster_multicast"
EXACT_FAMILIES = ("wgmma", "tma_load", "tma_store", "stmatrix", "ldmatrix", "cluster_barrier", "f32_fma")
"""Executed a fixed number of times."""

EXACT_OPCODES = {"SYNCS.ARRIVE": "mbarrier.arrive", "USETMAXREG.DEALLOC": "setmaxnreg.dec"}
"""SASS and PTX of what runs as often on both, counted in lanes: hardware also counts the issue of an instruction whose
predicate is false everywhere, a PTX-level branch around it does not."""

RETRIED_OPCODES = {
    "SYNCS.EXCH": "mbarrier.init", "SYNCS.PHASECHK": "mbarrier.try_wait", "USETMAXREG.TRY_ALLOC": "setmaxnreg.inc",
}
"""Repeated on hardware until they succeed."""

COUNTING = Path(__file__).with_name("cuda_counting.py")
BASELINE = "ptxbench.devices.cuda.baseline"
STEP_SECONDS = 60.0
A_A_BLOCKS = 200
RACE_BLOCKS = 60


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    if not BUNDLE:
        pytest.skip("PTXBENCH_EARLY_CHECK_BUNDLE names no bundle (see cuda_bundle.py)")
    return read_bundle(Path(BUNDLE))


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


def done(reply: Reply) -> dict[str, Any]:
    assert reply.fault is None, reply.fault
    return reply.header


def load(executor: ExecutorProcess, case: Case, imports: dict[str, Any] | None = None) -> dict[str, Any]:
    return done(executor.request(
        "load", STEP_SECONDS, artifact=case.artifact.model_dump(mode="json"), plan=case.plan.model_dump(mode="json"),
        imports=imports or {},
    ))


def write_inputs(executor: ExecutorProcess, inputs: dict[str, bytes]) -> None:
    for name, content in inputs.items():
        done(executor.request("write", STEP_SECONDS, content, buffer=name))


def run(executor: ExecutorProcess, *, graph: bool) -> tuple[dict[str, Any], bytearray]:
    header = done(executor.request("run", STEP_SECONDS, graph=graph))
    return header, executor.request("read", STEP_SECONDS, buffer="C").blob


def count(case: Case, inputs: dict[str, bytes], shim: Path) -> tuple[tuple[SiteCount, ...], dict[str, Any]]:
    """Counts per site, and what they cost."""
    counted = count_plan(case.artifact, case.plan, inputs, shim, STEP_SECONDS)
    assert not isinstance(counted, Fault), counted
    rows = [row for kernel in counted for row in kernel.rows]
    cost = {
        name: [getattr(kernel, name) for kernel in counted] for name in ("process_s", "open_s", "count_s")
    }
    return site_counts(case.artifact, rows), {"records": len(rows), **cost}


def lanes(counts: Iterable[SiteCount], opcode: str) -> int:
    """Active lanes of every instruction whose opcode starts so."""
    return sum(site.threads for site in counts if site.opcode.startswith(opcode))


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def test_what_this_machine_is(log: Log) -> None:
    with ExecutorProcess() as executor:
        date = datetime.now(UTC).isoformat(timespec="seconds")
        log("machine", date=date, **executor.device, nvidia_smi=nvidia_smi())
        log("start", executor_s=executor.start_s, driver_and_context_s=executor.driver_start_s)
    with ExecutorProcess(BASELINE) as baseline:
        hello = baseline.request("hello", STEP_SECONDS).header
        log("start", baseline_s=baseline.start_s)
        packages = {name: version_of(name) for name in ("cuda-bindings", "nvidia-cuda-cupti", "numpy", "pydantic")}
        log("versions", **hello["versions"], **packages)


@pytest.mark.parametrize("tier", ["small", "large", "core"])
@pytest.mark.parametrize("solution", SOLUTIONS)
def test_a_recorded_plan_replays_and_is_right(
    solution: str, tier: str, cases: dict[str, Case], judge: Judge, log: Log
) -> None:
    case = cases[f"{solution}-{tier}"]
    sizes = case.plan.sizes
    inputs, truth = (case.inputs, judge.truth(sizes, case.inputs)) if case.inputs else judge.problem(sizes)
    with ExecutorProcess() as executor:
        loaded = load(executor, case)
        write_inputs(executor, inputs)
        plain, output = run(executor, graph=False)
        graph, again = run(executor, graph=True)
    found: dict[str, Any] = {
        **judge.errors(output, truth), "graph_equals_plain": output == again, "stray_writes": plain["stray_writes"],
        "changed_inputs": plain["changed_inputs"], "first_run_s": plain["seconds"], "graph_run_s": graph["seconds"],
        **loaded,
    }
    if case.outputs:
        found["bits_equal_simulator"] = bit_equal_share(output, case.outputs["C"])
    log("replay", **{case.name: found})
    assert found["rms_ratio"] < 1.05
    assert found["max_ratio"] < 2
    assert found["graph_equals_plain"]
    assert plain["stray_writes"] == plain["changed_inputs"] == graph["stray_writes"] == graph["changed_inputs"] == []


def test_memsets_symbols_forks_and_device_variables_replay(cases: dict[str, Case], judge: Judge, log: Log) -> None:
    case = cases["chain-small"]
    truth = judge.truth(case.plan.sizes, case.inputs)
    with ExecutorProcess() as executor:
        load(executor, case)
        write_inputs(executor, case.inputs)
        outputs = [run(executor, graph=graph)[1] for graph in (False, True, True)]
        done(executor.request("time", STEP_SECONDS, samples=2, graph=True))
        outputs.append(executor.request("read", STEP_SECONDS, buffer="C").blob)
    # The kernels count their calls in a device variable: equal outputs mean that it starts anew for every replay.
    found = {**judge.errors(outputs[0], truth), "repeats_equal": all(output == outputs[0] for output in outputs)}
    if case.outputs:
        found["bits_equal_simulator"] = bit_equal_share(outputs[0], case.outputs["C"])
    log("replay", **{case.name: found})
    assert found["rms_ratio"] < 1.05
    assert found["repeats_equal"]


@pytest.fixture(scope="module")
def shim() -> Path:
    return counters_library(Cache())


@pytest.mark.parametrize("name", [
    *(f"{solution}-small" for solution in SOLUTIONS), f"{CLUSTER_SOLUTION}-large", "chain-small",
])
def test_executed_counts_equal_the_simulators(
    name: str, cases: dict[str, Case], shim: Path, log: Log
) -> None:
    case = cases[name]
    assert case.observation is not None, "the bundle has no simulator counts for this case"
    simulated = case.observation.counts
    counts, cost = count(case, case.inputs, shim)
    device, simulator = by_family(counts, sass=True), by_family(simulated, sass=False)
    pairs = EXACT_OPCODES | RETRIED_OPCODES
    parts = {sass: [lanes(counts, sass), lanes(simulated, ptx)] for sass, ptx in pairs.items()}
    found: dict[str, Any] = {
        **cost, "device": device, "simulator": simulator, "lanes_device_simulator": parts,
        "warp_instructions": sum(site.executed for site in counts),
        "issued_without_any_true_predicate": sorted({site.opcode for site in counts if site.threads == 0}),
    }
    if "wgmma" in device:
        sizes = case.plan.sizes
        found["wgmma_share"] = device["wgmma"]["flops"] / (2 * sizes["M"] * sizes["N"] * sizes["K"])
    if name == f"{CLUSTER_SOLUTION}-small":
        found["opcodes"] = opcodes(counts)
    log("counts", **{case.name: found})
    for family in EXACT_FAMILIES:
        for unit in ("executed", "threads"):
            assert device.get(family, {}).get(unit, 0) == simulator.get(family, {}).get(unit, 0), (family, unit)
    assert all(parts[sass][0] == parts[sass][1] for sass in EXACT_OPCODES), parts
    assert all(parts[sass][0] >= parts[sass][1] for sass in RETRIED_OPCODES), parts


def test_the_core_shape_is_counted_exactly(cases: dict[str, Case], judge: Judge, shim: Path, log: Log) -> None:
    case = cases[f"{CLUSTER_SOLUTION}{CORE}"]
    sizes = case.plan.sizes
    counts, cost = count(case, judge.problem(sizes)[0], shim)
    share = by_family(counts, sass=True)["wgmma"]["flops"] / (2 * sizes["M"] * sizes["N"] * sizes["K"])
    log("counts", **{case.name: {"wgmma_share": share, **cost}})
    assert share == 1


@pytest.mark.parametrize(("name", "way", "node"), [
    *((f"{CLUSTER_SOLUTION}-small", way, 0) for way in WAYS),
    ("chain-small", "plan", 0), ("chain-small", "plan_graph", 0),
    *(("chain-small", way, 4) for way in ("kernel", "kernel_graph")),
])
def test_ways_of_counting(name: str, way: str, node: int, shim: Path, log: Log) -> None:
    command = [sys.executable, str(COUNTING), str(Path(BUNDLE) / name), way, str(node), str(shim)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=STEP_SECONDS, check=False)
    if finished.returncode == 0:
        found: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    else:
        found = {"what": WAYS[way], "failed": finished.stderr.strip().splitlines()[-1:]}
    log("counting", **{f"{name} {way}": found})
    if way == "kernel":  # the only way that is relied on
        assert "failed" not in found, finished.stderr
        assert all(found["ranges"])


def test_two_processes_share_inputs_and_take_turns(cases: dict[str, Case], judge: Judge, log: Log) -> None:
    case = cases[f"{CLUSTER_SOLUTION}{CORE}"]
    inputs, truth = judge.problem(case.plan.sizes)
    with ExecutorProcess() as first, ExecutorProcess() as second:
        load(first, case)
        write_inputs(first, inputs)
        shared = {name: done(first.request("export", STEP_SECONDS, buffer=name)) for name in inputs}
        load(second, case, imports=shared)
        outputs = [run(executor, graph=True)[1] for executor in (first, second)]
        log("sharing", **judge.errors(outputs[1], truth), outputs_equal=outputs[0] == outputs[1])
        assert outputs[0] == outputs[1]
        ratios: list[dict[str, Any]] = []
        for graph in (True, False):
            turns = take_turns(timer_of(first, graph=graph), timer_of(second, graph=graph), A_A_BLOCKS)
            ratios.append(described(turns))
            log("a_a_ratio", **{f"{case.name} {'graph' if graph else 'plain'}": ratios[-1]})
        # A write on one side is seen on the other.
        done(second.request("write", STEP_SECONDS, bytes(len(inputs["A"])), buffer="A"))
        seen = first.request("read", STEP_SECONDS, buffer="A").blob
        log("sharing", write_seen=not any(seen[: 1 << 20]))
    assert not any(seen[: 1 << 20])
    assert all(abs(ratio["median"] - 1) < 0.01 for ratio in ratios)


@pytest.mark.parametrize(("name", "kind"), [
    ("spin", FaultKind.TIME_LIMIT),
    ("illegal_address", FaultKind.ILLEGAL_ADDRESS),
    ("misaligned_address", FaultKind.MISALIGNED_ADDRESS),
    ("trap", FaultKind.TRAP),
])
def test_a_fault_ends_its_process_and_the_next_one_works(
    name: str, kind: FaultKind, cases: dict[str, Case], judge: Judge, log: Log
) -> None:
    good = cases[f"{CLUSTER_SOLUTION}-small"]
    with ExecutorProcess() as bad:
        load(bad, cases[f"fault-{name}"])
        began = time.perf_counter()
        reply = bad.request("run", 5.0, graph=False)
        ended = time.perf_counter()
        process_ended = not bad.alive
    with ExecutorProcess() as next_one:
        load(next_one, good)
        write_inputs(next_one, good.inputs)
        _, output = run(next_one, graph=False)
        recovered = time.perf_counter()
        next_start_s = next_one.start_s
    found = {
        "fault": reply.fault.model_dump(mode="json", exclude_defaults=True) if reply.fault else None,
        "process_ended": process_ended, "until_reported_s": ended - began,
        "until_next_result_s": recovered - ended, "next_start_s": next_start_s,
        **judge.errors(output, judge.truth(good.plan.sizes, good.inputs)),
    }
    log("faults", **{name: found})
    assert found["rms_ratio"] < 1.05
    assert process_ended
    assert reply.fault is not None and reply.fault.kind is kind


def test_writes_outside_the_outputs_are_seen(cases: dict[str, Case], log: Log) -> None:
    for name in ("stray_write", "changed_input"):
        case = cases[f"fault-{name}"]
        with ExecutorProcess() as executor:
            load(executor, case)
            write_inputs(executor, {b.name: bytes(b.bytes) for b in case.plan.buffers if b.role == "input"})
            header = done(executor.request("run", STEP_SECONDS, graph=False))
        log("faults", **{name: {key: header[key] for key in ("stray_writes", "changed_inputs")}})
        assert header["stray_writes"] == (["C"] if name == "stray_write" else [])
        assert header["changed_inputs"] == (["A"] if name == "changed_input" else [])


@pytest.fixture(scope="module")
def cublas(cases: dict[str, Case], judge: Judge) -> Iterator[ExecutorProcess]:
    sizes = cases[f"{CLUSTER_SOLUTION}{CORE}"].plan.sizes
    with ExecutorProcess(BASELINE) as baseline:
        load_baseline(baseline, sizes, judge)
        yield baseline


@pytest.fixture(scope="module")
def graphs(cases: dict[str, Case], judge: Judge) -> bool:
    """Whether the library's work can be captured; both sides are then replayed as graphs, else as plain launches."""
    sizes = cases[f"{CLUSTER_SOLUTION}-large"].plan.sizes
    with ExecutorProcess(BASELINE) as baseline:
        load_baseline(baseline, sizes, judge)
        try:
            timer_of(baseline, graph=True, library="cublas")()
        except DeviceError:
            return False
    return True


def load_baseline(baseline: ExecutorProcess, sizes: dict[str, int], judge: Judge) -> None:
    inputs, _ = judge.problem(sizes)
    task = get_task("gemm_n7168_k5120").model_dump(mode="json")
    done(baseline.request("load", STEP_SECONDS, task=task, sizes=sizes))
    write_inputs(baseline, inputs)


def test_the_baseline_against_itself(
    cublas: ExecutorProcess, graphs: bool, cases: dict[str, Case], judge: Judge, log: Log
) -> None:
    sizes = cases[f"{CLUSTER_SOLUTION}{CORE}"].plan.sizes
    with ExecutorProcess(BASELINE) as other:
        load_baseline(other, sizes, judge)
        done(other.request("run", STEP_SECONDS, library="cublas"))
        output = other.request("read", STEP_SECONDS, buffer="C").blob
        log("sharing", cublas=judge.errors(output, judge.problem(sizes)[1]))
        a, b = (timer_of(side, graph=graphs, library="cublas") for side in (cublas, other))
        turns = take_turns(a, b, A_A_BLOCKS)
    ratio = described(turns)
    log("a_a_ratio", cublas={**ratio, "graph": graphs})
    assert abs(ratio["median"] - 1) < 0.01


@pytest.mark.parametrize("solution", SOLUTIONS)
def test_the_time_of_a_solution_beside_cublas(
    solution: str, cublas: ExecutorProcess, graphs: bool, cases: dict[str, Case], judge: Judge, log: Log
) -> None:
    case = cases[f"{solution}{CORE}"]
    sizes = case.plan.sizes
    with ExecutorProcess() as executor:
        load(executor, case)
        write_inputs(executor, judge.problem(sizes)[0])
        turns = take_turns(
            timer_of(cublas, graph=graphs, library="cublas"), timer_of(executor, graph=graphs), RACE_BLOCKS
        )
        smi = nvidia_smi()
    found = described(turns)
    flops = 2 * sizes["M"] * sizes["N"] * sizes["K"]
    log("speed", **{solution: {
        **found, "tflops": [flops / ms / 1e9 for ms in found["ms"]], "graph": graphs, "nvidia_smi": smi,
    }})
    assert found["median"] > 0
