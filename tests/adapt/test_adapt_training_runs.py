"""Whole trainings on tiny random models: rehearsal, kill and resume, merging, replies and their comparison."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from training_data import recipe_file, row, write

from ptxbench.adapt.training import (
    TrainingRecipe,
    judge_trainings,
    load_training_recipe,
    merge,
    prepare,
    read_record,
    read_samples,
    rehearse,
    train,
    write_samples,
)
from ptxbench.core import Candidate, UsageError, Verdict

pytest.importorskip("torch")
pytest.importorskip("trl")
pytest.importorskip("peft")
pytest.importorskip("pyarrow")
pytestmark = pytest.mark.slow
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the models are tiny, and threads that wait for each other cost more

from ptxbench.adapt.training.models import tiny_model, tiny_tokenizer  # noqa: E402

SAMPLES = """
[validation]
every = 4
patience = 9
[samples]
data = ["repair"]
prompts = 2
per_prompt = 1
new_tokens = 8
"""


def say(_stage: str) -> None:
    """Says nothing."""


def data_in(folder: Path, reasoning: str = "inline") -> None:
    write(folder / "expert", "expert", reasoning=reasoning)
    write(folder / "repair", "repair", reasoning=reasoning)


def small(folder: Path, more: str = SAMPLES) -> tuple[Path, TrainingRecipe]:
    """A recipe on a tiny base that lies on disk."""
    tokenizer = tiny_tokenizer("llama", [m.content for n in range(9) for m in row("repair", n).conversation])
    tiny_model("llama", tokenizer, 0).save_pretrained(folder / "tiny")
    tokenizer.save_pretrained(folder / "tiny")
    path = recipe_file(folder, architecture="llama", more=more)
    path.write_text(path.read_text().replace('base = "nowhere"', f'base = "{folder}/tiny"\ndtype = "float32"'))
    recipe = load_training_recipe(path)
    assert isinstance(recipe, TrainingRecipe)
    return path, recipe


def test_a_dry_run_goes_the_whole_way_on_the_hybrid_architecture(tmp_path: Path) -> None:
    data_in(tmp_path, reasoning="field")
    recipe = load_training_recipe(recipe_file(tmp_path))
    assert isinstance(recipe, TrainingRecipe)
    done = rehearse(recipe, tmp_path / "out", say)
    assert (done.steps, done.resumed_at) == (4, 2)
    assert done.trained_parameters > 0
    assert set(done.validation) == {"expert", "expert/gemm_bias_gelu", "repair", "repair/gemm_bias_gelu"}
    merged = json.loads((tmp_path / "out" / "merged" / "config.json").read_text())
    assert merged["model_type"] == "qwen3_5_text"


RUN = """
import sys
from pathlib import Path
from ptxbench.adapt.training import load_training_recipe, prepare, train
folder = Path(sys.argv[2])
prepared = prepare(load_training_recipe(Path(sys.argv[1])), folder, print)
train(prepared, folder, lambda stage: print(stage, flush=True), resume=len(sys.argv) > 3)
"""


def test_a_killed_training_resumes_to_the_same_losses(tmp_path: Path) -> None:
    data_in(tmp_path)
    path, recipe = small(tmp_path)
    whole = train(prepare(recipe, tmp_path / "whole", say), tmp_path / "whole", say)
    command = [sys.executable, "-c", RUN, str(path), str(tmp_path / "killed")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("step 6 of"):
                process.send_signal(signal.SIGKILL)
                break
        process.wait(60)
    assert process.returncode == -signal.SIGKILL
    assert not read_record(tmp_path / "killed").finished
    (tmp_path / "killed" / "checkpoint-5").mkdir()  # as one that was begun and not ended
    resumed = subprocess.run([*command, "resume"], capture_output=True, text=True, check=False)
    assert resumed.returncode == 0, resumed.stderr[-2000:]
    record = read_record(tmp_path / "killed")
    assert record.resumed_at == (4,)
    assert record.steps == whole.steps
    assert record.losses == pytest.approx(whole.losses, rel=1e-5)
    assert [e["loss"] for e in record.history if "loss" in e] == pytest.approx(
        [e["loss"] for e in whole.history if "loss" in e], rel=1e-4
    )


def test_a_training_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    data_in(tmp_path)
    _, recipe = small(tmp_path)
    whole = train(prepare(recipe, tmp_path / "whole", say), tmp_path / "whole", say)
    stopped = train(prepare(recipe, tmp_path / "parts", say), tmp_path / "parts", say, max_steps=5)
    assert (stopped.steps, stopped.stopped_early) == (5, False)
    ended = train(prepare(recipe, tmp_path / "parts", say), tmp_path / "parts", say, resume=True)
    assert ended.resumed_at == (5,)
    assert ended.losses == pytest.approx(whole.losses, rel=1e-5)


def test_training_learns_and_its_replies_are_compared(tmp_path: Path) -> None:
    data_in(tmp_path)
    _, recipe = small(tmp_path)
    base = recipe.model_copy(update={"name": "base", "phases": (), "lora": None})
    folders: list[Path] = []
    for chosen in (base, recipe, recipe.model_copy(update={"seed": 1})):
        folder = tmp_path / f"{chosen.name}-{chosen.seed}"
        prepared = prepare(chosen, folder, say)
        train(prepared, folder, say)
        folders.append(folder)
    assert write_samples(folders, say) == 6

    class Judge:
        def evaluate(self, candidate: Candidate) -> Verdict:
            raise AssertionError("a random model writes no kernel")

    found = judge_trainings(folders, Judge(), "none", say)
    untrained, trained = found.arms
    assert (untrained.seeds, trained.seeds) == ((0,), (0, 1))
    assert trained.losses["repair"].most < untrained.losses["repair"].mean
    assert trained.replies["repair"].reached["complete"].value == 0
    assert len(read_samples(folders[0])) == 2
    assert {s.row for s in read_samples(folders[0])} == {s.row for s in read_samples(folders[2])}

    merged = merge(folders[1], tmp_path / "merged", say)
    assert (merged / "model.safetensors").exists()
    with pytest.raises(UsageError, match="a whole model, not an adapter"):
        merge(folders[0], tmp_path / "merged0", say)
    wider = tmp_path / "wider"
    other = tiny_model("qwen3_5", prepared.tokenizer, 0)
    other.save_pretrained(wider)
    prepared.tokenizer.save_pretrained(wider)
    with pytest.raises(UsageError, match="does not fit the base"):
        merge(folders[1], tmp_path / "wrong", say, base=str(wider))


RL = """
kind = "grpo"
name = "test-rl"
steps = 4
group = 2
new_tokens = 12
learning_rate = 1e-3
every = 2
[model]
base = "{base}"
dtype = "float32"
[tiers]
code = 0.1
compiles = 1.0
[[prompts]]
task = "gemm_f16"
target = "sm_90a"
text = "Write a kernel."
"""

RL_RUN = """
import sys
from pathlib import Path
from ptxbench.adapt.training import load_training_recipe, reinforce
class Judge:
    def evaluate(self, candidate):
        raise AssertionError("a random model writes no kernel")
reinforce(load_training_recipe(Path(sys.argv[1])), Judge(), Path(sys.argv[2]), lambda stage: print(stage, flush=True),
          resume=len(sys.argv) > 3)
"""


def test_a_killed_reinforcement_goes_on_with_the_replies_that_it_would_have_had(tmp_path: Path) -> None:
    small(tmp_path)
    path = tmp_path / "rl.toml"
    path.write_text(RL.format(base=tmp_path / "tiny"))
    command = [sys.executable, "-c", RL_RUN, str(path)]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    with subprocess.Popen([*command, str(tmp_path / "killed")], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("step 3 of"):
                process.send_signal(signal.SIGKILL)
                break
        process.wait(60)
    assert not read_record(tmp_path / "killed").finished
    subprocess.run([*command, str(tmp_path / "killed"), "resume"], check=True, capture_output=True)
    whole, resumed = read_record(tmp_path / "whole"), read_record(tmp_path / "killed")
    assert (resumed.resumed_at, resumed.steps, resumed.finished) == ((2,), 4, True)
    assert resumed.recipe_digest == whole.recipe_digest
    told = [[entry.get("entropy") for entry in record.history if "reward" in entry] for record in (whole, resumed)]
    assert len(told[0]) == 4
    assert told[1] == pytest.approx(told[0], rel=1e-4)
    again = subprocess.run([*command, str(tmp_path / "killed")], check=False, capture_output=True, text=True)
    assert "holds a training already" in again.stderr


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    data_in(tmp_path)
    _, recipe = small(tmp_path, more="")
    folder = tmp_path / "out"
    train(prepare(recipe, folder, say), folder, say, max_steps=1)
    with pytest.raises(UsageError, match="holds a training already"):
        train(prepare(recipe, folder, say), folder, say)
    with pytest.raises(UsageError, match="another recipe or seed"):
        train(prepare(recipe.model_copy(update={"seed": 5}), folder, say), folder, say, resume=True)
    with pytest.raises(UsageError, match="no linear layer named in_proj_qkv"):
        lora = recipe.lora and recipe.lora.model_copy(update={"targets": ("in_proj_qkv",)})
        prepare(recipe.model_copy(update={"lora": lora}), tmp_path / "other", say)
    gone = recipe.model.model_copy(update={"base": str(tmp_path / "gone")})
    with pytest.raises(UsageError, match="cannot load the tokenizer"):
        prepare(recipe.model_copy(update={"model": gone}), tmp_path / "other", say)
    (tmp_path / "tiny" / "model.safetensors").write_bytes(b"cut off")
    started = time.monotonic()
    with pytest.raises(UsageError, match="download was interrupted"):
        prepare(recipe, tmp_path / "other", say)
    assert time.monotonic() - started < 60
