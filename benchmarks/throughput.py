"""Judges 64 candidates of every kind on this machine's GPU and tells verdicts per minute, split by stage.

python -m benchmarks.throughput [--jobs N] [--out results/h200/throughput.json]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ptxbench.cli.gpu import judging
from ptxbench.core import Candidate, Target, make_candidate
from ptxbench.evaluate import Answer, BenchDevice, evaluate_all
from ptxbench.solutions import examples, solutions
from ptxbench.store import write_atomically

TASK = "gemm_n7168_k5120"
TARGET = Target.SM_90A
COUNT = 64

_HANG = """
__global__ void hang(const volatile int* flag) { while (*flag != 0x600dcafe) {} }
extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    hang<<<1, 1, 0, stream>>>(reinterpret_cast<const int*>(A));
    return cudaGetLastError();
}
"""
_SLOW = """
__global__ void product(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int N, int K) {
    const int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < K; ++k)
        sum += __bfloat162float(A[static_cast<size_t>(row) * K + k]) * __bfloat162float(B[static_cast<size_t>(column) * K + k]);
    C[static_cast<size_t>(row) * N + column] = __float2bfloat16(sum);
}
extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    product<<<dim3(N / 16, M / 16), dim3(16, 16), 0, stream>>>(A, B, C, N, K);
    return cudaGetLastError();
}
"""  # noqa: E501


def kinds() -> dict[str, str]:
    """One source per kind: the known-good kernels, the bundled examples, one that hangs, one that is slow."""
    own = {row.file: row.source() for row in solutions(TASK, TARGET)}
    own |= {f"examples/{row.file}": row.source() for row in examples() if row.target is TARGET and row.task == TASK}
    return {**own, "hang.cu": f"#include <cuda_bf16.h>\n{_HANG}", "slow.cu": f"#include <cuda_bf16.h>\n{_SLOW}"}


def batch(count: int) -> Iterator[Candidate]:
    """Kinds by turns. A comment makes every source new, so that nothing comes from the cache."""
    sources = list(kinds().items())
    for number in range(count):
        name, source = sources[number % len(sources)]
        text = f"{source}\n// {number} {time.time_ns()}\n"
        yield make_candidate(text, task=TASK, target=TARGET, origin=f"{number:02} {name}")


def measure(jobs: int, count: int) -> dict[str, Any]:
    """Judges the batch; what came of it and how long each part took."""
    candidates = list(batch(count))
    with judging(threading.Event(), "cuda", TARGET, jobs=jobs) as evaluator:
        assert isinstance(evaluator.device, BenchDevice)
        bench = evaluator.device.bench
        first = make_candidate(solutions(TASK, TARGET)[0].source(), task=TASK, target=TARGET, origin="warm-up")
        began = time.perf_counter()
        evaluator.evaluate(first)
        warm_up_s = time.perf_counter() - began
        busy = bench.busy_s()
        began = time.perf_counter()

        def told(answer: Answer) -> None:
            outcome = answer.verdict.outcome.value if answer.verdict else answer.problem
            print(f"{time.perf_counter() - began:7.1f} s  {answer.origin}: {outcome}", file=sys.stderr, flush=True)

        answers = evaluate_all(evaluator, candidates, jobs=jobs, on_answer=told)
        wall_s = time.perf_counter() - began
        busy_s = bench.busy_s() - busy
        device = bench.capabilities().model_dump(mode="json")
    verdicts = [answer.verdict for answer in answers if answer.verdict]
    stages: Counter[str] = Counter()
    for verdict in verdicts:
        stages.update(verdict.stages_s)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python -m benchmarks.throughput --jobs {jobs} --count {count}",
        "device": device,
        "cores": os.cpu_count(),
        "jobs": jobs,
        "candidates": count,
        "outcomes": dict(Counter(verdict.outcome.value for verdict in verdicts)),
        "no_verdict": {answer.origin: answer.problem for answer in answers if answer.verdict is None},
        "warm_up_s": round(warm_up_s, 2),
        "wall_s": round(wall_s, 2),
        "verdicts_per_minute": round(60 * len(verdicts) / wall_s, 1),
        "gpu_held_share": round(busy_s / wall_s, 3),
        "stage_seconds": {name: round(seconds, 2) for name, seconds in stages.items()},
        "speedups": {
            verdict.origin: verdict.timing.speedup.model_dump() for verdict in verdicts if verdict.timing is not None
        },
        "verdicts": {
            verdict.origin: {"outcome": verdict.outcome.value, "stages_s": verdict.stages_s} for verdict in verdicts
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="candidates judged at a time")
    parser.add_argument("--count", type=int, default=COUNT, help="candidates in all")
    parser.add_argument("--out", type=Path, help="also write the results to this JSON file")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    report = json.dumps(measure(arguments.jobs, arguments.count), indent=2)
    print(report)
    if arguments.out:
        write_atomically(arguments.out, f"{report}\n".encode())


if __name__ == "__main__":
    main()
