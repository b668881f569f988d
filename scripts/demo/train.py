"""The training loop: fresh data all the way, a warm-up of echoes, longer sessions as it goes on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.multiprocessing
from torch import Tensor

from . import workers
from .model import Config, Model
from .optimizer import Optimizer
from .sessions import Session, echo_session, fan, make_session
from .tokens import Encoder, Sequence, make_tokenizer, pieces
from .words import Source

ECHO_TOKENS = 1_000_000
BATCH_TOKENS = 1536  # of one worker: many small steps learn more than few big ones
CHUNK = 64  # steps for which data is made at once
LONGEST = 5120
DECAY_SHARE = 0.8  # of the tokens, at the end
EMA_STEPS = 10  # between two updates of the average weights
EMA = 0.97
RESTART = 500.0  # seconds until the workers start anew: their heaps fragment, which costs a fifth of the speed


@dataclass(slots=True)
class Batch:
    inputs: tuple[Tensor, Tensor, Tensor]  # ids, positions, branches: (sequences, length)
    learned: tuple[Tensor, Tensor, Tensor]  # flat positions, their next tokens, weights
    tokens: int


def draw(source: Source, progress: float) -> Session:
    """One session for this point of the training: longer and more turns later."""
    if progress < 0:
        return echo_session(source)
    kind = source.random()
    far = min(1.0, progress / 0.5)  # how much of the long material is let in
    if kind < 0.06 * far:
        return make_session(source, source.choice([5, 6, 8, 10, 12]), source.choice([0, 0, 30]))
    if kind < 0.075 * far:
        return fan(source, source.choice([2, 3, 4]), source.randint(100, 900))
    if kind < 0.09 + 0.1 * far:
        return make_session(source, source.choice([1, 2, 3, 4]), source.choice([0, 0, 0, 20, 60]))
    return fan(source, source.choice([2, 3, 4, 5]), source.choice([0, 0, 0, 0, 0, 0, 0, 20]))


def collate(sequences: list[Sequence]) -> Batch:
    """Pad to one length (a multiple of 32); targets are shifted to the token before."""
    longest = max(len(sequence.ids) for sequence in sequences)
    length = -(-longest // 32) * 32
    ids = torch.zeros(len(sequences), length, dtype=torch.long)
    positions = torch.zeros_like(ids)
    branches = torch.zeros_like(ids)
    where: list[int] = []
    wanted: list[int] = []
    weights: list[float] = []
    for row, sequence in enumerate(sequences):
        count = len(sequence.ids)
        ids[row, :count] = torch.tensor(sequence.ids)
        positions[row, :count] = torch.tensor(sequence.positions)
        branches[row, :count] = torch.tensor(sequence.branches)
        for at, weight in enumerate(sequence.weights):
            if weight:
                where.append(row * length + at - 1)
                wanted.append(sequence.ids[at])
                weights.append(weight)
    tokens = sum(len(sequence.ids) for sequence in sequences)
    learned = torch.tensor(where), torch.tensor(wanted), torch.tensor(weights)
    return Batch((ids, positions, branches), learned, tokens)


def batches(encoder: Encoder, source: Source, order: Source, progress: float) -> list[Batch]:
    """A chunk of batches: sessions of like length together, in the order that `order` draws."""
    sequences: list[Sequence] = []
    tokens = 0
    while tokens < CHUNK * BATCH_TOKENS:
        sequence = encoder(draw(source, progress))
        if len(sequence.ids) <= LONGEST:
            sequences.append(sequence)
            tokens += min(BATCH_TOKENS, len(sequence.ids))
    sequences.sort(key=lambda sequence: len(sequence.ids))
    found: list[list[Sequence]] = []
    group: list[Sequence] = []
    for sequence in sequences:
        length = -(-len(sequence.ids) // 32) * 32
        if group and length * (len(group) + 1) > BATCH_TOKENS:
            found.append(group)
            group = []
        group.append(sequence)
    found.append(group)
    places = [at * len(found) // CHUNK for at in range(CHUNK)]
    order.shuffle(places)
    return [collate(found[at]) for at in places]


class Trainer:
    """One of the workers: each has its own data and the same weights."""

    def __init__(self, folder: Path, seed: int, tokens: int) -> None:
        torch.manual_seed(seed)
        self.folder, self.seed, self.total = folder, seed, tokens
        tokenizer = make_tokenizer(folder / "tokenizer.json", seed)
        self.words = pieces(tokenizer)
        self.encoder = Encoder(tokenizer)
        self.model = Model(Config())
        self.optimizer = Optimizer(self.model)
        self.average = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self.seen, self.steps, self.chunk, self.seconds = 0, 0, 0, 0.0
        if (folder / "checkpoint.pt").exists():
            self.load()

    def scale(self) -> float:
        """The learning rate's factor: warm-up, constant, linear decay."""
        left = (self.total - self.seen) / (DECAY_SHARE * self.total)
        return max(0.0, min(1.0, (self.steps + 1) / 50, left))

    def run(self, seconds: float) -> None:
        """Train for about so long, or to the end."""
        start = time.time()
        self.reported, self.sums = start, torch.zeros(4)
        late = torch.zeros(1)
        while self.seen < self.total and not late:
            begun = time.time()
            for batch in self.data():
                self.step(batch)
            self.chunk += 1
            self.seconds += time.time() - begun
            late[0] = time.time() - start > seconds
            workers.total([late])  # they end together
            if late or self.seen >= self.total or self.chunk % 8 == 0:
                self.save()

    def data(self) -> list[Batch]:
        """This worker's part of a chunk; the workers have batches of like length at the same time."""
        progress = (self.seen - ECHO_TOKENS) / (self.total - ECHO_TOKENS)
        source = Source(f"train {self.seed} {self.chunk} {workers.rank()}", pieces=self.words)
        return batches(self.encoder, source, Source(f"order {self.seed} {self.chunk}"), progress)

    def step(self, batch: Batch) -> None:
        loss, accuracy, loads = self.model(*batch.inputs, batch.learned)
        (loss / workers.count()).backward()
        counts = torch.tensor([1.0, loss.item(), accuracy.item(), batch.tokens])
        loads = loads / workers.count()
        workers.total([*(p.grad for p in self.model.parameters() if p.grad is not None), loads, counts])
        self.optimizer.step(self.scale(), loads)
        self.seen += int(counts[3])
        self.steps += 1
        if self.steps % EMA_STEPS == 0:
            self.follow()
        self.sums += counts
        if time.time() - self.reported > 20:
            self.report(float(loads.max()))

    @torch.no_grad()
    def follow(self) -> None:
        """Keep a running average of the weights: what is exported."""
        weight = 1 - min(EMA, (self.steps + 1) / (self.steps + 100))
        for name, tensor in self.model.state_dict().items():
            self.average[name].lerp_(tensor, weight)

    def report(self, load: float) -> None:
        seconds, self.reported = time.time() - self.reported, time.time()
        count, loss, accuracy, tokens = self.sums.tolist()
        self.sums.zero_()
        if workers.rank() == 0:
            print(
                f"{self.seen / 1e6:6.2f}M tokens  step {self.steps}  loss {loss / count:.4f}"
                f"  accuracy {accuracy / count:.4f}  rate {self.scale():.2f}  load {load / 2:.2f}"
                f"  {tokens / seconds:.0f} tokens/s  {(self.total - self.seen) / (tokens / seconds) / 60:.0f} min left",
                flush=True,
            )

    def save(self) -> None:
        if workers.rank():
            return
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
        for name in ("seen", "steps", "chunk", "seconds"):
            setattr(self, name, state[name])


def work(rank: int, count: int, folder: Path, seed: int, tokens: int) -> None:
    """One worker's process."""
    torch.set_num_threads(1)
    workers.join(rank, count, folder)
    Trainer(folder, seed, tokens).run(RESTART)


def train(folder: Path, seed: int, tokens: int, count: int) -> None:
    """Train from the checkpoint, or from the start, until so many tokens were seen."""
    folder.mkdir(parents=True, exist_ok=True)
    make_tokenizer(folder / "tokenizer.json", seed)
    while seen(folder) < tokens:
        (folder / "meeting").unlink(missing_ok=True)
        torch.multiprocessing.start_processes(work, (count, folder, seed, tokens), count, start_method="spawn")


def seen(folder: Path) -> int:
    checkpoint = folder / "checkpoint.pt"
    return int(torch.load(checkpoint, weights_only=True)["seen"]) if checkpoint.exists() else 0
