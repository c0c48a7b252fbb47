"""The pipeline that the attempts go through, and the page that lists them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields

import pytest
from cheats_page import Page

from ptxbench.build import Limits, compile_candidate
from ptxbench.core import Artifact, Candidate, LaunchPlan, Observation, Rejection, RunOptions, Task
from ptxbench.devices import SimulatorDevice
from ptxbench.evaluate import LocalEvaluator
from ptxbench.record import Recorder
from ptxbench.tasks import get_task

COMPILE_SECONDS, LAUNCH_SECONDS, RUN_SECONDS = 6.0, 2.0, 2.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-docs", action="store_true", help="write docs/cheats.md anew from the attempts that run")


class HurriedSimulator(SimulatorDevice):
    """The simulator with a short time limit."""

    def run(
        self, artifact: Artifact, plan: LaunchPlan, buffers: Mapping[str, memoryview], options: RunOptions
    ) -> Observation:
        return super().run(artifact, plan, buffers, options.model_copy(update={"time_limit_s": RUN_SECONDS}))


class HurriedRecorder(Recorder):
    """The recorder with a short time limit."""

    def record(
        self, artifact: Artifact, task: Task, sizes: Mapping[str, int], *, launcher: str = "launch",
        time_limit_s: float = LAUNCH_SECONDS,
    ) -> LaunchPlan | Rejection:
        return super().record(artifact, task, sizes, launcher=launcher, time_limit_s=time_limit_s)


class HurriedEvaluator(LocalEvaluator):
    """The pipeline with short time limits, for attempts that use them up."""

    def compile(self, candidate: Candidate) -> Artifact | Rejection:
        return compile_candidate(
            candidate, get_task(candidate.task), toolchain=self.toolchain, cache=self.cache, include=self.include,
            limits=Limits(seconds=COMPILE_SECONDS),
        )


@pytest.fixture(scope="session")
def hurried(evaluator: LocalEvaluator) -> HurriedEvaluator:
    recorder = HurriedRecorder(**{field.name: getattr(evaluator.recorder, field.name) for field in fields(Recorder)})
    return HurriedEvaluator(
        HurriedSimulator(), evaluator.toolchain, recorder, evaluator.cache, evaluator.include,
        threads=evaluator.threads,
    )


@pytest.fixture(scope="session")
def page(request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page as it is; with ``--update-docs`` it takes the rows of the attempts that run."""
    update = bool(request.config.getoption("--update-docs", default=False))
    if update and "PYTEST_XDIST_WORKER" in os.environ:
        pytest.exit("--update-docs writes one file: run it without -n", returncode=2)
    found = Page(update=update)
    yield found
    if update:
        found.write()
