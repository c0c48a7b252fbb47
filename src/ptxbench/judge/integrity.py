"""What no kernel can do: finish before the hardware could have done the work."""

from __future__ import annotations

from collections.abc import Mapping

from ptxbench.core import Target, Task
from ptxbench.tasks import flops, input_bytes, output_bytes


def min_time_ms(task: Task, sizes: Mapping[str, int], target: Target) -> float:
    """The architectural bound in milliseconds.

    The larger of FLOPs over (SMs × dense bf16 FLOP per clock × maximum clock) and of input and output bytes, each
    moved once, over the peak memory bandwidth; from the target's data sheet.
    """
    sheet = target.sheet
    given = dict(sizes)
    flops_per_second = sheet.sm_count * sheet.dense_bf16_flops_per_clock * sheet.max_clock_mhz * 1e6
    arithmetic = flops(task, given) / flops_per_second
    memory = (input_bytes(task, given) + output_bytes(task, given)) / sheet.memory_bytes_per_second
    return 1e3 * max(arithmetic, memory)
