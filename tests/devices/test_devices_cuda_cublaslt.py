"""How one of cuBLASLt's algorithms is chosen, without cuBLASLt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from ptxbench.core import DeviceError
from ptxbench.devices.cuda.cublaslt import FINALISTS, Launch, Matmul, fastest_algorithm


class Proposing:
    """A product whose algorithms are numbers; what is launched is noted."""

    extents = (8192, 7168, 5120)

    def __init__(self, count: int) -> None:
        self.count = count
        self.launched: list[int] = []

    def proposals(self) -> list[int]:
        return list(range(self.count))

    def with_algorithm(self, algorithm: int) -> Launch:
        return lambda: self.launched.append(algorithm)


def chosen(matmul: Proposing, times: Sequence[dict[int, float]]) -> int:
    """What is chosen if the first comparison sees the first times, and the second the others."""
    rounds = iter(times)

    def compare(launches: Sequence[Launch]) -> list[float]:
        matmul.launched.clear()
        for launch in launches:
            launch()
        seen = next(rounds)
        return [seen[number] for number in matmul.launched]

    found = fastest_algorithm(cast("Matmul", matmul), compare)
    assert next(rounds, None) is None
    return cast("Any", found)


def test_the_fastest_are_compared_once_more_among_themselves() -> None:
    matmul = Proposing(6)
    first = {0: 0.80, 1: 0.75, 2: 0.90, 3: 0.76, 4: 0.77, 5: 0.95}
    second = {1: 0.76, 3: 0.75, 4: 0.77, 0: 0.70}
    assert chosen(matmul, [first, second]) == 0
    assert matmul.launched == [1, 3, 4, 0]
    assert len(matmul.launched) == FINALISTS


def test_a_single_proposal_is_taken() -> None:
    assert chosen(Proposing(1), [{0: 0.8}, {0: 0.8}]) == 0


def test_no_proposal_is_a_device_error() -> None:
    with pytest.raises(DeviceError, match="no algorithm for M, N, K = \\(8192, 7168, 5120\\)"):
        chosen(Proposing(0), [])
