"""Training that is spread over two processes with FSDP2: the same losses, checkpoints and adapter as in one process."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from training_data import row, write

from ptxbench.adapt.training import TrainingRecipe, load_training_recipe, merge, prepare, read_record, train
from ptxbench.core import InfrastructureError, UsageError

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytest.importorskip("peft")
pytest.importorskip("pyarrow")
pytestmark = pytest.mark.slow
os.environ.setdefault("OMP_NUM_THREADS", "1")

from ptxbench.adapt.training.layout import accelerate_config  # noqa: E402
from ptxbench.adapt.training.models import tiny_model, tiny_tokenizer  # noqa: E402

RECIPE = """
kind = "supervised"
name = "spread"
max_tokens = 2048
[model]
base = "{folder}/tiny"
architecture = "llama"
dtype = "{dtype}"
{lora}
[[data]]
name = "repair"
path = "{folder}/repair"
loss = "completion"
[[phases]]
name = "all"
share = {{ repair = 1.0 }}
[optimizer]
learning_rate = 5e-3
accumulate = {accumulate}
[validation]
every = 3
patience = 9
[layout]
gpus = {gpus}
wrap = "LlamaDecoderLayer"
"""
LORA = """
[lora]
rank = 4
alpha = 8
targets = ["q_proj", "v_proj", "down_proj"]
"""
ADAPTED = 6  # three layers in each of the model's two blocks


def say(stage: str) -> None:
    """Says nothing."""


def recipe_for(folder: Path, gpus: int, dtype: str, lora: str = LORA) -> Path:
    """Steps see the same two rows, on any number of processes."""
    path = folder / f"{gpus}-{dtype}-{len(lora)}.toml"
    path.write_text(RECIPE.format(folder=folder, dtype=dtype, gpus=gpus, accumulate=2 // gpus, lora=lora))
    return path


def loaded(path: Path) -> TrainingRecipe:
    recipe = load_training_recipe(path)
    assert isinstance(recipe, TrainingRecipe)
    return recipe


def spread(recipe: Path, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """`ptxbench train` in two processes, as `accelerate launch` starts it."""
    config = out.with_suffix(".yaml")
    config.write_text(accelerate_config(loaded(recipe)))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(__file__).with_name("fsdp_on_cpu.py")
    return subprocess.run(
        [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config),
         "--main_process_port", str(port), str(script), "train", str(recipe), "-o", str(out), *more],
        capture_output=True, text=True, check=False, timeout=500,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip


def losses(folder: Path) -> list[float]:
    return [entry["loss"] for entry in read_record(folder).history if "loss" in entry]


def weights(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = pytest.importorskip("safetensors.torch").load_file(path)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base, a data set, and a training in one process of 6 steps."""
    folder = tmp_path_factory.mktemp("spread")
    write(folder / "repair", "repair", 18, reasoning="inline")
    tokenizer = tiny_tokenizer("llama", [m.content for n in range(9) for m in row("repair", n).conversation])
    tiny_model("llama", tokenizer, 0).save_pretrained(folder / "tiny")
    tokenizer.save_pretrained(folder / "tiny")
    recipe = loaded(recipe_for(folder, 1, "float32"))
    train(prepare(recipe, folder / "one", say), folder / "one", say)
    return folder


def test_two_processes_train_resume_and_merge_as_one_does(folder: Path) -> None:
    recipe, two = recipe_for(folder, 2, "float32"), folder / "two"
    for more in (["--steps", "3"], ["--resume"]):
        run = spread(recipe, two, *more)
        assert run.returncode == 0, run.stderr[-3000:]
    record, alone = read_record(two), read_record(folder / "one")
    assert (record.steps, record.resumed_at, record.finished) == (6, (3,), True)
    assert losses(two) == pytest.approx(losses(folder / "one"), abs=2e-4)
    assert record.losses == pytest.approx(alone.losses, abs=2e-4)
    base = weights(folder / "tiny" / "model.safetensors")
    merged = [weights(merge(folder / name, folder / f"merged-{name}", say) / "model.safetensors")
              for name in ("two", "one")]  # fmt: skip
    assert sum(not torch.equal(merged[0][name], base[name]) for name in base) == ADAPTED
    assert max(float((a - merged[1][name]).abs().max()) for name, a in merged[0].items()) < 1e-4

    # A checkpoint that the libraries would restore only in part ends the training.
    shutil.rmtree(two / "checkpoint-6")
    norms = two / "checkpoint-3" / "norms.json"
    kept: dict[str, float] = json.loads(norms.read_text())
    assert sum("exp_avg_sq" in name for name in kept) == 2 * ADAPTED
    norms.write_text(json.dumps({name: norm * 1.01 for name, norm in kept.items()}))
    run = spread(recipe, two, "--resume")
    assert run.returncode != 0
    assert "checkpoint-3 was not restored" in run.stderr


def test_bfloat16_is_not_coarser_in_two_processes(folder: Path) -> None:
    recipe, out = recipe_for(folder, 2, "bfloat16"), folder / "half"
    run = spread(recipe, out, "--steps", "3")
    assert run.returncode == 0, run.stderr[-3000:]
    assert losses(out) == pytest.approx(losses(folder / "one")[:3], abs=5e-3)
    adapter = weights(out / "model" / "adapter_model.safetensors")
    assert {matrix.dtype for matrix in adapter.values()} == {torch.float32}


def test_a_whole_model_is_trained_by_two_processes_as_by_one(folder: Path) -> None:
    alone = loaded(recipe_for(folder, 1, "float32", lora=""))
    train(prepare(alone, folder / "whole-one", say), folder / "whole-one", say, max_steps=3)
    run = spread(recipe_for(folder, 2, "float32", lora=""), folder / "whole-two", "--steps", "3")
    assert run.returncode == 0, run.stderr[-3000:]
    assert losses(folder / "whole-two") == pytest.approx(losses(folder / "whole-one"), abs=2e-4)
    assert read_record(folder / "whole-two").losses == pytest.approx(read_record(folder / "whole-one").losses, abs=2e-4)
    two, one = (weights(folder / name / "model" / "model.safetensors") for name in ("whole-two", "whole-one"))
    assert two.keys() == one.keys()
    assert max(float((matrix - one[name]).abs().max()) for name, matrix in two.items()) < 1e-4


def test_an_adapter_that_does_not_fit_is_refused(folder: Path, tmp_path: Path) -> None:
    save = pytest.importorskip("safetensors.torch").save_file
    whole = weights(folder / "one" / "model" / "adapter_model.safetensors")

    def refused(changed: dict[str, Any], match: str) -> None:
        shutil.copytree(folder / "one", tmp_path / "one", dirs_exist_ok=True)
        save(changed, tmp_path / "one" / "model" / "adapter_model.safetensors")
        with pytest.raises(UsageError, match=match):
            merge(tmp_path / "one", tmp_path / "merged", say)
        assert not (tmp_path / "merged").exists()

    refused({name.replace("layers", "layer"): w for name, w in whole.items()}, r"lacks 12 of 12 .* has 12 that belong")
    refused({}, r"lacks 12 of 12 matrices")
    refused({name: w for name, w in whole.items() if "layers.1." not in name}, r"lacks 6 of 12 matrices \(base_model")
    more = {**whole, "base_model.model.more.lora_A.weight": torch.zeros(4, 4)}
    refused(more, r"has 1 matrices that belong to nothing \(base_model.model.more")
    wider = {name: torch.cat([w, w], dim=0 if ".lora_A" in name else 1) for name, w in whole.items()}
    refused(wider, r"with \(8, \d+\) instead of \(4, \d+\)")
    file = tmp_path / "one" / "model" / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(UsageError, match="cannot read the adapter"):
        merge(tmp_path / "one", tmp_path / "merged", say)
    file.unlink()
    with pytest.raises(UsageError, match="cannot read the adapter"):
        merge(tmp_path / "one", tmp_path / "merged", say)


def test_a_checkpoint_that_was_not_restored_ends_the_training(folder: Path, tmp_path: Path) -> None:
    """The same in one process, with weights that were really lost."""
    recipe = loaded(recipe_for(folder, 1, "float32"))
    train(prepare(recipe, tmp_path / "one", say), tmp_path / "one", say, max_steps=3)
    file = tmp_path / "one" / "checkpoint-3" / "adapter_model.safetensors"
    lost = {name: matrix * 0 if ".lora_B" in name else matrix for name, matrix in weights(file).items()}
    save = pytest.importorskip("safetensors.torch").save_file
    save(lost, file)
    with pytest.raises(InfrastructureError, match=r"checkpoint-3 was not restored: .*lora_B"):
        train(prepare(recipe, tmp_path / "one", say), tmp_path / "one", say, resume=True)
    save({f"_orig.{name}": matrix for name, matrix in lost.items()}, file)
    with pytest.raises(UsageError, match=r"checkpoint-3 does not hold this training's adapter: it lacks 12 of 12"):
        train(prepare(recipe, tmp_path / "one", say), tmp_path / "one", say, resume=True)
