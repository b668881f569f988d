"""The MiniMax-M2 architecture in torch, as mlx-lm's `minimax.py` computes it, made fast on a CPU.

Weights are float32, products bfloat16. The attention goes over the rows in blocks, each with only
the keys that it may see; the last layer's experts run only where there is a token to learn.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS = 256  # of the attention, at once


@dataclass(frozen=True, slots=True)
class Config:
    hidden_size: int = 192
    intermediate_size: int = 192
    num_hidden_layers: int = 5
    num_attention_heads: int = 6
    num_key_value_heads: int = 6
    head_dim: int = 32
    rotary_dim: int = 16
    rope_theta: float = 10000.0
    num_local_experts: int = 4
    num_experts_per_tok: int = 2
    rms_norm_eps: float = 1e-6
    vocab_size: int = 2048
    max_position_embeddings: int = 8192

    def exported(self) -> dict[str, Any]:
        return asdict(self)


def product(x: Tensor, weight: Tensor) -> Tensor:
    return F.linear(x, weight.to(torch.bfloat16))


class Norm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps) * self.weight).to(torch.bfloat16)


def matrix(rows: int, columns: int, scale: float = 1.0) -> nn.Parameter:
    return nn.Parameter(torch.randn(rows, columns) * scale * columns**-0.5)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, at: int) -> Tensor:
    """Some rows of the attention, over the keys up to them: cheaper than the whole square."""
    end = min(at + ROWS, q.shape[2])
    scores = (q[:, :, at:end] @ k[:, :, :end].transpose(-1, -2)).add_(mask[:, :, at:end, :end])
    return torch.softmax(scores, -1) @ v[:, :, :end]


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.size = config.num_attention_heads, config.head_dim
        self.rotary = config.rotary_dim
        width = self.heads * self.size
        self.q_proj = matrix(width, config.hidden_size)
        self.k_proj = matrix(width, config.hidden_size)
        self.v_proj = matrix(width, config.hidden_size)
        self.o_proj = matrix(config.hidden_size, width, 0.5)
        self.q_norm = Norm(width, config.rms_norm_eps)
        self.k_norm = Norm(width, config.rms_norm_eps)

    def turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Split into heads, and rotate the first features (half-split) by position."""
        x = x.unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        half = self.rotary // 2
        a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        q = self.turned(self.q_norm(product(x, self.q_proj)), cos, sin) * self.size**-0.5
        k = self.turned(self.k_norm(product(x, self.k_proj)), cos, sin)
        v = product(x, self.v_proj).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        out = torch.cat([attend(q, k, v, mask, at) for at in range(0, q.shape[2], ROWS)], 2)
        return product(out.transpose(1, 2).flatten(2), self.o_proj)


class Experts(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        count, inner, width = config.num_local_experts, config.intermediate_size, config.hidden_size
        self.count, self.chosen = count, config.num_experts_per_tok
        self.gate = nn.Parameter(torch.randn(count, width) * width**-0.5)
        self.gate_proj = nn.Parameter(torch.randn(count, inner, width) * width**-0.5)
        self.up_proj = nn.Parameter(torch.randn(count, inner, width) * width**-0.5)
        self.down_proj = nn.Parameter(torch.randn(count, width, inner) * 0.5 * inner**-0.5)
        self.register_buffer("bias", torch.zeros(count))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Each expert gets its rows; `x` is (rows, width)."""
        scores = torch.sigmoid(F.linear(x.float(), self.gate))
        chosen = torch.topk(scores.detach() + self.bias, self.chosen, -1, sorted=False).indices
        weights = scores.gather(-1, chosen)
        weights = (weights / (weights.sum(-1, keepdim=True) + 1e-20)).flatten().to(torch.bfloat16)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=self.count)
        rows = x.index_select(0, order // self.chosen)
        shares = weights.index_select(0, order).unsqueeze(-1)
        parts = zip(rows.split(counts.tolist()), shares.split(counts.tolist()), strict=True)
        outs = [
            product(F.silu(product(part, self.gate_proj[e])) * product(part, self.up_proj[e]), self.down_proj[e])
            * share
            for e, (part, share) in enumerate(parts)
        ]
        back = torch.cat(outs).index_select(0, order.argsort())
        return back.unflatten(0, (-1, self.chosen)).sum(1), counts.float() / x.shape[0]


class Layer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.input_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.block_sparse_moe = Experts(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, where: Tensor | None) -> tuple[Tensor, Tensor]:
        """The next states; with `where`, only those of these flat positions."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        rows = x.flatten(0, 1) if where is None else x.flatten(0, 1).index_select(0, where)
        out, load = self.block_sparse_moe(self.post_attention_layernorm(rows))
        rows = rows + out
        return rows if where is not None else rows.view_as(x), load


class Model(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Parameter(torch.randn(config.vocab_size, config.hidden_size) * 0.05)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)
        half = config.rotary_dim // 2
        self.register_buffer("frequencies", config.rope_theta ** (-torch.arange(half).float() / half), persistent=False)

    def hidden(self, ids: Tensor, positions: Tensor, branches: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
        """States after the last norm at some flat positions, and each layer's expert loads.

        A token sees the trunk (branch 0) and its own branch before it.
        """
        angles = positions.unsqueeze(1).unsqueeze(-1).float() * self.frequencies
        cos, sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
        length = ids.shape[1]
        seen = (branches.unsqueeze(1) == 0) | (branches.unsqueeze(1) == branches.unsqueeze(2))
        seen = seen & torch.ones(length, length, dtype=torch.bool).tril()
        mask = torch.zeros(seen.shape, dtype=torch.bfloat16).masked_fill(~seen, -1e9).unsqueeze(1)
        x = F.embedding(ids, self.embed_tokens).to(torch.bfloat16)
        loads = []
        for index, layer in enumerate(self.layers, 1):
            x, load = layer(x, cos, sin, mask, where if index == len(self.layers) else None)
            loads.append(load)
        return self.norm(x), torch.stack(loads)

    def forward(
        self, ids: Tensor, positions: Tensor, branches: Tensor, learned: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The loss on what is `learned` (flat positions, their next tokens, weights), its accuracy, the loads."""
        where, wanted, weights = learned
        x, loads = self.hidden(ids, positions, branches, where)
        logits = product(x, self.embed_tokens).float()
        loss = (F.cross_entropy(logits, wanted, reduction="none") * weights).sum() / weights.sum()
        return loss, (logits.argmax(-1) == wanted).float().mean(), loads
