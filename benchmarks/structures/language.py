"""Models of transformers in small configurations: of words, pictures and sound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .vision import declare_operators

_WORDS = 1000
# What most configurations call 2 layers, width 256 and 8 heads.
_WIDE: dict[str, int] = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "intermediate_size": 1024,
}
_GROUPED = _WIDE | {"num_key_value_heads": 2, "max_position_embeddings": 256}
_TINY = {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 768}
_SPEECH = _WIDE | {"num_conv_pos_embeddings": 32, "num_conv_pos_embedding_groups": 16}


@dataclass(frozen=True)
class _Words:
    """A model of words: its class, attributes of its configuration, how many words, and the vocabulary."""

    kind: str
    sizes: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 1
    length: int = 128
    vocabulary: int = _WORDS


@dataclass(frozen=True)
class _Signal:
    """A model of pictures or sound: its class, attributes of its configuration, and its input's shape."""

    kind: str
    sizes: Mapping[str, Any]
    shape: tuple[int, ...] = (1, 3, 224, 224)


NETWORKS: dict[str, _Words | _Signal] = {
    "albert": _Words("AlbertModel", _WIDE | {"embedding_size": 128}),
    "bert": _Words("BertModel", _WIDE),
    "bert_768_99": _Words("BertModel", _WIDE | {"hidden_size": 768, "num_attention_heads": 12}, length=99),
    "bloom": _Words("BloomModel", {"hidden_size": 256, "n_layer": 2, "n_head": 8}),
    "convbert": _Words("ConvBertModel", _WIDE | {"embedding_size": 256}),
    "deberta_v2": _Words(
        "DebertaV2Model",
        _WIDE | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": 128},
    ),
    "distilbert": _Words("DistilBertModel", {"dim": 256, "n_layers": 2, "n_heads": 8, "hidden_dim": 1024}),
    "distilbert_8x61": _Words(
        "DistilBertModel", {"dim": 256, "n_layers": 2, "n_heads": 8, "hidden_dim": 1024}, batch=8, length=61
    ),
    "electra": _Words("ElectraModel", _WIDE | {"embedding_size": 128}, length=77),
    "gemma": _Words("GemmaModel", _GROUPED | {"head_dim": 32}),
    "gpt2": _Words("GPT2Model", {"n_embd": 256, "n_layer": 2, "n_head": 8}),
    "gpt2_lm": _Words("GPT2LMHeadModel", {"n_embd": 256, "n_layer": 2, "n_head": 8}, length=17, vocabulary=50257),
    "gpt_neox": _Words("GPTNeoXModel", _WIDE, length=131),
    "llama": _Words("LlamaModel", _GROUPED),
    "mobilebert": _Words("MobileBertModel", {"num_hidden_layers": 2}),
    "modernbert": _Words("ModernBertModel", _WIDE, length=100),
    "mpnet": _Words("MPNetModel", _WIDE),
    "opt": _Words("OPTModel", _WIDE | {"word_embed_proj_dim": 256, "ffn_dim": 1024}),
    "phi": _Words("PhiModel", _WIDE),
    "qwen2": _Words("Qwen2Model", _GROUPED),
    "roberta_16x33": _Words("RobertaModel", _WIDE, batch=16, length=33),
    "squeezebert": _Words("SqueezeBertModel", _WIDE | {"embedding_size": 256}),
    "t5": _Words("T5EncoderModel", {"d_model": 256, "num_layers": 2, "num_heads": 8, "d_ff": 1024, "d_kv": 32}),
    "xlnet": _Words("XLNetModel", {"d_model": 256, "n_layer": 2, "n_head": 8, "d_inner": 1024}),
    "beit": _Signal("BeitModel", _TINY),
    "deit_tiny": _Signal("DeiTModel", _TINY),
    "dinov2": _Signal("Dinov2Model", {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3}),
    "mobilevit": _Signal("MobileViTModel", {}),
    "poolformer": _Signal("PoolFormerModel", {}),
    "pvt_v2": _Signal("PvtV2Model", {}),
    "segformer_b0": _Signal("SegformerForSemanticSegmentation", {"num_labels": 150}, (1, 3, 256, 256)),
    "yolos_tiny": _Signal("YolosModel", _TINY | {"image_size": [224, 224]}),
    "videomae": _Signal("VideoMAEModel", _TINY | {"num_frames": 8, "image_size": 112}, (1, 8, 3, 112, 112)),
    "wav2vec2": _Signal("Wav2Vec2Model", _SPEECH, (1, 16000)),
    "whisper_encoder": _Signal("WhisperModel", {"encoder_layers": 2, "decoder_layers": 1}, (1, 80, 3000)),
}


class _First(torch.nn.Module):
    """A model of transformers that returns its first result alone."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the last layer makes of the input."""
        result: torch.Tensor = self.model(x, return_dict=False)[0]
        return result


def build(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Return a model and its input."""
    declare_operators()  # transformers' networks of pictures import torchvision
    import transformers
    from transformers.integrations import sdpa_attention

    transformers.logging.set_verbosity_error()
    # A traced model cannot tell that a row is one sequence, and would compare positions: ONNX's exporter lacks `diff`.
    transformers.masking_utils.find_packed_sequence_indices = lambda position_ids: None
    # It lacks heads that share keys, too: they are repeated, as for older releases of PyTorch.
    sdpa_attention.use_gqa_in_sdpa = lambda *arguments: False
    described = NETWORKS[name]
    kind = getattr(transformers, described.kind)
    if isinstance(described, _Signal):
        model = kind(kind.config_class(**described.sizes))
        return _First(getattr(model, "encoder", model) if name.endswith("_encoder") else model), (
            torch.randn(described.shape),
        )
    config = kind.config_class(vocab_size=described.vocabulary, pad_token_id=0, use_cache=False, **described.sizes)
    words = torch.randint(1, described.vocabulary, (described.batch, described.length))
    return _First(kind(config)), (words,)
