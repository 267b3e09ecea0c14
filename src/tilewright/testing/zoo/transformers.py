"""Transformers: BERT, DistilBERT, ViT and one decoding step of GPT-2.

They are written the way their users' exports look: BERT and DistilBERT with attention spelled out (scores,
mask, softmax), as in the Hugging Face models' eager form; ViT on `nn.MultiheadAttention`, as in torchvision;
GPT-2 with cached keys and values as inputs and outputs, and its "Conv1D" dense layers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from .workload import Workload


def _random_weights(network: nn.Module, layers: int) -> None:
    """Initialise weights for unit-variance scores, with residual branches scaled by 1 / sqrt(2 * layers).

    The published 0.02 makes attention almost uniform on random inputs, which would hide errors in it.
    """
    for name, parameter in network.named_parameters():
        if parameter.dim() == 1 and name.endswith("weight"):
            nn.init.normal_(parameter, 1.0, 0.1)
        elif parameter.dim() == 1:
            nn.init.normal_(parameter, std=0.1)
        elif "embedding" in name:
            nn.init.normal_(parameter, std=1.0 if "word" in name else 0.5)
        else:
            fan_in = parameter.shape[0] if "transposed" in name else parameter[0].numel()
            branch = 1 / math.sqrt(2 * layers) if "project" in name else 1.0
            nn.init.normal_(parameter, std=branch / math.sqrt(fan_in))


class SelfAttention(nn.Module):
    """Multi-head attention with separate query, key and value layers and an output layer."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.project = nn.Linear(hidden, hidden)

    def split(self, data: Tensor) -> Tensor:
        """Map (n, tokens, hidden) to (n, heads, tokens, hidden / heads)."""
        batch, tokens, hidden = data.shape
        return data.view(batch, tokens, self.heads, hidden // self.heads).transpose(1, 2)

    def masked(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Add BERT's mask: 0 for tokens that are read and the most negative float for others."""
        addend = (1.0 - mask[:, None, None, :].to(scores.dtype)) * torch.finfo(scores.dtype).min
        return scores + addend

    def forward(self, data: Tensor, mask: Tensor) -> Tensor:
        """Map (n, tokens, hidden) and a mask (n, tokens) of 0 and 1 to (n, tokens, hidden)."""
        query, key, value = (
            self.split(self.query(data)),
            self.split(self.key(data)),
            self.split(self.value(data)),
        )
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(query.shape[-1])
        weights = torch.softmax(self.masked(scores, mask), dim=-1)
        context = torch.matmul(weights, value).transpose(1, 2).contiguous()
        projected: Tensor = self.project(context.view(data.shape))
        return projected


class MaskedFillAttention(SelfAttention):
    """The same with DistilBERT's mask: the scores of unread tokens are overwritten."""

    def masked(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Set scores to the most negative float where `mask` is 0."""
        unread = (mask == 0).view(mask.shape[0], 1, 1, mask.shape[1]).expand_as(scores)
        return scores.masked_fill(unread, torch.finfo(scores.dtype).min)


class EncoderLayer(nn.Module):
    """Attention and a GELU network, each followed by the residual sum and layer norm (post-norm)."""

    def __init__(self, hidden: int, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = nn.LayerNorm(hidden, eps=1e-12)
        self.widen = nn.Linear(hidden, 4 * hidden)
        self.project = nn.Linear(4 * hidden, hidden)
        self.output_norm = nn.LayerNorm(hidden, eps=1e-12)

    def forward(self, data: Tensor, mask: Tensor) -> Tensor:
        """Map (n, tokens, hidden) to the same shape."""
        data = self.attention_norm(self.attention(data, mask) + data)
        widened = functional.gelu(self.widen(data))
        output: Tensor = self.output_norm(self.project(widened) + data)
        return output


class Bert(nn.Module):
    """BERT's encoder with its pooler (Devlin et al., arXiv:1810.04805)."""

    initializes_itself = True

    def __init__(self, layers: int, hidden: int, heads: int, vocabulary: int, positions: int) -> None:
        super().__init__()
        self.word_embedding = nn.Embedding(vocabulary, hidden)
        self.position_embedding = nn.Embedding(positions, hidden)
        self.segment_embedding = nn.Embedding(2, hidden)
        self.embedding_norm = nn.LayerNorm(hidden, eps=1e-12)
        self.layers = nn.ModuleList(EncoderLayer(hidden, SelfAttention(hidden, heads)) for _ in range(layers))
        self.pooler = nn.Linear(hidden, hidden)
        _random_weights(self, layers)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Ids, mask and segments (n, tokens) int64 to the last layer (n, tokens, hidden) and the pooled (n,
        hidden).
        """
        position_ids = torch.arange(input_ids.shape[1])[None]
        data = self.word_embedding(input_ids) + self.segment_embedding(token_type_ids)
        data = self.embedding_norm(data + self.position_embedding(position_ids))
        for layer in self.layers:
            data = layer(data, attention_mask)
        return data, torch.tanh(self.pooler(data[:, 0]))


class DistilBert(nn.Module):
    """DistilBERT (Sanh et al., arXiv:1910.01108): BERT with half the layers, no segments, no pooler."""

    initializes_itself = True

    def __init__(self, layers: int, hidden: int, heads: int, vocabulary: int, positions: int) -> None:
        super().__init__()
        self.word_embedding = nn.Embedding(vocabulary, hidden)
        self.position_embedding = nn.Embedding(positions, hidden)
        self.embedding_norm = nn.LayerNorm(hidden, eps=1e-12)
        self.layers = nn.ModuleList(EncoderLayer(hidden, MaskedFillAttention(hidden, heads)) for _ in range(layers))
        _random_weights(self, layers)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Ids and mask (n, tokens) int64 to the last layer (n, tokens, hidden)."""
        position_ids = torch.arange(input_ids.shape[1])[None]
        data: Tensor = self.embedding_norm(self.word_embedding(input_ids) + self.position_embedding(position_ids))
        for layer in self.layers:
            data = layer(data, attention_mask)
        return data


def _text_inputs(tokens: int, vocabulary: int) -> dict[str, Tensor]:
    """Random ids, and a mask that leaves out the last eighth of the tokens, as padding does."""
    mask = torch.ones(1, tokens, dtype=torch.int64)
    mask[:, tokens - tokens // 8 :] = 0
    return {"input_ids": torch.randint(0, vocabulary, (1, tokens)), "attention_mask": mask}


def bert_base(
    tokens: int = 128, layers: int = 12, hidden: int = 768, heads: int = 12, vocabulary: int = 30522
) -> Workload:
    """BERT-base on `tokens` tokens: int64 ids, mask, segments in; last hidden state and pooled output out."""
    network = Bert(layers, hidden, heads, vocabulary, positions=max(512, tokens))
    inputs = _text_inputs(tokens, vocabulary)
    inputs["token_type_ids"] = (torch.arange(tokens)[None] >= tokens // 2).to(torch.int64)
    return Workload(network, inputs, ("last_hidden_state", "pooler_output"))


def distilbert(
    tokens: int = 64, layers: int = 6, hidden: int = 768, heads: int = 12, vocabulary: int = 30522
) -> Workload:
    """DistilBERT on `tokens` tokens: int64 ids and mask in, last hidden state out."""
    network = DistilBert(layers, hidden, heads, vocabulary, positions=max(512, tokens))
    return Workload(network, _text_inputs(tokens, vocabulary), ("last_hidden_state",))


class VisionLayer(nn.Module):
    """Layer norm before attention and before the GELU network (pre-norm), each with its residual sum."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden, eps=1e-6)
        self.attention = nn.MultiheadAttention(hidden, heads, batch_first=True)
        self.mlp_norm = nn.LayerNorm(hidden, eps=1e-6)
        self.widen = nn.Linear(hidden, 4 * hidden)
        self.project = nn.Linear(4 * hidden, hidden)

    def forward(self, data: Tensor) -> Tensor:
        """Map (n, tokens, hidden) to the same shape."""
        normed = self.attention_norm(data)
        attended, _ = self.attention(normed, normed, normed, need_weights=False)
        data = data + attended
        output: Tensor = data + self.project(functional.gelu(self.widen(self.mlp_norm(data))))
        return output


class VisionTransformer(nn.Module):
    """ViT (Dosovitskiy et al., arXiv:2010.11929): patches, a class token, pre-norm encoder, linear head."""

    initializes_itself = True

    def __init__(self, image_size: int, patch: int, layers: int, hidden: int, heads: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, kernel_size=patch, stride=patch)
        self.class_embedding = nn.Parameter(torch.zeros(1, 1, hidden))
        self.position_embedding = nn.Parameter(torch.zeros(1, (image_size // patch) ** 2 + 1, hidden))
        self.layers = nn.Sequential(*(VisionLayer(hidden, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(hidden, eps=1e-6)
        self.head = nn.Linear(hidden, classes)
        _random_weights(self, layers)

    def forward(self, data: Tensor) -> Tensor:
        """Map (n, 3, image_size, image_size) to logits (n, classes)."""
        patches = self.patches(data).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_embedding.expand(data.shape[0], -1, -1), patches], 1)
        encoded = self.norm(self.layers(tokens + self.position_embedding))
        logits: Tensor = self.head(encoded[:, 0])
        return logits


def vit_b16(
    image_size: int = 224,
    patch: int = 16,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    classes: int = 1000,
) -> Workload:
    """ViT-B/16: one picture in, `logits` out."""
    network = VisionTransformer(image_size, patch, layers, hidden, heads, classes)
    return Workload(network, {"data": torch.randn(1, 3, image_size, image_size)}, ("logits",))


class TransposedLinear(nn.Module):
    """GPT-2's "Conv1D": a dense layer whose weight is stored (inputs, outputs)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.transposed = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, data: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs)."""
        flat = torch.addmm(self.bias, data.view(-1, data.shape[-1]), self.transposed)
        return flat.view(*data.shape[:-1], -1)


class Gpt2Layer(nn.Module):
    """A pre-norm decoder layer that reads and extends the cached keys and values."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(hidden)
        self.query_key_value = TransposedLinear(hidden, 3 * hidden)
        self.attention_project = TransposedLinear(hidden, hidden)
        self.mlp_norm = nn.LayerNorm(hidden)
        self.widen = TransposedLinear(hidden, 4 * hidden)
        self.mlp_project = TransposedLinear(4 * hidden, hidden)

    def forward(self, data: Tensor, past_key: Tensor, past_value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map data (n, 1, hidden) and cache (n, heads, past, hidden / heads); the cache returns one longer."""
        batch, tokens, hidden = data.shape
        mixed = self.query_key_value(self.attention_norm(data)).split(hidden, dim=2)
        query, key, value = (part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in mixed)
        key, value = torch.cat([past_key, key], dim=2), torch.cat([past_value, value], dim=2)
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(query.shape[-1])
        context = torch.matmul(torch.softmax(scores, dim=-1), value)
        data = data + self.attention_project(context.transpose(1, 2).contiguous().view(batch, tokens, hidden))
        widened = functional.gelu(self.widen(self.mlp_norm(data)), approximate="tanh")
        return data + self.mlp_project(widened), key, value


class Gpt2Step(nn.Module):
    """GPT-2 (Radford et al. 2019) reading one token after `past` cached ones; the head shares the word
    embedding.
    """

    initializes_itself = True

    def __init__(self, layers: int, hidden: int, heads: int, vocabulary: int, positions: int) -> None:
        super().__init__()
        self.word_embedding = nn.Embedding(vocabulary, hidden)
        self.position_embedding = nn.Embedding(positions, hidden)
        self.layers = nn.ModuleList(Gpt2Layer(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        _random_weights(self, layers)

    def forward(self, input_ids: Tensor, *cache: Tensor) -> tuple[Tensor, ...]:
        """An id (n, 1) int64 and each layer's past key and value; logits (n, 1, vocabulary) and the new
        cache.
        """
        past = cache[0].shape[2]
        position_ids = torch.arange(past, past + input_ids.shape[1])[None]
        data = self.word_embedding(input_ids) + self.position_embedding(position_ids)
        present: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            data, key, value = layer(data, cache[2 * index], cache[2 * index + 1])
            present += [key, value]
        logits = functional.linear(self.norm(data), self.word_embedding.weight)
        return (logits, *present)


def gpt2_decode(
    past: int = 128, layers: int = 12, hidden: int = 768, heads: int = 12, vocabulary: int = 50257
) -> Workload:
    """Build one decoding step of GPT-2 small: one token id, `past` cached tokens; logits and the extended cache out."""
    network = Gpt2Step(layers, hidden, heads, vocabulary, positions=max(1024, past + 1))
    inputs: dict[str, Tensor] = {"input_ids": torch.randint(0, vocabulary, (1, 1))}
    outputs = ["logits"]
    for layer in range(layers):
        for part in ("key", "value"):
            inputs[f"past_key_values.{layer}.{part}"] = torch.randn(1, heads, past, hidden // heads)
            outputs.append(f"present.{layer}.{part}")
    return Workload(network, inputs, tuple(outputs))
