from __future__ import annotations

from ptxbench.adapt.data.split import evaluation_families, families, families_of, shares_shape
from ptxbench.tasks import get_task, load_tasks


def test_masks_and_ragged_sizes_make_no_family_of_their_own() -> None:
    family = families()
    assert {family[name] for name in family if name.startswith("mha_fwd_d128")} == {"mha_fwd_d128"}
    assert {family[name] for name in family if name.startswith("mha_bwd_d128")} == {"mha_bwd_d128"}
    assert family["gemm_ragged"] == family["gemm_n7168_k5120"] == "gemm_ragged"


def test_layout_dtype_epilogue_and_head_size_do() -> None:
    family = families()
    training = [name for name, task in load_tasks().items() if task.suite == "training"]
    assert len({family[name] for name in training}) == 9
    assert family["mha_fwd_d64_causal"] == "mha_fwd_d64" != family["mha_fwd_d96"]


def test_a_renamed_task_keeps_its_family() -> None:
    task = get_task("mha_fwd_d128")
    renamed = task.model_copy(update={"name": "mine", "suite": "training"})
    family = families({**load_tasks(), "mine": renamed})
    assert family["mine"] == family["mha_fwd_d128"]


def test_families_of_evaluation_tasks_are_held_out() -> None:
    held_out = evaluation_families()
    assert held_out == {"gemm_ragged", "mha_fwd_d128", "mha_bwd_d128"}
    training = {name for name, task in load_tasks().items() if task.suite == "training"}
    assert not families_of(training) & held_out


def test_timed_sizes_of_evaluation_tasks_are_recognised() -> None:
    gemm = get_task("gemm_f16")
    assert shares_shape(gemm, {"M": 8192, "N": 7168, "K": 5120}) == "gemm_n7168_k5120"
    assert shares_shape(gemm, {"M": 4096, "N": 4096, "K": 4096}) == ""
    assert shares_shape(get_task("mha_fwd_d64"), {"B": 4, "H": 48, "S": 4096, "D": 64}) == ""
