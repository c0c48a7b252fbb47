"""The judge as this machine makes it: its toolchain, its cache, its devices."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

from rich.console import Console

from ptxbench.build import find_toolchain
from ptxbench.core import Progress
from ptxbench.devices import SimulatorDevice
from ptxbench.evaluate import LocalEvaluator, StoringEvaluator
from ptxbench.native import Cache
from ptxbench.record import find_recorder
from ptxbench.report import stage_display
from ptxbench.solutions import include_dir
from ptxbench.store import VerdictStore

CORES = max(1, os.cpu_count() or 1)
err = Console(stderr=True)


def make_evaluator(stop: threading.Event, say: Progress) -> LocalEvaluator:
    """The pipeline with this machine's toolchain and cache; ``stop`` reaches everything that takes time."""
    say("looking for the toolchain")
    cache, toolchain = Cache(stop=stop), find_toolchain()
    toolchain = replace(toolchain, sandbox=replace(toolchain.sandbox, stop=stop))
    say("preparing the recorder (built once per machine)")
    return LocalEvaluator(
        device=SimulatorDevice(stop),
        toolchain=toolchain,
        recorder=find_recorder(toolchain, cache),
        cache=cache,
        include=include_dir(),
        threads=CORES,
    )


def ready_evaluator(stop: threading.Event) -> LocalEvaluator:
    """`make_evaluator`, with the simulator's library built here and now, where it can be shown and interrupted."""
    with stage_display(err) as say:
        evaluator = make_evaluator(stop, say)
        say("preparing the simulator (built once per machine, up to a minute)")
        SimulatorDevice(stop).prepare()
    return evaluator


def storing(evaluator: LocalEvaluator, resume: bool) -> StoringEvaluator:
    """The evaluator with the verdict store of this machine."""
    return StoringEvaluator(evaluator, VerdictStore(evaluator.cache.root / "verdicts"), resume)
