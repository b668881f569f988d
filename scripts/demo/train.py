"""The training loop: fresh data all the way, a warm-up of echoes, longer sessions as it goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .model import Config, Model
from .optimizer import Optimizer
from .sessions import Session, echo_session, fan, make_session
from .tokens import Encoder, Sequence, make_tokenizer, pieces
from .words import Source

ECHO_TOKENS = 1_000_000
BATCH_TOKENS = 5120
LONGEST = 5120
DECAY_SHARE = 0.35  # of the tokens, at the end
EMA = 0.995


@dataclass(slots=True)
class Batch:
    inputs: tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
    tokens: int


def draw(source: Source, progress: float) -> Session:
    """One session for this point of the training: longer and more turns later."""
    if progress < 0 and source.chance(0.85):
        return echo_session(source)
    kind = source.random()
    far = min(1.0, progress / 0.5)  # how much of the long material is let in
    if kind < 0.02 * far:
        return make_session(source, source.choice([5, 6, 8, 10, 12]), source.choice([0, 0, 30]))
    if kind < 0.035 * far:
        return fan(source, source.choice([2, 3, 4]), source.randint(100, 900))
    if kind < 0.08 + 0.06 * far:
        return make_session(source, source.choice([1, 2, 3, 4]), source.choice([0, 0, 0, 20, 60]))
    return fan(source, source.choice([2, 3, 4]), source.choice([0, 0, 0, 0, 0, 0, 0, 20]))


def collate(sequences: list[Sequence]) -> Batch:
    """Pad to one length (a multiple of 32); targets are shifted to the token before."""
    longest = max(len(sequence.ids) for sequence in sequences)
    length = -(-longest // 32) * 32
    ids = torch.zeros(len(sequences), length, dtype=torch.long)
    positions = torch.zeros_like(ids)
    branches = torch.zeros_like(ids)
    where: list[int] = []
    wanted: list[int] = []
    for row, sequence in enumerate(sequences):
        count = len(sequence.ids)
        ids[row, :count] = torch.tensor(sequence.ids)
        positions[row, :count] = torch.tensor(sequence.positions)
        branches[row, :count] = torch.tensor(sequence.branches)
        for at, learn in enumerate(sequence.targets):
            if learn:
                where.append(row * length + at - 1)
                wanted.append(sequence.ids[at])
    tokens = sum(len(sequence.ids) for sequence in sequences)
    return Batch((ids, positions, branches, torch.tensor(where), torch.tensor(wanted)), tokens)


def batches(encoder: Encoder, seed: int, chunk: int, progress: float, words: tuple[str, ...]) -> list[Batch]:
    """A chunk of batches: sessions of like length together, in random order."""
    source = Source(f"train {seed} {chunk}", pieces=words)
    sequences = [encoder(draw(source, progress)) for _ in range(800 if progress < 0 else 220)]
    sequences = sorted((s for s in sequences if len(s.ids) <= LONGEST), key=lambda s: len(s.ids))
    found: list[list[Sequence]] = []
    group: list[Sequence] = []
    for sequence in sequences:
        length = -(-len(sequence.ids) // 32) * 32
        if group and length * (len(group) + 1) > BATCH_TOKENS:
            found.append(group)
            group = []
        group.append(sequence)
    found.append(group)
    source.shuffle(found)
    return [collate(group) for group in found]


class Trainer:
    def __init__(self, folder: Path, seed: int, config: Config, tokens: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(seed)
        self.folder, self.seed, self.total = folder, seed, tokens
        self.tokenizer = make_tokenizer(folder / "tokenizer.json", seed)
        self.words = pieces(self.tokenizer)
        self.encoder = Encoder(self.tokenizer)
        self.model = Model(config)
        self.optimizer = Optimizer(self.model)
        self.average = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self.seen, self.steps, self.chunk, self.seconds = 0, 0, 0, 0.0
        if (folder / "checkpoint.pt").exists():
            self.load()

    def scale(self) -> float:
        """The learning rate's factor: warm-up, constant, linear decay."""
        left = (self.total - self.seen) / (DECAY_SHARE * self.total)
        return max(0.0, min(1.0, (self.steps + 1) / 50, left))

    def run(self) -> None:
        since, saved, reported = time.time(), time.time(), time.time()
        sums: list[tuple[float, float, int]] = []
        while self.seen < self.total:
            for batch in self.chunk_of_batches():
                loss, accuracy, loads = self.model(*batch.inputs)
                loss.backward()
                self.optimizer.step(self.scale(), loads)
                self.seen += batch.tokens
                self.steps += 1
                self.follow()
                sums.append((loss.item(), accuracy.item(), batch.tokens))
                if time.time() - reported > 10:
                    self.report(sums, time.time() - reported, float(loads.max()))
                    sums, reported = [], time.time()
            self.chunk += 1
            if time.time() - saved > 60:
                self.seconds += time.time() - since
                self.save()
                since = saved = time.time()
        self.seconds += time.time() - since
        self.save()

    def chunk_of_batches(self) -> Iterator[Batch]:
        progress = (self.seen - ECHO_TOKENS) / (self.total - ECHO_TOKENS)
        yield from batches(self.encoder, self.seed, self.chunk, progress, self.words)

    @torch.no_grad()
    def follow(self) -> None:
        """Keep a running average of the weights: what is exported."""
        weight = 1 - min(EMA, (self.steps + 1) / (self.steps + 10))
        for name, tensor in self.model.state_dict().items():
            self.average[name].lerp_(tensor, weight)

    def report(self, sums: list[tuple[float, float, int]], seconds: float, load: float) -> None:
        count = len(sums)
        speed = sum(tokens for _, _, tokens in sums) / seconds
        left = (self.total - self.seen) / speed / 60
        print(
            f"{self.seen / 1e6:6.2f}M tokens  step {self.steps}  loss {sum(s[0] for s in sums) / count:.4f}"
            f"  accuracy {sum(s[1] for s in sums) / count:.4f}  rate {self.scale():.2f}  load {load / 2:.2f}"
            f"  {speed:.0f} tokens/s  {left:.0f} min left",
            flush=True,
        )

    def save(self) -> None:
        state = {
            "model": self.model.state_dict(),
            "average": self.average,
            "optimizer": self.optimizer.state(),
            "config": self.model.config.exported(),
            **{name: getattr(self, name) for name in ("seen", "steps", "chunk", "seconds")},
        }
        temporary = self.folder / "checkpoint.tmp"
        torch.save(state, temporary)
        temporary.rename(self.folder / "checkpoint.pt")

    def load(self) -> None:
        state = torch.load(self.folder / "checkpoint.pt", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.average = state["average"]
        self.optimizer.load(state["optimizer"])
        self.seen, self.steps, self.chunk, self.seconds = (
            state["seen"],
            state["steps"],
            state["chunk"],
            state["seconds"],
        )
        print(f"resumed at {self.seen / 1e6:.2f}M tokens")
