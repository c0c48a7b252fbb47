from __future__ import annotations

import re
from collections import Counter

import pytest
from adapt_verdicts import some_variants

from ptxbench.adapt.data.explain import explain_variant
from ptxbench.adapt.data.families import designs, label, load_families
from ptxbench.adapt.data.gemm import GemmDesign, plan_gemm
from ptxbench.adapt.data.plan import laid_out
from ptxbench.adapt.data.standalone import definitions, stand_alone
from ptxbench.core import Target
from ptxbench.solutions import include_dir
from ptxbench.tasks import get_task, load_tasks

ONE_OF_EACH = [(family.name, task) for family in load_families() for task in family.tasks]


def test_every_training_task_has_kernels_for_both_targets() -> None:
    covered = {(task, family.target) for family in load_families() for task in family.tasks}
    training = {name for name, task in load_tasks().items() if task.suite == "training"}
    assert covered == {(task, target) for task in training for target in Target}


@pytest.mark.parametrize(("family", "task"), ONE_OF_EACH)
def test_kernels_are_rendered_with_facts_and_an_explanation(family: str, task: str) -> None:
    for variant in some_variants(family, task, 3):
        assert variant.source.count('extern "C" int launch(') == 1
        assert "<$" not in variant.source
        assert "<%" not in variant.source
        assert not re.search(r"\n\n\n|\n\n[ \t]*}\n|[ \t]\n", variant.source)
        assert Counter(variant.source)["{"] == Counter(variant.source)["}"]
        text = explain_variant(variant, dict(get_task(task).of_tier("core")[0].sizes))
        assert str(variant.plan.facts["shared_bytes"]) in text
        for barrier in variant.plan.facts["barriers"]:
            assert f"`{barrier.name}`" in text
            assert re.search(rf"uint64_t [^;]*\b{barrier.name}\b", variant.source), barrier.name


def test_designs_are_products_of_lists() -> None:
    rows = ({"tile_n": [64, 128], "schedule": "ring", "stages": 4},)
    family = load_families()[0].model_copy(update={"designs": rows})
    assert [label(design) for design in designs(family)] == ["n64-ring-s4", "n128-ring-s4"]


def test_names_are_unique() -> None:
    names = [variant.name for family, task in ONE_OF_EACH[:3] for variant in some_variants(family, task, 200)]
    assert len(set(names)) == len(names)


def test_a_ring_that_does_not_fit_is_left_out() -> None:
    task = get_task("gemm_f16")
    fits = GemmDesign(schedule="warp", consumers=2, tile_n=256, stages=4, store="direct")
    plan = plan_gemm(task, Target.SM_90A, fits)
    assert plan is not None
    assert plan.facts["stage_bytes"] == (128 + 256) * 64 * 2
    assert plan.facts["shared_bytes"] == 4 * (128 + 256) * 64 * 2 + 1024  # 8 barriers of 8 bytes, aligned to 1024
    assert plan_gemm(task, Target.SM_90A, fits.model_copy(update={"stages": 5})) is None


def test_each_cta_of_a_pair_holds_half_of_b() -> None:
    design = GemmDesign(schedule="warps", tile_n=256, stages=4, pair=True, persistent=True, accumulators=2)
    plan = plan_gemm(get_task("gemm_b_kn"), Target.SM_100A, design)
    assert plan is not None
    assert "cta_pair" in plan.techniques
    assert plan.facts["stage_bytes"] == (128 + 256 // 2) * 64 * 2
    assert plan.facts["shared_bytes"] == 4 * plan.facts["stage_bytes"] + 1024  # 12 barriers and the address
    assert {barrier.name: barrier.arrivals for barrier in plan.facts["barriers"]} == {
        "full": 1, "empty": 1, "ready": 1, "drained": 8,
    }  # fmt: skip
    half_a_panel = design.model_copy(update={"tile_n": 64, "accumulators": 1})
    assert plan_gemm(get_task("gemm_b_kn"), Target.SM_100A, half_a_panel) is None
    assert plan_gemm(get_task("gemm_f16"), Target.SM_100A, design.model_copy(update={"cluster": "m"})) is None


def test_the_plan_of_a_pair_states_what_both_ctas_send() -> None:
    (variant,) = some_variants("gemm_blackwell_pair", "gemm_f16", 1)
    text = explain_variant(variant, {"M": 4096, "N": 4096, "K": 4096})
    assert variant.design["tile_n"] == 256
    assert "256x256 of C, 128 rows each" in text
    assert f"{2 * variant.plan.facts['stage_bytes']} in all" in text
    assert "256 tiles and 64 steps" in text


def test_designs_that_teach_pairs_and_specialised_warps_exist_for_blackwell() -> None:
    found = {
        family.name: Counter(name for variant in some_variants(family.name, family.tasks[0], 200)
                             for name in variant.plan.techniques)
        for family in load_families() if family.target is Target.SM_100A
    }  # fmt: skip
    assert found["gemm_blackwell_pair"]["cta_pair"] > 0
    assert found["gemm_blackwell_cluster"]["multicast"] > 0
    assert {"specialised_warps", "correction_warps", "lazy_rescale"} <= set(found["forward_blackwell_warps"])
    assert {"specialised_warps", "weights_in_tmem", "recomputation"} <= set(found["backward_blackwell_warps"])


def test_members_are_laid_out_as_in_cpp() -> None:
    assert laid_out([(10, 2), (8, 8), (1, 1)]) == 32
    assert laid_out([(1024, 1024), (8, 8)]) == 2048


def test_standalone_kernels_define_what_they_use() -> None:
    source = next(v.source for v in some_variants("gemm_hopper", "gemm_a_km", 60) if v.design.get("standalone"))
    assert "#include <ptxbench/" not in source
    used = set(re.findall(r"ptx::(\w+)", source))
    for name in used:
        assert re.search(rf"\b{name}\b[^;]*[({{]", source.partition("}  // namespace ptx")[0]), name


def test_standalone_kernels_bring_the_macros_of_what_they_use() -> None:
    source = next(v.source for v in some_variants("gemm_blackwell", "gemm_a_km", 60) if v.design.get("standalone"))
    assert "PTX_OUT8(0)" in source
    assert set(re.findall(r"\bPTX_\w+", source)) == set(re.findall(r"#define (PTX_\w+)", source))


def test_a_kernel_that_uses_what_macros_define_cannot_stand_alone() -> None:
    source = "#include <ptxbench/ptx/wgmma.cuh>\nvoid f() { ptx::wgmma_m64n64k16_bf16_ss(d, a, b, true); }\n"
    with pytest.raises(ValueError, match="wgmma_m64n64k16_bf16_ss is not a plain definition"):
        stand_alone(source, include_dir())


def test_definitions_of_the_header_set_are_told_apart() -> None:
    found = definitions(include_dir(), ("mbarrier", "address", "descriptors"))
    assert {"shared_address", "mbarrier_init", "mbarrier_wait_parity", "Swizzle", "wgmma_descriptor"} <= set(found)
    assert found["mbarrier_init"].text.startswith("// Sets up a barrier")
