"""What a launcher cannot use, and what to write instead."""

from __future__ import annotations

import re
from typing import NamedTuple

UNKNOWN = "the recorder does not know it"
"""The rule of a subject that no row below covers."""

_PURE = "what a launcher launches may depend on the sizes only"
_STRAIGHT = "Write launch as plain straight code that returns after its launches."


class Rule(NamedTuple):
    """``subjects`` is a regular expression for whole names of calls, or for a matter that the recorder names."""

    subjects: str
    rule: str
    advice: str


# The first match counts.
_RULES = (
    Rule(
        r"copy from device to host|cu(da)?Memcpy\w*(FromSymbol|DtoH)\w*",
        f"{_PURE}, so it cannot read device memory",
        "Write the decision into the kernel, or compute it from the sizes on the host.",
    ),
    Rule(
        r"cu(da)?(Graph|UserObject)\w*|cu(da)?(Stream|Thread)\w*Captur\w*",
        "graphs and stream capture are not recorded",
        "Write plain launches on the stream argument; the executor makes its own graph of them.",
    ),
    Rule(
        r"cu(da)?(LaunchHostFunc|StreamAddCallback)\w*",
        "host callbacks cannot be part of a plan",
        "Write the work as a kernel, or do it in launch before the launches.",
    ),
    Rule(
        r"cu(Module|Library|Link)\w*|cudaLibrary\w*|nvrtc\w*|_*nvJitLink\w*",
        "only the kernels of the source itself can be launched",
        "Write the kernel in the source and launch it with <<<>>> or cudaLaunchKernelEx.",
    ),
    Rule(
        r"__managed__|cu(da)?\w*Managed\w*|cu(da)?Mem(Advise|Prefetch)\w*",
        "managed memory is not recorded",
        "Write cudaMalloc, or declare a workspace with workspace_bytes.",
    ),
    Rule(
        r"cu(da)?Ipc\w*|cuMem(Create|Map|Export|Import)\w*|cu(da)?(Import|Export)External\w*",
        "memory cannot be shared with other processes",
        "Write to the outputs and the workspace only.",
    ),
    Rule(
        r"(cublas|cudnn|cusparse|cusolver|cufft|curand|cutensor|nccl|npp)\w*",
        "a library call is not the source's own kernel",
        "Write the product as a kernel in the source.",
    ),
    Rule(
        r"dl(m?open|v?sym|info|_iterate_phdr)|cu(da)?GetExportTable",
        "the launcher cannot load or inspect libraries",
        "Write calls of the CUDA runtime directly; driver entry points come from cudaGetDriverEntryPointByVersion.",
    ),
    Rule(
        r"pthread_create|_ZNSt6thread\w+|thrd_create|clone3?|v?fork|exec(veat|[lv]p?e?)|fexecve|posix_spawnp?|system|popen",
        "the launcher cannot start threads or processes",
        _STRAIGHT,
    ),
    Rule(
        r"(rt_)?sigaction|signal|kill|ptrace|setitimer|alarm|timer_create|socket",
        "the launcher cannot use signals, timers or sockets",
        _STRAIGHT,
    ),
    Rule(
        r"launch attribute access policy window|cu(da)?(Ctx|Device)\w*PersistingL2\w*|cu(da)?(Ctx|Device)SetLimit",
        "settings that outlive a launch are not part of a plan",
        "Write cache hints on the load instructions instead (createpolicy, .L2::cache_hint).",
    ),
    Rule(
        r"launch attribute .*",
        "a plan has no field for it",
        "Write the launch with cluster dimension, cooperative, programmatic stream serialization and priority only.",
    ),
    Rule(
        r"cu(da)?EventElapsedTime\w*",
        f"{_PURE}, so it cannot measure time",
        "Write the choice as a function of the sizes.",
    ),
    Rule(
        r"cuda(Memset|Memcpy)[23]D\w*|cuMem(set|cpy)D?[23]D\w*|cudaMallocPitch|cudaMalloc3D\w*",
        "copies and fills with a pitch are not recorded",
        "Write cudaMemsetAsync or cudaMemcpyAsync of a contiguous range, or a kernel.",
    ),
    Rule(
        r".*_pts[zd]",
        "the per-thread default stream is not supported",
        "Write the launch on the stream argument, without CUDA_API_PER_THREAD_DEFAULT_STREAM.",
    ),
    Rule(
        r"work on a stream that was not forked.*",
        "all work must come after the start of the call on the stream argument",
        "Write cudaEventRecord(event, stream) and cudaStreamWaitEvent(side, event) before the first work on another "
        "stream.",
    ),
    Rule(
        r"work outside of a call of launch",
        "work belongs into launch",
        "Write the launch, copy or fill in launch, not in a static constructor.",
    ),
    Rule(
        r"more than \d+ .*",
        "that is more than a plan holds",
        "Write fewer, larger launches and smaller copies.",
    ),
    Rule(
        r"arguments passed through extra",
        "only argument arrays are recorded",
        "Write the arguments as an array of pointers.",
    ),
    Rule(
        r"(kernel )?attribute \d+",
        "the recorder has no answer for it",
        "Write the launcher without this attribute.",
    ),
)


def rule_and_advice(*subjects: str) -> tuple[str, str]:
    """(the rule that is broken, what to write instead), by the first subject that has a row, else `UNKNOWN`."""
    for subject in subjects:
        for row in _RULES:
            if re.fullmatch(row.subjects, subject):
                return row.rule, row.advice
    return (
        UNKNOWN,
        "Write the launcher with kernel launches, cudaMemsetAsync, cudaMemcpyAsync, streams, events and tensor maps.",
    )
