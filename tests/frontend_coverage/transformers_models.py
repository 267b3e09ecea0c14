"""Models of transformers, small and with random weights, and inputs for them.

A configuration is the class's default one with fewer and smaller layers: ``_SIZES`` by the names of its attributes,
``_OF_MODEL`` by the model's type.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from tests.frontend_coverage.subject import Example, Subject, awake
from tests.models import torchvision_operators

WORDS, LENGTH, FRAMES, SAMPLES = 99, 7, 64, 1600
BATCH, LENGTHS = torch.export.Dim("batch", min=1, max=8), torch.export.Dim("length", min=2, max=32)

_SIZES: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embed_dim": 32, "emb_dim": 32,
    "embedding_size": 32, "model_dim": 32, "projection_dim": 32, "proj_codevector_dim": 32, "output_hidden_size": 32,
    "d_head": 8, "d_kv": 8, "head_dim": 8, "attention_head_dim": 8, "kv_channels": 8, "attention_head_size": 8,
    "num_hidden_layers": 2, "num_layers": 2, "n_layer": 2, "n_layers": 2, "num_decoder_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "num_encoder_layers": 2, "depth": 2, "layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4,
    "num_key_value_heads": 2, "encoder_num_key_value_heads": 4, "decoder_num_key_value_heads": 4,
    "multi_query_group_num": 2, "num_kv_heads": 2, "n_kv_heads": 2,
    "intermediate_size": 48, "d_ff": 48, "ffn_dim": 48, "n_inner": 48, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
    "ffn_hidden_size": 48, "dim_feedforward": 48, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
    "hidden_dim": 48, "mlp_dim": 48, "expert_ffn_hidden_size": 16,
    "num_experts": 4, "n_routed_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_num_experts": 4,
    "moe_topk": 2, "moe_k": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
    "max_position_embeddings": 64, "n_positions": 64, "n_ctx": 64, "max_source_positions": FRAMES // 2,
    "max_target_positions": 64, "max_seq_len": 64,
    "image_size": 32, "patch_size": 8, "num_queries": 5, "mamba_d_state": 8, "state_size": 8, "mamba_n_heads": 4,
    "mamba_d_head": 16, "mamba_n_groups": 1, "conv_kernel": 4, "time_step_rank": 4, "lru_width": 32,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "attention_window_size": 16, "sliding_window": 4, "num_mel_bins": 16, "max_length": FRAMES, "num_frames": 4,
    "rotary_dim": 8, "use_cache": False, "_attn_implementation": "sdpa",
}  # fmt: skip
_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "sep_token_id", "cls_token_id")
_LATENT = "kv_lora_rank"  # of attention whose heads of keys are as many as those of queries
_OF_MODEL: dict[str, dict[str, Any]] = {
    "esm": {"vocab_size": WORDS},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 1},
    "efficientnet": {"hidden_dim": 2560},
    "align_vision_model": {"hidden_dim": 2560},
}


_HEADS = (
    "MODEL", "MODEL_FOR_CAUSAL_LM", "MODEL_FOR_MASKED_LM", "MODEL_FOR_SEQUENCE_CLASSIFICATION",
    "MODEL_FOR_IMAGE_CLASSIFICATION", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM", "MODEL_FOR_CTC",
)  # fmt: skip


_OF_ANY_SIZE = (
    "BertModel", "RobertaModel", "DistilBertModel", "AlbertModel", "ElectraModel", "MPNetModel", "DebertaV2Model",
    "GPT2Model", "LlamaModel", "MistralModel", "Qwen2Model", "Qwen3Model", "GemmaModel", "PhiModel", "FalconModel",
    "MixtralModel", "Qwen3MoeModel", "T5Model", "BartModel", "MarianModel", "OPTModel", "BloomModel", "GPTNeoXModel",
    "ViTModel", "DeiTModel", "CLIPModel", "ConvNextModel", "ResNetModel", "MambaModel", "MobileBertModel",
)  # fmt: skip


def subjects() -> list[Subject]:
    """Return a subject for each model class."""
    if importlib.util.find_spec("torchvision") is not None:
        torchvision_operators.define()
    import transformers.modeling_utils  # once, for all processes
    from transformers.models.auto import modeling_auto

    transformers.logging.set_verbosity_error()
    found: dict[str, Subject] = {}
    for head in _HEADS:
        for kind, given in getattr(modeling_auto, f"{head}_MAPPING_NAMES").items():
            name = given if isinstance(given, str) else given[0]
            found.setdefault(name, Subject(name, lambda kind=kind, name=name: example(kind, name)))
    kinds = {name: kind for kind, name in modeling_auto.MODEL_MAPPING_NAMES.items() if isinstance(name, str)}
    return [
        *found.values(),
        *(Subject(f"{name} of any size", lambda name=name: example(kinds[name], name, True)) for name in _OF_ANY_SIZE),
    ]


def small(kind: type, of_model: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of a configuration's class that make it small."""
    made = kind()
    found: dict[str, Any] = {}
    for name, value in made.to_dict().items():
        inner = getattr(made, name, None)
        if hasattr(inner, "to_dict") and type(inner) in set(getattr(kind, "sub_configs", {}).values()) | {type(inner)}:
            found[name] = small(type(inner), of_model) | {"model_type": inner.model_type}
        elif name in _TOKENS and isinstance(value, int):
            found[name] = min(value, 2)
        elif name in of_model:
            found[name] = of_model[name]
        elif name in _SIZES and (value is not None or name == "head_dim"):
            found[name] = _like(value, _SIZES[name])
        elif name in ("depths", "layers_per_block") and isinstance(value, (list, tuple)):
            found[name] = [1 for _ in value]
    if _LATENT in found and "num_key_value_heads" in found:
        found["num_key_value_heads"] = found["num_attention_heads"]
    return found


def _like(value: Any, size: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_power(min(size, v)) if isinstance(v, int) else v for v in value]
    return min(size, value) if isinstance(value, int) and not isinstance(value, bool) else size


def _power(number: int) -> int:
    """Return the largest power of two that is not larger: heads divide channels then."""
    return 1 << (number.bit_length() - 1) if number > 0 else number


def example(kind: str, name: str, dynamic: bool = False) -> Example:
    """Return a model of a class, and inputs for it; ``dynamic``: of any batch and length."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    torch.manual_seed(0)
    config_class = CONFIG_MAPPING[kind]
    config = config_class(**small(config_class, _OF_MODEL.get(kind, {})))
    config.use_cache = False
    if getattr(config, "pad_token_id", 0) is None:  # classifiers of several sequences look for it
        config.pad_token_id = 0
    model = getattr(transformers, name)(config).eval()
    awake(model)
    given = inputs(model, config)
    if not dynamic:
        return Example(model, given)
    sizes = {name: ({0: BATCH, 1: LENGTHS} if name.endswith("ids") else {0: BATCH}) for name in given}
    return Example(model, given, sizes, [_resized(given, *size) for size in ((1, 3), (3, 11))])


def _resized(given: Mapping[str, torch.Tensor], batch: int, length: int) -> dict[str, torch.Tensor]:
    """Return inputs of another batch and length, of numbers that the given ones have."""
    found = {}
    for name, tensor in given.items():
        rows = tensor[torch.arange(batch) % len(tensor)]
        found[name] = rows[:, torch.arange(length) % LENGTH] if name.endswith("ids") else rows
    return found


def inputs(model: Any, config: Any) -> dict[str, torch.Tensor]:
    """Return the inputs that ``forward`` cannot do without."""
    takes = inspect.signature(model.forward).parameters
    found: dict[str, torch.Tensor] = {}
    main = model.main_input_name
    for name in dict.fromkeys([main, *takes]):
        required = name in takes and takes[name].default is inspect.Parameter.empty
        if name == main or required or (name in _PAIRED and name in takes and main != "pixel_values"):
            made = _input(name, model, config)
            if made is not None:
                found[name] = made
    if "decoder_input_ids" in takes:
        found["decoder_input_ids"] = torch.randint(3, WORDS, (2, LENGTH))
    return found


_PAIRED = ("pixel_values",)


_PARTS = ("vision_config", "audio_config", "text_config", "encoder_config", "backbone_config")


def _attribute(config: Any, name: str, default: Any) -> Any:
    for holder in (config, *(getattr(config, part, None) for part in _PARTS)):
        found = getattr(holder, name, None)
        if found is not None:
            return found
    return default


def _input(name: str, model: Any, config: Any) -> torch.Tensor | None:
    if name in ("input_ids", "decoder_input_ids", "text_input_ids"):
        words = torch.randint(3, min(WORDS, _attribute(config, "vocab_size", WORDS)), (2, LENGTH))
        last = getattr(config, "eos_token_id", None)
        if type(model).__name__.endswith("ForSequenceClassification") and isinstance(last, int):
            words[:, -1] = last  # where encoders and decoders read what they classify
        return words
    if name.startswith("pixel_values"):
        side = _attribute(config, "image_size", 32)
        side = max(side) if isinstance(side, (list, tuple)) else side
        frames = [config.num_frames] if hasattr(config, "num_frames") else []
        return torch.rand(2, *frames, _attribute(config, "num_channels", 3), side, side)
    if name == "input_values":
        if hasattr(config, "num_mel_bins"):
            return torch.randn(2, config.max_length, config.num_mel_bins)
        return torch.randn(2, *([1] if hasattr(config, "audio_channels") else []), SAMPLES)
    if name == "input_features":
        return torch.randn(2, _attribute(config, "num_mel_bins", 16), FRAMES)
    if name == "attention_mask":
        return torch.ones(2, LENGTH, dtype=torch.int64)
    return None
