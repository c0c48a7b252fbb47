"""What a launch asks of the driver, seen on a driver that keeps its calls."""

from __future__ import annotations

from typing import Any

import pytest

from ptxbench.core import Block, KernelNode
from ptxbench.devices.cuda.driver import Driver

bindings = pytest.importorskip("cuda.bindings.driver")


def _asked(attribute: Any) -> Any:
    value, shape = attribute.value, attribute.value.clusterDim
    match attribute.id.name.removeprefix("CU_LAUNCH_ATTRIBUTE_"):
        case "CLUSTER_DIMENSION":
            return "cluster", (shape.x, shape.y, shape.z)
        case "COOPERATIVE":
            return "cooperative", value.cooperative
        case other:
            return other, value.programmaticStreamSerializationAllowed


class Kept(Driver):
    def __init__(self) -> None:
        self._api = bindings

    def call(self, function: str, *arguments: Any) -> None:
        assert function == "cuLaunchKernelEx"
        config = arguments[0]
        assert config.numAttrs == len(config.attrs)
        self.asked = dict(map(_asked, config.attrs))  # the attributes live as long as the call


@pytest.mark.parametrize("asked, expected", [
    ({}, {}),
    ({"cluster": (2, 1, 1)}, {"cluster": (2, 1, 1)}),
    ({"explicit_cluster": True}, {"cluster": (1, 1, 1)}),
    ({"cooperative": True, "programmatic": True}, {"cooperative": 1, "PROGRAMMATIC_STREAM_SERIALIZATION": 1}),
])  # fmt: skip
def test_a_launch_asks_for_what_its_node_says(asked: dict[str, Any], expected: dict[str, Any]) -> None:
    node = KernelNode.model_validate({
        "kernel": "k", "grid": (4, 1, 1), "block": (128, 1, 1), "cluster": (1, 1, 1), "dynamic_shared": 0,
        "parameters": Block(data=b""), **asked,
    })  # fmt: skip
    driver = Kept()
    driver.launch(0, node, [], 0)
    assert driver.asked == expected
