import pytest

from ptxbench.core import Task, UsageError
from ptxbench.tasks import get_task, load_tasks, sizes_problem
from ptxbench.tasks.suite import check


@pytest.fixture
def gemm() -> Task:
    return get_task("gemm_n7168_k5120")


def test_every_row_loads_under_its_own_name() -> None:
    tasks = load_tasks()
    assert "gemm_n7168_k5120" in tasks
    assert all(name == task.name for name, task in tasks.items())


def test_every_row_has_all_tiers_and_follows_its_own_size_rules() -> None:
    for task in load_tasks().values():
        assert {w.tier for w in task.workloads} == {"core", "small", "heldout"}
        assert [sizes_problem(task, w.sizes) for w in task.workloads] == [""] * len(task.workloads)


def test_suites_divide_the_rows() -> None:
    suites = [set(load_tasks(suite)) for suite in ("core", "extended", "training")]
    assert set.union(*suites) == set(load_tasks()) and sum(map(len, suites)) == len(load_tasks())
    assert suites[0] == {
        "gemm_n7168_k5120", "mha_fwd_d128", "mha_fwd_d128_causal", "mha_bwd_d128", "mha_bwd_d128_causal"
    }  # fmt: skip
    assert len(suites[1]) == 5 and len(suites[2]) == 12
    assert all(len(task.title) < 90 for task in load_tasks().values())


@pytest.mark.parametrize("name", load_tasks("extended"))
def test_extended_rows_have_sizes_that_no_tile_divides(name: str) -> None:
    task = get_task(name)
    ragged = [s for w in task.workloads for s, v in w.sizes.items() if s not in task.fixed_sizes and v % 64 and v > 64]
    assert len(ragged) >= len(task.workloads)


def test_attention_rows_are_the_published_shapes_and_signatures() -> None:
    for name in ("mha_fwd_d128", "mha_fwd_d128_causal", "mha_bwd_d128", "mha_bwd_d128_causal"):
        task = get_task(name)
        assert task.of_tier("core")[0].sizes == {"B": 4, "H": 48, "S": 4096, "D": 128}
        assert task.options["causal"] == name.endswith("causal")
        assert all(w.sizes["S"] >= 256 for w in task.workloads)
    bf16 = [("const __nv_bfloat16*", name) for name in ("Q", "K", "V", "O", "dO")]
    sizes = [("int", name) for name in "BHSD"]
    assert list(get_task("mha_fwd_d128").parameters()[:9]) == [
        *bf16[:3], ("__nv_bfloat16*", "O"), ("float*", "LSE"), *sizes
    ]  # fmt: skip
    assert list(get_task("mha_bwd_d128").parameters()[:13]) == [
        *bf16, ("const float*", "LSE"), *(("__nv_bfloat16*", name) for name in ("dQ", "dK", "dV")), *sizes
    ]  # fmt: skip


def test_gemm_row_is_the_published_shape_and_signature(gemm: Task) -> None:
    assert gemm.of_tier("core")[0].sizes == {"M": 8192, "N": 7168, "K": 5120}
    assert gemm.parameters()[:6] == (
        ("const __nv_bfloat16*", "A"), ("const __nv_bfloat16*", "B"), ("__nv_bfloat16*", "C"),
        ("int", "M"), ("int", "N"), ("int", "K"),
    )  # fmt: skip


def test_small_tier_is_deep_enough_for_an_eight_stage_ring(gemm: Task) -> None:
    sizes = [w.sizes for w in gemm.of_tier("small", "heldout")]
    assert all(s["K"] >= 1024 for s in sizes)
    assert sizes[0]["K"] >= 3 * 8 * 64
    assert any(s["M"] != s["N"] for s in sizes)


def test_unknown_name_lists_close_ones() -> None:
    with pytest.raises(UsageError, match="did you mean gemm_n7168_k5120"):
        get_task("gemm_n7168_k512")


@pytest.mark.parametrize(
    ("sizes", "words"),
    [({"M": 128, "N": 128}, "exactly the sizes"), ({"M": 128, "N": 128, "K": 32}, "K=32"),
     ({"M": 0, "N": 128, "K": 64}, "M=0")],
)  # fmt: skip
def test_sizes_outside_the_rules_are_named(gemm: Task, sizes: dict[str, int], words: str) -> None:
    assert words in sizes_problem(gemm, sizes)


def test_a_fixed_size_is_named() -> None:
    sizes = {"B": 1, "H": 1, "S": 256, "D": 256}
    assert sizes_problem(get_task("mha_fwd_d128"), sizes) == "size D=256 of task 'mha_fwd_d128' must be 128"


def test_a_row_that_contradicts_itself_is_refused(gemm: Task) -> None:
    with pytest.raises(ValueError, match=r"unknown distributions \['cauchy'\]; unknown operation 'qr'"):
        check(gemm.model_copy(update={"distributions": ("cauchy",), "operation": "qr"}))
    with pytest.raises(ValueError, match=r"unknown sizes \['D'\]"):
        check(gemm.model_copy(update={"fixed_sizes": {"D": 64}}))
