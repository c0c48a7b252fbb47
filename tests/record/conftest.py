"""A recorder, a task, and candidates that hold several launchers each (tests choose one by its name)."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable

import pytest
from record_toy import SIZES, SOURCES, TASK, Record

from ptxbench.build import Toolchain, compile_candidate, find_toolchain
from ptxbench.core import Artifact, Candidate, LaunchPlan, Rejection, Target
from ptxbench.native import Cache
from ptxbench.record import Recorder, find_recorder


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    return find_toolchain()


@pytest.fixture(scope="session")
def recorder(toolchain: Toolchain, shared_cache: Cache) -> Recorder:
    return find_recorder(toolchain, shared_cache)


@pytest.fixture(scope="session")
def build(toolchain: Toolchain, shared_cache: Cache) -> Callable[[str], Artifact]:
    """Compiles ``sources/<name>.cu``, or a source text."""

    def compiled(source: str) -> Artifact:
        text = (SOURCES / f"{source}.cu").read_text() if "\n" not in source else source
        candidate = Candidate(
            task=TASK.name, target=Target.SM_90A, source=text, digest=hashlib.sha256(text.encode()).hexdigest()
        )
        artifact = compile_candidate(candidate, TASK, toolchain=toolchain, cache=shared_cache)
        assert isinstance(artifact, Artifact), artifact
        return artifact

    return compiled


@pytest.fixture(scope="session")
def host_only(
    toolchain: Toolchain, build: Callable[[str], Artifact], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Artifact]:
    """An artifact whose host library is compiled from C++ by g++ alone, which is quick; it registers no kernels."""

    def compiled(source: str) -> Artifact:
        folder = tmp_path_factory.mktemp("host")
        (folder / "host.cpp").write_text(source)
        command = ["g++", "-std=c++17", "-shared", "-fPIC", "-isystem", str(toolchain.cuda / "include"), "host.cpp"]
        subprocess.run([*command, "-o", "host.so"], cwd=folder, check=True, capture_output=True)
        library = (folder / "host.so").read_bytes()
        digest = hashlib.sha256(library).hexdigest()
        return build("refused").model_copy(update={"host_library": library, "digest": digest})

    return compiled


@pytest.fixture
def record(recorder: Recorder, build: Callable[[str], Artifact]) -> Record:
    """Records a launcher of a source at the task's sizes."""

    def recorded(source: str, launcher: str, **options: float) -> LaunchPlan | Rejection:
        return recorder.record(build(source), TASK, SIZES, launcher=launcher, **options)

    return recorded
