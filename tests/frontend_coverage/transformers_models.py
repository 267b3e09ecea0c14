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
    "max_position_embeddings": 64, "n_positions": 64, "n_ctx": 64, "max_source_positions": 64,
    "max_target_positions": 64, "max_seq_len": 64,
    "image_size": 32, "patch_size": 8, "num_queries": 5, "mamba_d_state": 8, "state_size": 8, "mamba_n_heads": 4,
    "mamba_d_head": 16, "mamba_n_groups": 1, "conv_kernel": 4, "time_step_rank": 4, "lru_width": 32,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "attention_window_size": 16, "sliding_window": 4, "num_mel_bins": 16, "max_length": FRAMES,
    "use_cache": False, "_attn_implementation": "sdpa",
}  # fmt: skip
_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "sep_token_id", "cls_token_id")
_OF_MODEL: dict[str, dict[str, Any]] = {}


_HEADS = (
    "MODEL", "MODEL_FOR_CAUSAL_LM", "MODEL_FOR_MASKED_LM", "MODEL_FOR_SEQUENCE_CLASSIFICATION",
    "MODEL_FOR_IMAGE_CLASSIFICATION", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM", "MODEL_FOR_CTC",
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
    return list(found.values())


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
        elif name in _SIZES and value is not None:
            found[name] = _like(value, _SIZES[name])
        elif name in ("depths", "layers_per_block") and isinstance(value, (list, tuple)):
            found[name] = [1 for _ in value]
    return found


def _like(value: Any, size: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [min(size, v) if isinstance(v, int) else v for v in value]
    return min(size, value) if isinstance(value, int) and not isinstance(value, bool) else size


def example(kind: str, name: str) -> Example:
    """Return a model of a class, and inputs for it."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    torch.manual_seed(0)
    config_class = CONFIG_MAPPING[kind]
    config = config_class(**small(config_class, _OF_MODEL.get(kind, {})))
    config.use_cache = False
    model = getattr(transformers, name)(config).eval()
    awake(model)
    return Example(model, inputs(model, config))


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
        return torch.randint(3, min(WORDS, _attribute(config, "vocab_size", WORDS)), (2, LENGTH))
    if name.startswith("pixel_values"):
        side = _attribute(config, "image_size", 32)
        side = max(side) if isinstance(side, (list, tuple)) else side
        return torch.rand(2, _attribute(config, "num_channels", 3), side, side)
    if name == "input_values":
        return torch.randn(2, SAMPLES)
    if name == "input_features":
        return torch.randn(2, _attribute(config, "num_mel_bins", 16), FRAMES)
    if name == "attention_mask":
        return torch.ones(2, LENGTH, dtype=torch.int64)
    return None
