"""Training recipes, what memory they need, and what they reward."""

from __future__ import annotations

from pathlib import Path

import pytest
from training_data import recipe_file

from ptxbench.adapt.training import RlRecipe, TrainingRecipe, accelerate_config, check_launch, fits, memory_per_gpu
from ptxbench.adapt.training import load_training_recipe as load
from ptxbench.adapt.training.reward import TIERS, check_tiers, judge_reply, paid, tier_of
from ptxbench.core import Candidate, Outcome, Target, UsageError, Verdict

RECIPES = Path(__file__).parents[2] / "recipes"
TRAINING = sorted(path for path in RECIPES.glob("*.toml") if 'kind = "supervised"' in path.read_text())


@pytest.mark.parametrize("path", TRAINING, ids=lambda path: path.stem)
def test_every_recipe_of_ours_loads(path: Path) -> None:
    assert isinstance(load(path), TrainingRecipe)


def test_the_rl_recipe_loads() -> None:
    recipe = load(RECIPES / "small-grpo.toml")
    assert isinstance(recipe, RlRecipe)
    check_tiers(recipe.tiers)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("kind = 'supervised'\nname = ", "is not TOML"),
        ("kind = 'expert'", "is not for training: its kind is 'expert'"),
        ("kind = 'supervised'\nname = 'x'", "is wrong at max_tokens: Field required"),
    ],
)
def test_a_wrong_recipe_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=sentence):
        load(path)


def test_phases_name_listed_data_sets(tmp_path: Path) -> None:
    path = recipe_file(tmp_path)
    path.write_text(path.read_text().replace("share = { expert = 1.0 }", "share = { mined = 1.0 }"))
    with pytest.raises(UsageError, match="not listed: mined"):
        load(path)


def qwen() -> TrainingRecipe:
    recipe = load(RECIPES / "qwen3.6-27b-lora.toml")
    assert isinstance(recipe, TrainingRecipe)
    return recipe


def test_memory_of_the_27b_recipe_worked_out_by_hand() -> None:
    memory = memory_per_gpu(qwen(), 32768)
    assert memory.weights == pytest.approx(2 * 26.9e9 / 8 / 2**30)
    assert memory.trained == pytest.approx(16 * 32 * 6.7994e6 / 8 / 2**30)
    assert memory.checkpoints == pytest.approx(20.0)  # 2 bytes × 32768 tokens × 5120 × 64 layers
    assert 38 < memory.total < 44
    assert 65 < memory_per_gpu(qwen(), 65536).total < 75


def test_a_recipe_that_cannot_fit_is_refused() -> None:
    recipe = qwen()
    small = recipe.model_copy(update={"layout": recipe.layout.model_copy(update={"gib_per_gpu": 24.0})})
    with pytest.raises(UsageError, match="needs about 41 GiB on each of 8 GPUs of 24 GiB"):
        fits(small)


def test_several_gpus_are_started_by_accelerate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(UsageError, match="accelerate launch --config_file"):
        check_launch(qwen(), Path("recipe.toml"), tmp_path)
    assert (tmp_path / "accelerate.yaml").read_text() == accelerate_config(qwen())
    assert "fsdp_transformer_layer_cls_to_wrap: Qwen3_5DecoderLayer" in accelerate_config(qwen())
    assert "mixed_precision: \"bf16\"" in accelerate_config(qwen())
    exact = qwen().model_copy(update={"model": qwen().model.model_copy(update={"dtype": "float32"})})
    assert "mixed_precision: \"no\"" in accelerate_config(exact)  # without quotes, YAML reads a truth value
    monkeypatch.setenv("WORLD_SIZE", "8")
    check_launch(qwen(), Path("recipe.toml"), tmp_path)
    with pytest.raises(UsageError, match="learns nothing that 8 GPUs could share"):
        check_launch(qwen().model_copy(update={"phases": ()}), Path("recipe.toml"), tmp_path)


class Judge:
    """Answers with one verdict, as an evaluator elsewhere would."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def evaluate(self, candidate: Candidate) -> Verdict:
        return Verdict.model_construct(outcome=self.outcome, timing=None)


KERNEL = '```cuda\n__global__ void k() {}\nextern "C" int launch() { k<<<1, 1>>>(); return 0; }\n```'


def test_replies_reach_tiers() -> None:
    def tier(reply: str, outcome: Outcome = Outcome.PASSED) -> str:
        return judge_reply(Judge(outcome), "gemm_f16", Target.SM_90A, reply, "test")[0]

    assert tier("I like matrices.") == ""
    assert tier("```cuda\nint x;\n```") == "code"
    assert tier(KERNEL, Outcome.COMPILE_ERROR) == "complete"
    assert tier(KERNEL, Outcome.CONTRACT_ERROR) == "compiles"
    assert tier(KERNEL, Outcome.WRONG_RESULT) == "launches"
    assert tier(KERNEL) == "instructions"


def test_every_outcome_has_a_tier() -> None:
    ranks = [TIERS.index(tier_of(Judge(outcome).evaluate(None))) for outcome in Outcome]  # type: ignore[arg-type]
    assert ranks == sorted(ranks)


def test_what_is_paid_is_the_highest_paid_tier() -> None:
    tiers = {"code": 0.1, "compiles": 0.5}
    assert [paid(tiers, tier) for tier in ("", "code", "complete", "compiles", "correct")] == [0, 0.1, 0.1, 0.5, 0.5]
    with pytest.raises(UsageError, match="pay more than nothing"):
        check_tiers({"code": 0.5, "compiles": 0.5})
    with pytest.raises(UsageError, match="unknown tiers: speed"):
        check_tiers({"speed": 1.0})
