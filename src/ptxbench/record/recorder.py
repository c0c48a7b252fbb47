"""The main flow of this room: an artifact and sizes become a launch plan, or the reason why there is none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from ptxbench import core
from ptxbench.build import Sandbox, Toolchain
from ptxbench.core import Artifact, Buffer, LaunchPlan, Node, Rejection, Task, Workload, digest_of, file_parts
from ptxbench.native import Cache, build_library
from ptxbench.record.checks import check_call, check_scratch, check_variables, check_work, reduced_order
from ptxbench.record.linkage import check_linkage, exported_symbols
from ptxbench.record.parameters import parameter_reads
from ptxbench.record.process import Call, Job, run_process
from ptxbench.record.recording import RawNode
from ptxbench.record.refusal import Refusal, contract_error
from ptxbench.record.structure import check_structure
from ptxbench.record.unify import CANONICAL, Unifier

_RUNTIME = Path(__file__).with_name("runtime")
# Calls by process: two in the first, one on other addresses in a fresh one.
_PROCESSES = ((0, 1), (2,))
_FILE = "result.json"
_RESULT: TypeAdapter[LaunchPlan | Rejection] = TypeAdapter(LaunchPlan | Rejection)


@dataclass(frozen=True)
class Recorder:
    """Records launchers.

    ``host`` is our host program, ``exports`` what it offers to a launcher, ``version`` a digest of this room's code.
    """

    host: Path
    exports: frozenset[str]
    version: str
    sandbox: Sandbox
    cache: Cache

    def record(
        self,
        artifact: Artifact,
        task: Task,
        sizes: Mapping[str, int],
        *,
        launcher: str = "launch",
        time_limit_s: float = 10.0,
    ) -> LaunchPlan | Rejection:
        """The plan of one call of ``launcher`` at ``sizes``, or why the candidate is refused.

        ``time_limit_s`` is wall time of a whole host process. Plans and rejections are cached, apart from rejections
        that a limit of this machine caused. Raises `SandboxError` if the sandbox or the host program does not work.
        """
        job = Job(artifact, task, dict(sizes), launcher)

        def make(folder: Path) -> None:
            try:
                result: LaunchPlan | Rejection = self._plan(job, time_limit_s)
            except Refusal as refusal:
                if not refusal.repeats:
                    raise
                result = refusal.rejection
            (folder / _FILE).write_bytes(_RESULT.dump_json(result))

        try:
            folder = self.cache.folder("plans", self._key(job), make)
        except Refusal as refusal:
            return refusal.rejection
        return _RESULT.validate_json((folder / _FILE).read_bytes())

    def record_all(
        self, artifact: Artifact, task: Task, workloads: Iterable[Workload], *, time_limit_s: float = 10.0
    ) -> list[LaunchPlan | Rejection]:
        """`record` for every workload, in order."""
        return [self.record(artifact, task, workload.sizes, time_limit_s=time_limit_s) for workload in workloads]

    def _plan(self, job: Job, seconds: float) -> LaunchPlan:
        check_linkage(job.artifact.host_library, self.exports, job.launcher)
        return _plan(job, self._calls(job, seconds))

    def _calls(self, job: Job, seconds: float) -> tuple[Call, ...]:
        """Both processes at once; a refusal of the first counts before one of the second."""
        def run(process: int) -> tuple[Call, ...]:
            return run_process(
                job, process, _PROCESSES[process], host=self.host, sandbox=self.sandbox, seconds=seconds
            )

        with ThreadPoolExecutor(len(_PROCESSES)) as pool:
            return tuple(call for calls in pool.map(run, range(len(_PROCESSES))) for call in calls)

    def _key(self, job: Job) -> str:
        parts = (
            self.version, job.artifact.digest, job.launcher, sorted(job.sizes.items()),
            job.task.sizes, [argument.model_dump() for argument in job.task.arguments],
        )
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def find_recorder(toolchain: Toolchain, cache: Cache | None = None) -> Recorder:
    """Builds the host program once per machine (about ten seconds) and returns a recorder that uses it.

    Raises `ToolchainError` if it cannot be built, `CacheError` if the cache cannot be used.
    """
    cache = cache or Cache()
    host = build_library(
        "recorder_host", sorted(_RUNTIME.glob("*.cpp")), headers=sorted(_RUNTIME.glob("*.hpp")), executable=True,
        flags=("-O2", "-march=x86-64", "-fvisibility=hidden", "-isystem", str(toolchain.cuda / "include")),
        link=("-rdynamic", "-ldl"), cache=cache,
    )
    return Recorder(host, exported_symbols(host), _code_digest(), toolchain.sandbox, cache)


def record(
    artifact: Artifact, task: Task, sizes: Mapping[str, int], *, toolchain: Toolchain, cache: Cache | None = None
) -> LaunchPlan | Rejection:
    """`Recorder.record` with a recorder of its own, for a single use."""
    return find_recorder(toolchain, cache).record(artifact, task, sizes)


def _code_digest() -> str:
    """Changes whenever this room or the records do, so that no cached plan outlives the code that made it."""
    rooms = (Path(__file__).parent, Path(core.__file__).parent)
    files = (*(path for room in rooms for path in room.glob("*.py")), *_RUNTIME.iterdir())
    return digest_of(file_parts(rooms[0].parent, files))


def _plan(job: Job, calls: tuple[Call, ...]) -> LaunchPlan:
    for call in calls:
        check_call(job.artifact, call)
    check_structure(calls)
    if len({call.returned.workspace for call in calls}) > 1:
        raise contract_error(
            "workspace_bytes returns different sizes for equal arguments.", "Write it as a function of the sizes only."
        )
    unifier = Unifier(job.artifact, calls, parameter_reads(job.artifact.ptx, job.artifact.kernels))
    for buffer in _argument_buffers(job, calls[CANONICAL].returned.workspace):
        unifier.buffers[buffer.name] = buffer
    steps: Iterable[tuple[RawNode, ...]] = zip(*(call.returned.nodes for call in calls), strict=True)
    nodes = reduced_order([unifier.node(step) for step in steps])
    check_work(nodes, unifier.buffers)
    check_scratch(unifier.buffers.values(), job.artifact.cubin)
    check_variables(unifier.buffers.values(), job.artifact.cubin)
    return _with_digest(job, tuple(unifier.buffers.values()), nodes)


def _argument_buffers(job: Job, workspace: int) -> list[Buffer]:
    sizes = dict(job.sizes)
    buffers = [
        Buffer(name=a.name, role=a.role, bytes=a.nbytes(sizes)) for a in (*job.task.inputs, *job.task.outputs)
    ]
    return [*buffers, *([Buffer(name="workspace", role="workspace", bytes=workspace)] if workspace else [])]


def _with_digest(job: Job, buffers: tuple[Buffer, ...], nodes: tuple[Node, ...]) -> LaunchPlan:
    plan = LaunchPlan(
        digest="", artifact_digest=job.artifact.digest, sizes=dict(job.sizes), buffers=buffers, nodes=nodes
    )
    content = json.dumps(plan.model_dump(mode="json", exclude={"digest"}), sort_keys=True, separators=(",", ":"))
    return plan.model_copy(update={"digest": hashlib.sha256(content.encode()).hexdigest()})
