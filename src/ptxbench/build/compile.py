"""Compiles a candidate: source text to `Artifact`, or to the `Rejection` that says why not."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

from ptxbench import core
from ptxbench.build.contract import CHECK, SOURCE, contract_violation, linkage_violation, unit_source
from ptxbench.build.cubin import exported_functions, kernel_facts
from ptxbench.build.debug_line import without_file_times
from ptxbench.build.positions import PtxPositions
from ptxbench.build.remarks import Diagnostic, diagnostics, to_remarks
from ptxbench.build.sandbox import Completed, Limits
from ptxbench.build.sass import parse_sass
from ptxbench.build.source import check_source
from ptxbench.build.toolchain import COMPILE_LIMITS, UNIT, Toolchain, cubin_name, ptx_name
from ptxbench.core import Artifact, Candidate, KernelSass, Outcome, Progress, Rejection, Task, digest_of, file_parts
from ptxbench.native import Cache

_LIBRARY = f"{UNIT}.so"
_ARTIFACT, _REJECTION = "artifact.json", "rejection.json"

# Device functions of the runtime that a plan cannot express, as PTX declares them.
_DEVICE_RUNTIME = re.compile(
    r"\.extern\s+\.func\s+(?:\([^()]*\)\s*)?(?P<name>malloc|free|cudaMalloc|cudaFree|cudaLaunchDevice\w*"
    r"|cudaGetParameterBuffer\w*|cudaDeviceSynchronize|__cudaCDP\w*)\b"
)
_LAUNCH_IN_KERNEL = re.compile(r"kernel launch from (?:__device__|__global__)|requires separate compilation mode")
_FULL = re.compile(rb"No space left on device|fatal\s*: Could not write file")
_HOST_DATA = re.compile(r"^\S+\(\.text\S*: relocation truncated to fit", re.MULTILINE)
_VARIABLE = re.compile(r"\.global (?:\.align \d+ )?\.[bsuf](?P<bits>\d+) [\w$]+\[(?P<count>\d+)\]")
_MOST_VARIABLES = 1 << 32
"""Bytes of device variables from which on a cubin's sizes wrap; no task leaves a kernel nearly as much."""

_CRASH = re.compile(r"nvcc error\s*: '(?P<tool>\w+)' died due to signal (?P<signal>\d+)")


class _LimitReached(Exception):
    """Carries a rejection past the cache: on another machine, or at another hour, it might not repeat."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.reason)
        self.rejection = rejection


def compile_candidate(
    candidate: Candidate,
    task: Task,
    *,
    toolchain: Toolchain,
    cache: Cache,
    include: Path | None = None,
    limits: Limits = COMPILE_LIMITS,
    progress: Progress | None = None,
) -> Artifact | Rejection:
    """Compiles ``candidate`` for its target in the sandbox and checks its interface against ``task``.

    ``include`` is the folder that holds ``ptxbench/ptx/``, or None where the headers are withheld. Artifacts and
    rejections are kept in ``cache``, except rejections for a limit.

    Raises `ToolchainError`, `SandboxError` or `CacheError` if the machine, not the candidate, is at fault.
    """
    refusal = check_source(candidate.source)
    if refusal is not None:
        return refusal
    compilation = _Compilation(candidate, task, toolchain, include, limits, progress)

    def make(folder: Path) -> None:
        result = compilation.run()
        name = _ARTIFACT if isinstance(result, Artifact) else _REJECTION
        (folder / name).write_text(result.model_dump_json())

    try:
        folder = cache.folder("artifact", compilation.key(), make)
    except _LimitReached as reached:
        return reached.rejection
    if (folder / _ARTIFACT).exists():
        return Artifact.model_validate_json((folder / _ARTIFACT).read_bytes())
    return Rejection.model_validate_json((folder / _REJECTION).read_bytes())


@dataclass(frozen=True)
class _Compilation:
    candidate: Candidate
    task: Task
    toolchain: Toolchain
    include: Path | None
    limits: Limits
    progress: Progress | None

    def key(self) -> str:
        """What the result depends on: source, target, interface, headers, tools, confinement, and the code.

        The code is that of this room and of the records.
        """
        parts = (
            self.candidate.digest, hashlib.sha256(self.candidate.source.encode()).hexdigest(), self.candidate.target,
            unit_source(self.task), _tree_digest(self.include), sorted(self.toolchain.versions.items()),
            self.toolchain.sandbox.level, _tree_digest(Path(__file__).parent), _tree_digest(Path(core.__file__).parent),
        )
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def run(self) -> Artifact | Rejection:
        self._report("compile")
        ptx_file, cubin_file = ptx_name(), cubin_name(self.candidate.target)
        compiled = self.toolchain.sandbox.run(
            self.toolchain.nvcc(self.candidate.target, self.include),
            read_only=self.toolchain.mounts(self.include),
            inputs={f"{UNIT}.cu": unit_source(self.task).encode(), SOURCE: self.candidate.source.encode()},
            outputs=[_LIBRARY, ptx_file, cubin_file],
            limits=self.limits,
        )
        _raise_at_limit(compiled, self.limits, "The compiler")
        ptx = compiled.outputs.get(ptx_file, b"").decode(errors="replace")
        output = (compiled.stderr + b"\n" + compiled.stdout).decode(errors="replace")
        found = diagnostics(output, _file_name, PtxPositions(ptx, _file_name, SOURCE), SOURCE)
        if compiled.returncode != 0:
            return self._failure(found, output)
        if not {_LIBRARY, ptx_file, cubin_file} <= compiled.outputs.keys():
            self.toolchain.check()
            return _compile_error("The compiler produced no kernel code from this source.", found)
        made, library = compiled.outputs[cubin_file], compiled.outputs[_LIBRARY]
        try:
            cubin = without_file_times(made)
            exported, kernels = exported_functions(library), kernel_facts(cubin, ptx)
        except ValueError as error:
            return _compile_error(f"The compiled code cannot be described: {error}.", found)
        # The library embeds the cubin, and must go on doing so byte by byte.
        library = library.replace(made, cubin)
        refusal = linkage_violation(exported, self.task) or _device_runtime_use(ptx) or _giant_variables(ptx)
        if refusal is not None:
            return refusal.model_copy(update={"remarks": to_remarks(found, SOURCE)})
        self._report("disassemble")
        return Artifact(
            digest=digest_of((cubin, ptx.encode(), library)),
            source_digest=self.candidate.digest,
            target=self.candidate.target,
            ptx=ptx,
            cubin=cubin,
            host_library=library,
            kernels=kernels,
            sass=self._disassemble(cubin_file, cubin),
            remarks=to_remarks(found, SOURCE),
            versions=self.toolchain.versions,
        )

    def _failure(self, found: list[Diagnostic], output: str) -> Rejection:
        """Explains a failed compile: the candidate's own errors first, then its interface, then everything else."""
        errors = [item for item in found if item.severity == "error"]
        own = [item for item in errors if item.file == SOURCE]
        if any(_LAUNCH_IN_KERNEL.search(item.text) for item in own):
            return _device_launch(next(item.line for item in own if _LAUNCH_IN_KERNEL.search(item.text)))
        if own:
            return _compile_error(f"{_sentence_case(own[0].sentence)}.", found, own[0].line)
        violation = contract_violation(found, self.task)
        if violation is not None:
            return violation
        elsewhere = next((item for item in errors if item.file != CHECK), None)
        if elsewhere is not None:
            place = f" in {elsewhere.file}" if elsewhere.file else ""
            return _compile_error(f"The source does not compile{place}: {elsewhere.text}.", found)
        if _HOST_DATA.search(output):
            return _compile_error("The static data of the host code is larger than 2 GiB.", found)
        crash = _CRASH.search(output)
        if crash is None:
            # Nothing points at the candidate. If the tools fail on a trivial kernel too, this raises.
            self.toolchain.check()
            return _compile_error("The compiler failed without a message about this source.", found)
        reason = f"The compiler crashed on this source ({crash['tool']}, signal {crash['signal']})."
        if crash["signal"] == "9":
            raise _LimitReached(_compile_error(reason, found))
        return _compile_error(reason, found)

    def _disassemble(self, name: str, cubin: bytes) -> tuple[KernelSass, ...]:
        # The listing is the output here, so it must not be cut short.
        limits = Limits(
            seconds=self.limits.seconds, memory=self.limits.memory, disk=self.limits.disk, text=self.limits.output
        )
        listed = self.toolchain.sandbox.run(
            self.toolchain.nvdisasm(name), read_only=self.toolchain.mounts(), inputs={name: cubin}, limits=limits
        )
        _raise_at_limit(listed, limits, "The disassembler")
        if len(listed.stdout) >= limits.text:
            _raise_at_limit(replace(listed, cause="output"), limits, "The disassembler")
        if listed.returncode != 0:
            self.toolchain.check()
            raise _LimitReached(_compile_error("The machine code of this source could not be disassembled.", []))
        return parse_sass(listed.stdout.decode(errors="replace"), _file_name)

    def _report(self, stage: str) -> None:
        if self.progress is not None:
            self.progress(stage)


def _raise_at_limit(run: Completed, limits: Limits, who: str) -> None:
    reasons = {
        "time": f"{who} needed more than {limits.seconds:g} seconds",
        "memory": f"{who} needed more than {limits.memory >> 20} MiB of memory",
        "output": f"{who} produced a file of more than {min(limits.output, limits.disk) >> 20} MiB",
        "processes": f"{who} started more than {limits.processes} processes",
    }
    if run.cause in reasons:
        raise _LimitReached(_compile_error(f"{reasons[run.cause]}, which is the limit for one source.", []))
    if _FULL.search(run.stderr):
        raise _LimitReached(
            _compile_error(f"{who} wrote more than {limits.disk >> 20} MiB, which is the limit for one source.", [])
        )


def _device_runtime_use(ptx: str) -> Rejection | None:
    match = _DEVICE_RUNTIME.search(ptx)
    if match is None:
        return None
    name = match["name"]
    if name in ("malloc", "free", "cudaMalloc", "cudaFree"):
        return Rejection(
            outcome=Outcome.CONTRACT_ERROR,
            reason=f"A kernel calls {name}; memory cannot be allocated on the device.",
            advice="Define workspace_bytes and use the workspace argument of launch, or shared memory.",
        )
    return _device_launch(0)


def _giant_variables(ptx: str) -> Rejection | None:
    size = sum(int(found["bits"]) // 8 * int(found["count"]) for found in _VARIABLE.finditer(ptx))
    if size < _MOST_VARIABLES:
        return None
    return Rejection(
        outcome=Outcome.CONTRACT_ERROR,
        reason=f"The device variables are {size} bytes, and less than {_MOST_VARIABLES} are allowed at any size.",
        advice="Define workspace_bytes and use the workspace argument of launch, in proportion to the sizes.",
    )


def _device_launch(line: int) -> Rejection:
    return Rejection(
        outcome=Outcome.CONTRACT_ERROR, source_line=line,
        reason="A kernel launches another kernel; kernels can be launched by the host function launch only.",
        advice="Launch every kernel from launch, in order, on its stream.",
    )


def _compile_error(reason: str, found: list[Diagnostic], line: int = 0) -> Rejection:
    return Rejection(
        outcome=Outcome.COMPILE_ERROR, reason=reason, source_line=line, remarks=to_remarks(found, SOURCE)
    )


def _sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]


def _file_name(path: str) -> str:
    """What to call a file in remarks and source frames, whatever folder it was compiled in."""
    _, offered, rest = path.rpartition("ptxbench/ptx/")
    return f"{offered}{rest}" if offered else path.rpartition("/")[2]


def _tree_digest(folder: Path | None) -> str:
    if folder is None:
        return ""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return digest_of(file_parts(folder, files))
