"""Options and fixtures that every room's tests share."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ptxbench.build import find_toolchain
from ptxbench.devices import SimulatorDevice
from ptxbench.evaluate import LocalEvaluator
from ptxbench.native import Cache
from ptxbench.record import find_recorder
from ptxbench.solutions import include_dir


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-gpu", action="store_true", help="fail instead of skipping tests that need a GPU")
    parser.addoption("--results", metavar="PATH", help="write what gpu tests measured to this JSON file")


def _has_gpu() -> bool:
    return Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--require-gpu") or _has_gpu():
        return
    skip = pytest.mark.skip(reason="needs an NVIDIA GPU")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


class Results:
    """Collects measured values by section and writes them when the session ends."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.sections: dict[str, dict[str, Any]] = {}

    def record(self, section: str, **values: Any) -> None:
        self.sections.setdefault(section, {}).update(values)

    def write(self) -> None:
        if self.path is None or not self.sections:
            return
        command = " ".join(["pytest", *sys.argv[1:]])
        report = {"command": command, "python": platform.python_version(), **self.sections}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(report, indent=2, default=str) + "\n")


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest) -> Iterator[Results]:
    path = request.config.getoption("--results")
    recorder = Results(Path(path) if path else None)
    yield recorder
    recorder.write()


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    """One cache for the whole session and all its workers, so that our own libraries are built once."""
    root = os.environ.get("PTXBENCH_CACHE")
    return Cache(Path(root) if root else tmp_path_factory.getbasetemp().parent / "ptxbench-cache")


@pytest.fixture(scope="session")
def evaluator(shared_cache: Cache) -> Iterator[LocalEvaluator]:
    """The whole pipeline on the simulator. It and what it starts keep everything in the session's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTXBENCH_CACHE", str(shared_cache.root))
        device, toolchain = SimulatorDevice(), find_toolchain()
        device.prepare()
        # Workers run beside each other, so that one replay at a time is enough for each.
        threads = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2
        yield LocalEvaluator(
            device, toolchain, find_recorder(toolchain, shared_cache), shared_cache, include_dir(), threads=threads
        )
