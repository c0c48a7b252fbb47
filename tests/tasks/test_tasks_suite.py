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


def test_a_row_that_contradicts_itself_is_refused(gemm: Task) -> None:
    with pytest.raises(ValueError, match=r"unknown distributions \['cauchy'\]; unknown operation 'qr'"):
        check(gemm.model_copy(update={"distributions": ("cauchy",), "operation": "qr"}))
