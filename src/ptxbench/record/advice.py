"""What a launcher cannot use, and what to write instead."""

from __future__ import annotations

import re

UNKNOWN = "the recorder does not know it"
"""The rule of a subject that no row below covers."""

_PURE = "what a launcher launches may depend on the sizes only"

# (pattern of a whole API name or subject, the rule it breaks, what to write instead); the first match counts.
_RULES: tuple[tuple[str, str, str], ...] = (
    (r"copy from device to host|cu(da)?Memcpy\w*(FromSymbol|DtoH)\w*", _PURE + ", so it cannot read device memory",
     "Write the decision into the kernel, or compute it from the sizes on the host."),
    (r"cu(da)?(Graph|UserObject)\w*|cu(da)?Stream\w*Captur\w*|cuStreamBeginCapture\w*", "graphs and stream capture are not recorded",
     "Write plain launches on the stream argument; the executor makes its own graph of them."),
    (r"cu(da)?(LaunchHostFunc|StreamAddCallback)\w*", "host callbacks cannot be part of a plan",
     "Write the work as a kernel, or do it in launch before the launches."),
    (r"cu(Module|Library|Link)\w*|cudaLibrary\w*|nvrtc\w*|nvJitLink\w*", "only the kernels of the source itself can be launched",
     "Write the kernel in the source and launch it with <<<>>> or cudaLaunchKernelEx."),
    (r"(__managed__|cu(da)?\w*Managed\w*|cudaMem(Advise|Prefetch)\w*|cuMem(Advise|Prefetch)\w*)", "managed memory is not recorded",
     "Write cudaMalloc, or declare a workspace with workspace_bytes."),
    (r"cu(da)?Ipc\w*|cuMem(Create|Map|Export|Import)\w*|cu(da)?(Import|Export)External\w*", "memory cannot be shared with other processes",
     "Write to the outputs and the workspace only."),
    (r"(cublas|cudnn|cusparse|cusolver|cufft|curand|cutensor|nccl|npp)\w*", "library calls do not count as the source's own kernel",
     "Write the product as a kernel in the source."),
    (r"dl(m?open|v?sym|addr\d?|info)|_dl_\w+|cudaGetExportTable|cuGetExportTable", "the launcher cannot load or inspect libraries",
     "Write calls of the CUDA runtime directly; driver entry points come from cudaGetDriverEntryPointByVersion."),
    (r"pthread_create|clone3?|v?fork|execveat|execv\w*|execl\w*|posix_spawnp?|system|popen|thrd_create", "the launcher cannot start threads or processes",
     "Write launch as plain straight code that returns after its launches."),
    (r"rt_sigaction|kill|ptrace|setitimer|alarm|timer_create|socket", "the launcher cannot use signals, timers or sockets",
     "Write launch as plain straight code that returns after its launches."),
    (r"launch attribute access policy window|cu(da)?(Ctx|Device)\w*PersistingL2\w*|cu(da)?(CtxSet|DeviceSet)Limit", "settings that outlive a launch are not part of a plan",
     "Write cache hints on the load instructions instead (createpolicy, .L2::cache_hint)."),
    (r"launch attribute .*", "a plan has no field for it",
     "Write the launch with cluster dimension, cooperative, programmatic stream serialization and priority only."),
    (r"cu(da)?EventElapsedTime\w*", _PURE + ", so it cannot measure time", "Write the choice as a function of the sizes."),
    (r"(malloc|free|cudaMalloc|cudaFree) on the device", "device-side allocation is not supported",
     "Write into shared memory or a workspace declared with workspace_bytes."),
    (r"launch on the device|cudaLaunchDevice\w*|cudaGetParameterBuffer\w*", "device-side launches are not supported",
     "Write the launches in launch, on the host."),
    (r"work outside of a call of launch", "work belongs into launch", "Write the launch, copy or fill in launch, not in a static constructor."),
    (r"cudaMemset2D\w*|cudaMemset3D\w*|cudaMemcpy[23]D\w*|cuMem(cpy|set)D?[23]D\w*", "copies and fills with a pitch are not recorded",
     "Write cudaMemsetAsync or cudaMemcpyAsync of a contiguous range, or a kernel."),
    (r".*_pts[zd]", "the per-thread default stream is not supported", "Write the launch on the stream argument and compile for the legacy default stream."),
)


def rule_and_advice(subject: str) -> tuple[str, str]:
    """(the rule that a subject breaks, what to write instead) for an API name or a matter the recorder named."""
    for pattern, rule, advice in _RULES:
        if re.fullmatch(pattern, subject):
            return rule, advice
    return (
        UNKNOWN,
        "Write the launcher with kernel launches, cudaMemsetAsync, cudaMemcpyAsync, streams, events and tensor maps only.",
    )
