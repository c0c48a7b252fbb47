"""Which stream each node of a plan runs on, so that the plan's edges hold and nothing else is ordered. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptxbench.core import Node


@dataclass(frozen=True)
class Step:
    """One node's place. ``lane`` counts streams from 0; the nodes in ``waits`` run on others and come first."""

    node: int
    lane: int
    waits: tuple[int, ...]


def assign_lanes(nodes: Sequence[Node]) -> tuple[Step, ...]:
    """A lane for every node, in plan order.

    A node continues the lane whose last node it depends on (the first such dependency), else it opens a new one; its
    other dependencies become waits. A chain therefore runs on one stream, as it was recorded.
    """
    last_of_lane: list[int] = []
    lane_of: list[int] = []
    steps: list[Step] = []
    for index, node in enumerate(nodes):
        continued = next((after for after in node.after if last_of_lane[lane_of[after]] == after), None)
        if continued is None:
            lane = len(last_of_lane)
            last_of_lane.append(index)
        else:
            lane = lane_of[continued]
            last_of_lane[lane] = index
        lane_of.append(lane)
        waits = tuple(after for after in node.after if lane_of[after] != lane)
        steps.append(Step(index, lane, waits))
    return tuple(steps)
