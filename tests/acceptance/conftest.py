"""One evaluator for the honest kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from study import local_evaluator

from ptxbench.evaluate import LocalEvaluator
from ptxbench.native import Cache


@pytest.fixture(scope="session")
def evaluator(shared_cache: Cache) -> Iterator[LocalEvaluator]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTXBENCH_CACHE", str(shared_cache.root))
        yield local_evaluator(shared_cache)
