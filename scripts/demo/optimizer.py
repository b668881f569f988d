"""Muon for the matrices, AdamW for the rest."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor, nn

from . import workers
from .model import Experts, Model

MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def orthogonal(batch: Tensor) -> Tensor:
    """Five Newton-Schulz steps towards the nearest orthogonal matrices."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = batch.to(torch.bfloat16)
    tall = x.shape[-2] > x.shape[-1]
    x = x.transpose(-1, -2) if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.transpose(-1, -2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.transpose(-1, -2) if tall else x


class Muon:
    """Momentum (Nesterov), orthogonalised; all matrices of one shape at once."""

    def __init__(
        self, parameters: list[nn.Parameter], rate: float = 0.02, momentum: float = 0.95, decay: float = 0.01
    ) -> None:
        self.rate, self.momentum, self.decay = rate, momentum, decay
        shapes: dict[tuple[int, ...], list[nn.Parameter]] = defaultdict(list)
        for parameter in parameters:
            shapes[tuple(parameter.shape[-2:])].append(parameter)
        self.groups = list(shapes.values())
        self.buffers = [torch.zeros_like(self._stack(group)) for group in self.groups]

    @staticmethod
    def _stack(group: list[nn.Parameter], grads: bool = False) -> Tensor:
        tensors = [parameter.grad if grads else parameter.data for parameter in group]
        return torch.cat([tensor.reshape(-1, *tensor.shape[-2:]) for tensor in tensors if tensor is not None])

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """Each worker does the costly part for its share of the matrices."""
        rate = self.rate * scale
        updates = [torch.zeros_like(buffer, dtype=torch.bfloat16) for buffer in self.buffers]
        for group, buffer, update in zip(self.groups, self.buffers, updates, strict=True):
            grad = self._stack(group, grads=True)
            buffer.lerp_(grad, 1 - self.momentum)
            mine = workers.share(len(buffer))
            update[mine] = orthogonal(grad[mine].lerp(buffer[mine], self.momentum))
        workers.total(updates)
        for group, update in zip(self.groups, updates, strict=True):
            factor = rate * max(1.0, update.shape[-2] / update.shape[-1]) ** 0.5
            at = 0
            for parameter in group:
                count = parameter.numel() // (parameter.shape[-1] * parameter.shape[-2])
                part = update[at : at + count].reshape(parameter.shape)
                parameter.mul_(1 - rate * self.decay).sub_(part.float(), alpha=factor)
                at += count


class Optimizer:
    """Both optimisers, the clipping, and the experts' balance."""

    def __init__(self, model: Model) -> None:
        named = dict(model.named_parameters())
        matrices = [p for name, p in named.items() if name.rsplit(".", 1)[-1] in MATRICES]
        self.rest = [p for name, p in named.items() if name.rsplit(".", 1)[-1] not in MATRICES]
        self.model = model
        self.muon = Muon(matrices)
        self.adam = torch.optim.AdamW(self.rest, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0)

    def step(self, scale: float, loads: Tensor) -> None:
        torch.nn.utils.clip_grad_norm_(self.rest, 1.0)
        self.adam.param_groups[0]["lr"] = 3e-3 * scale
        self.adam.step()
        self.muon.step(scale)
        self.model.zero_grad(set_to_none=True)
        experts = [module for module in self.model.modules() if isinstance(module, Experts)]
        for module, load in zip(experts, loads, strict=True):
            mean = load.mean()
            module.bias += 0.02 * scale * torch.sign(mean - load) * ((load - mean).abs() > 0.1 * mean)
            module.bias -= module.bias.mean()

    def state(self) -> dict[str, object]:
        return {"adam": self.adam.state_dict(), "muon": self.muon.buffers}

    def load(self, state: dict[str, object]) -> None:
        self.adam.load_state_dict(state["adam"])  # type: ignore[arg-type]
        self.muon.buffers = state["muon"]  # type: ignore[assignment]
