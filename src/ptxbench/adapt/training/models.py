"""Loading a recipe's model and tokenizer, putting adapters on it, and the tiny stand-in of a dry run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ptxbench.adapt.training.libraries import library
from ptxbench.adapt.training.recipe import BaseModelChoice, Lora
from ptxbench.core import UsageError

TEMPLATES = {"qwen3_5": "qwen3_6", "llama": "qwen2_5"}
"""Which of TRL's chat templates a dry run's tokenizer uses, by architecture."""

VOCABULARY = 1024
"""Tokens of a dry run's tokenizer."""


def load_tokenizer(choice: BaseModelChoice) -> Any:
    """The base's tokenizer, with a padding token; `UsageError` if it cannot be loaded or has no chat template."""
    transformers = library("transformers")
    files = {"gguf_file": choice.gguf} if choice.gguf else {}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(choice.base, **files)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot load the tokenizer of '{choice.base}': {_first_line(error)}; give a complete local "
                         "folder or a reachable name as model.base") from error  # fmt: skip
    if tokenizer.chat_template is None:
        raise UsageError(f"the tokenizer of '{choice.base}' has no chat template; adapt an instruction-tuned model")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(choice: BaseModelChoice, *, whole: bool = False) -> Any:
    """The base's text model in the recipe's precision; `UsageError` if it cannot be loaded.

    With ``whole`` all weights are to be trained: they are kept in float32, since steps are too small for bfloat16.
    """
    torch, transformers = library("torch"), library("transformers")
    files: dict[str, Any] = {}
    if choice.gguf:
        files = {"gguf_file": choice.gguf, "quantization_config": transformers.GgufConfig(dequantize=True)}
    dtype = torch.float32 if whole else getattr(torch, choice.dtype)
    try:
        return transformers.AutoModelForCausalLM.from_pretrained(
            choice.base, dtype=dtype, attn_implementation=choice.attention, **files
        )
    except (OSError, ValueError, library("safetensors").SafetensorError) as error:
        raise UsageError(f"cannot load the model '{choice.base}': {_first_line(error)}; if a download was interrupted, "
                         "delete its folder and fetch it again") from error  # fmt: skip


def adapt(model: Any, lora: Lora) -> Any:
    """The model with adapters on the recipe's targets; `UsageError` if one of them names no layer."""
    names = {name.rsplit(".", 1)[-1] for name, module in model.named_modules() if hasattr(module, "in_features")}
    missing = sorted(set(lora.targets) - names)
    if missing:
        raise UsageError(f"the model has no linear layer named {', '.join(missing)}; it has {', '.join(sorted(names))}")
    peft = library("peft")
    config = peft.LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=list(lora.targets),
        task_type="CAUSAL_LM", bias="none",
    )  # fmt: skip
    return peft.get_peft_model(model, config)


def trained_parameters(model: Any) -> int:
    """How many parameters are learnt."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def tiny_tokenizer(architecture: str, texts: Iterable[str]) -> Any:
    """A byte-level BPE tokenizer trained on ``texts``, with the chat template of the architecture's models."""
    tokenizers, transformers = library("tokenizers"), library("transformers")
    raw = tokenizers.Tokenizer(tokenizers.models.BPE())
    raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = tokenizers.decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=special, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    raw.train_from_iterator(texts, trainer)
    raw.add_tokens(["<think>", "</think>"])
    template = Path(library("trl").__file__).parent / "chat_templates" / f"{TEMPLATES[architecture]}.jinja"
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=template.read_text()
    )


def tiny_model(architecture: str, tokenizer: Any, seed: int) -> Any:
    """A random model of the architecture that trains on a CPU in seconds (for Qwen3.6: three gated-delta-net layers
    and one of full attention, as in each of its blocks).
    """
    torch, transformers = library("torch"), library("transformers")
    torch.manual_seed(seed)
    common: dict[str, Any] = {
        "vocab_size": len(tokenizer), "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
        "num_key_value_heads": 2, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id,
        "max_position_embeddings": 65536, "bos_token_id": None,
    }  # fmt: skip
    if architecture == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=2, **common))
    config = transformers.Qwen3_5TextConfig(
        num_hidden_layers=4, head_dim=16, layer_types=["linear_attention"] * 3 + ["full_attention"],
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16, **common
    )  # fmt: skip
    return transformers.Qwen3_5ForCausalLM(config)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
