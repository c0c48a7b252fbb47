"""From rows to labels: what is learnt, what is too long, in what order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from training_data import recipe_file, row, write

from ptxbench.adapt import read_rows
from ptxbench.adapt.training import TrainingRecipe, load_training_recipe
from ptxbench.core import UsageError

pytest.importorskip("torch")
pytest.importorskip("trl")
pytest.importorskip("pyarrow")

from ptxbench.adapt.training.labels import UNLEARNT, check_labels, encode
from ptxbench.adapt.training.material import curriculum, load_material
from ptxbench.adapt.training.models import tiny_tokenizer


@pytest.fixture(scope="module")
def qwen_tokenizer() -> Any:
    texts = [message.content for number in range(6) for message in row("repair", number).conversation]
    return tiny_tokenizer("qwen3_5", texts)


def recipe_in(folder: Path, **chosen: Any) -> TrainingRecipe:
    recipe = load_training_recipe(recipe_file(folder, **chosen))
    assert isinstance(recipe, TrainingRecipe)
    return recipe


@pytest.mark.parametrize(("kind", "loss"), [("expert", "assistant"), ("repair", "completion")])
def test_labels_are_exactly_the_answer(qwen_tokenizer: Any, kind: str, loss: Any) -> None:
    one = row(kind, 1)
    example = encode(qwen_tokenizer, kind, one, loss)
    learnt = qwen_tokenizer.decode([label for label in example.labels if label != UNLEARNT])
    answer = one.conversation[-1]
    assert learnt.endswith("```<|im_end|>")
    assert answer.content.strip() in learnt
    assert learnt.startswith(answer.reasoning_content)
    assert "Task mha_fwd_d64" not in learnt
    assert "every element differs" not in learnt
    check_labels(qwen_tokenizer, example.input_ids, example.labels, example)


def test_every_turn_of_the_assistant_is_learnt_with_a_known_template(qwen_tokenizer: Any) -> None:
    example = encode(qwen_tokenizer, "repair", row("repair", 1), "assistant")
    learnt = qwen_tokenizer.decode([label for label in example.labels if label != UNLEARNT])
    assert "scale_2<<<" in learnt
    assert "scale_1<<<" in learnt
    assert "every element differs" not in learnt


def test_labels_beyond_the_answer_are_refused(qwen_tokenizer: Any) -> None:
    example = encode(qwen_tokenizer, "repair", row("repair", 1), "completion")
    with pytest.raises(UsageError, match=r"more than the answer|lost labels"):
        check_labels(qwen_tokenizer, example.input_ids, example.input_ids, example)


def test_cut_rows_are_noticed(qwen_tokenizer: Any) -> None:
    example = encode(qwen_tokenizer, "repair", row("repair", 1), "completion")
    with pytest.raises(UsageError, match="the trainer cut it"):
        check_labels(qwen_tokenizer, example.input_ids[:-5], example.labels[:-5], example)


def test_a_template_without_reasoning_is_refused() -> None:
    tokenizer = tiny_tokenizer("llama", [row("expert", 1).conversation[-1].content])
    example = encode(tokenizer, "expert", row("expert", 1), "completion")
    with pytest.raises(UsageError, match=r"reasoning of the answer .* would not be learnt"):
        check_labels(tokenizer, example.input_ids, example.labels, example)
    inline = encode(tokenizer, "expert", row("expert", 1, reasoning="inline"), "completion")
    check_labels(tokenizer, inline.input_ids, inline.labels, inline)


def test_long_rows_are_counted_and_left_out(tmp_path: Path, qwen_tokenizer: Any) -> None:
    write(tmp_path / "expert", "expert", long=4000)
    write(tmp_path / "repair", "repair")
    material = load_material(recipe_in(tmp_path), qwen_tokenizer)
    expert = material.uses[0]
    assert expert.too_long == {"train": 1, "validation": 0}
    assert (expert.rows, expert.train, expert.validation) == (9, 5, 3)
    assert expert.longest > 2048
    assert max(len(e.input_ids) for examples in material.train.values() for e in examples) <= 2048


def test_nothing_left_is_an_error(tmp_path: Path, qwen_tokenizer: Any) -> None:
    write(tmp_path / "expert", "expert")
    write(tmp_path / "repair", "repair")
    with pytest.raises(UsageError, match="fits into 64 tokens"):
        load_material(recipe_in(tmp_path, max_tokens=64), qwen_tokenizer)


def test_another_data_set_than_the_recipes_is_refused(tmp_path: Path, qwen_tokenizer: Any) -> None:
    write(tmp_path / "expert", "expert")
    write(tmp_path / "repair", "repair")
    recipe = recipe_in(tmp_path)
    data = (recipe.data[0].model_copy(update={"digest": "0" * 64}), recipe.data[1])
    with pytest.raises(UsageError, match="the recipe asks for 0000"):
        load_material(recipe.model_copy(update={"data": data}), qwen_tokenizer)
    (tmp_path / "repair" / "train.parquet").write_bytes((tmp_path / "repair" / "validation.parquet").read_bytes())
    with pytest.raises(UsageError, match=r"not those of its build\.json"):
        load_material(recipe, qwen_tokenizer)


def test_the_curriculum_keeps_its_phases_and_follows_from_the_seed(tmp_path: Path, qwen_tokenizer: Any) -> None:
    write(tmp_path / "expert", "expert")
    write(tmp_path / "repair", "repair")
    recipe = recipe_in(tmp_path)
    train = load_material(recipe, qwen_tokenizer).train
    order = curriculum(recipe.phases, train, 0)
    assert [e.data for e in order[:6]] == ["expert"] * 6
    assert sum(e.data == "expert" for e in order[6:]) == 2 * 3
    assert sum(e.data == "repair" for e in order[6:]) == 2 * 6
    assert order == curriculum(recipe.phases, train, 0)
    assert order != curriculum(recipe.phases, train, 1)
    assert len(read_rows(tmp_path / "expert")) == 9
