"""The step loop: requests in, a step of the whole batch, replies out. Owns every sequence's keys and values.

A step launches the next decode of all rows, then reads the tokens of the one before (so the device does not wait for
Python), and last prefills a chunk of one prompt, small enough that the rows keep their pace.
"""

import logging
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import msgspec

from vllm_mlx.config import EngineConfig
from vllm_mlx.engine import kv
from vllm_mlx.engine.decode import Decoder, Flight, Row
from vllm_mlx.engine.grammar import Constraints
from vllm_mlx.engine.loader import LoadedModel
from vllm_mlx.engine.prefill import ChunkSizer, prefill
from vllm_mlx.engine.prefix_cache import Lease, PrefixCache
from vllm_mlx.engine.prewarm import Prewarmer
from vllm_mlx.engine.protocol import (
    Cancel,
    Delta,
    Failed,
    FailureKind,
    Finish,
    Inspect,
    Prewarm,
    Progress,
    Reply,
    Request,
    Step,
    Submit,
)
from vllm_mlx.engine.room import Room
from vllm_mlx.engine.sampling import NOT_A_NUMBER, Choice, Draw, seed_of
from vllm_mlx.engine.scheduler import Gate, Phase, Scheduler, Sequence
from vllm_mlx.engine.shelf import Shelf

_log = logging.getLogger("vllm_mlx.engine")
_HEADROOM = 256
"""New tokens that buffers have room for from the start."""


class Core:
    """One model and the sequences that it continues. Used by one thread."""

    def __init__(self, loaded: LoadedModel, config: EngineConfig, send: Callable[[Reply], None]) -> None:
        self._loaded = loaded
        self._send = send
        self._shelf = Shelf(loaded, config)
        self._room = Room(loaded.kv_limit, loaded.kv_per_token, self._shelf.cache)
        self._room.settle(())
        self._seed = config.seed
        longest = min(loaded.info.max_model_len, self._room.longest())
        info = self.info = msgspec.structs.replace(loaded.info, max_model_len=longest)
        self._scheduler = Scheduler(config.max_num_seqs, config.max_waiting_seqs, info.max_model_len, info.vocab_size)
        self._sizer = ChunkSizer(config.prefill_step_size, config.max_prefill_stall_ms / 1000, loaded.chunk_pairs)
        cache = self._shelf.cache if config.prewarm else None
        self._prewarmer = (
            Prewarmer(loaded.model, cache, self._room, self._sizer) if isinstance(cache, PrefixCache) else None
        )
        self._decoder = Decoder(loaded.model, info.vocab_size)
        self._constraints = Constraints(Path(config.model), info.vocab_size)
        self._rows: dict[str, Row] = {}

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    def handle(self, request: Request) -> None:
        """Takes one request; it acts at the next step."""
        match request:
            case Submit():
                if self._prewarmer:
                    self._prewarmer.clear()
                if refusal := self._scheduler.submit(request):
                    self._send(refusal)
                else:
                    self._constraints.expect(request)
            case Finish(id, keep):
                self._stop(id, keep)
            case Cancel(id):
                self._stop(id, None)
            case Prewarm(prompt):
                if self._prewarmer and len(prompt) <= self.info.max_model_len:
                    self._prewarmer.ask(prompt)
            case Inspect():
                self._send(self._shelf.report())

    def _stop(self, id: str, keep: int | None) -> None:
        sequence = self._scheduler.get(id)
        if sequence is None:
            if keep is not None:
                self._shelf.cut(id, keep)
            return
        if keep is not None:
            del sequence.tokens[len(sequence.submit.prompt) + keep :]
        self._scheduler.remove(sequence)
        self._constraints.forget(id)
        self._shelf.forget(id)
        self._release(sequence)

    @property
    def waits(self) -> bool:
        """Whether there is nothing to do until a thread has done its part."""
        return not self._scheduler.running

    @property
    def busy(self) -> bool:
        """Whether threads are at work that `tend` must follow."""
        return self._shelf.busy

    @property
    def prewarms(self) -> bool:
        """Whether there is something to do while nobody waits."""
        return self._prewarmer is not None and self._prewarmer.active and not self.has_work

    def tend(self) -> None:
        """What goes on beside the sequences, also when there are none."""
        if self._prewarmer and self.prewarms:
            self._prewarmer.step()
        self._shelf.pump()

    def step(self) -> None:
        """Moves everything on by one step."""
        while sequence := self._scheduler.admit(self._gate):
            self._admit(sequence)
        flight = self._decoder.take()
        # A first token is sent before the next step is built: whoever waits for it has waited long enough.
        if flight and any(row.sequence.must_wait or row.sequence.is_first for row in self._decoder.rows):
            self._deliver(flight)
            flight = None
        self._launch(flight)
        self._prefill()
        if not self._decoder.rows:
            self._decoder.take()
        if not self.has_work:
            mx.clear_cache()

    def _gate(self, sequence: Sequence) -> Gate:
        try:
            return self._may_run(sequence)
        except Exception as error:  # The border of a request: those that run have no part in it.
            _log.exception("a request could not be admitted")
            self._fail(sequence, f"the engine failed to admit the request: {error!r}")
            return Gate.PASS_BY

    def _may_run(self, sequence: Sequence) -> Gate:
        if not self._constraints.ready(sequence.submit.id):
            return Gate.PASS_BY
        if not self._room.fits(self._rows.values(), self._reserve(sequence)):
            return Gate.SHUT
        return self._shelf.gate(sequence, self._scheduler.running)

    def _reserve(self, sequence: Sequence) -> int:
        """Tokens to make room for: what there is and some new ones."""
        coming = sequence.submit.max_tokens - sequence.generated
        return min(len(sequence.tokens) + min(_HEADROOM, coming), self.info.max_model_len)

    def _admit(self, sequence: Sequence) -> None:
        submit = sequence.submit
        if sequence.seed is None:
            sequence.seed = seed_of(submit.sampling, None if self._seed is None else self._seed + sequence.arrival)
        choice = Choice(submit.sampling, sequence.seed, sequence.tokens, len(submit.prompt), logprobs=submit.logprobs)
        self._room.settle(self._rows.values())
        lease, miss = self._shelf.lease(sequence)
        if not sequence.reported:
            sequence.cached, sequence.miss = min(lease.length, len(submit.prompt)), miss
        row = Row(sequence, lease, choice)
        self._rows[submit.id] = row
        self._reserve_for(row)
        self._prefilled(row, lease.length)

    def _reserve_for(self, row: Row) -> None:
        row.reserved = self._reserve(row.sequence)
        self._room.settle(self._rows.values())
        if self._shelf.cuttable and row.caches:
            kv.reserve(row.caches, row.reserved)

    def _make_way(self, row: Row) -> None:
        """Buffers for the row's next tokens; the youngest sequences go back to the queue where that takes too much."""
        while not self._room.fits(self._rows.values(), self._reserve(row.sequence), instead_of=row):
            youngest = self._scheduler.youngest()
            self._release(youngest)
            self._scheduler.requeue(youngest)
            if youngest is row.sequence:
                return
        self._reserve_for(row)

    def _launch(self, flight: Flight | None) -> None:
        """Starts the next step, and reads the one before."""
        for row in [row for row in self._decoder.rows if not row.sequence.launchable]:
            self._decoder.leave(row)
        for row in list(self._decoder.rows):
            if row.sequence.kv >= row.reserved and row in self._decoder.rows:
                self._make_way(row)
        rows = self._decoder.rows
        if rows:
            self._decoder.forward()
            self._scheduler.forwarded(row.sequence for row in rows)
        # A mask depends on the token before it: that is read, and masks are made, while the device runs the step.
        masked = any(self._constraints.holds(row.sequence.submit.id) for row in rows)
        if rows and masked:
            self._decoder.start()
        if flight and masked:
            self._deliver(flight)
        if rows:
            self._decoder.draw([self._draw(row.sequence) for row in rows])
            self._scheduler.launched(row.sequence for row in rows)
        if flight and not masked:
            self._deliver(flight)

    def _draw(self, sequence: Sequence) -> Draw:
        submit = sequence.submit
        banned = submit.stop_ids if sequence.launched < submit.min_tokens else ()
        forced = sequence.next_forced()
        if forced is not None:
            return Draw(position=sequence.launched, forced=forced)
        mask = self._constraints.mask(submit.id, thinking=sequence.thinking, banned=banned)
        # A grammar that has come to its end leaves nothing but the stop, also before `min_tokens`.
        return Draw(position=sequence.launched, banned=banned if mask is None else (), mask=mask)

    def _deliver(self, flight: Flight) -> None:
        deltas: list[Delta] = []
        for read in flight.read():
            sequence = read.row.sequence
            if sequence.phase is not Phase.DECODE:
                continue
            if read.token == NOT_A_NUMBER:
                self._fail(sequence, "the model's output is not a number", leave=self._shelf.drop)
                continue
            thinking = sequence.thinking
            delta = self._scheduler.accept(sequence, read.token, read.logprobs)
            if free := self._constraints.take_unconstrained_calls(sequence.submit.id):
                delta = msgspec.structs.replace(delta, unconstrained_calls=free)
            deltas.append(delta)
            if delta.finish:
                self._constraints.forget(sequence.submit.id)
                self._release(sequence)
                self._shelf.ended(sequence)
            elif self._constraints.accept(sequence.submit.id, read.token, thinking=thinking):
                sequence.thinking = False
        if deltas:
            self._send(Step(deltas))

    def _prefill(self) -> None:
        """Prefills while the rows can wait: short prompts together, or a chunk of a long one."""
        spent, stall = 0.0, self._sizer.stall
        while not (waited_for := bool(self._decoder.rows)) or spent <= stall / 2:
            parts = self._next_parts(self._sizer.size(stall - spent if waited_for else None))
            if not parts:
                return
            spent += self._prefill_parts(parts)
            if parts[0][0].phase is Phase.PREFILL:
                return

    def _next_parts(self, budget: int) -> list[tuple[Sequence, int]]:
        """Whose prompts go on in the next pass, and by how many tokens."""
        parts = self._scheduler.next_prefill(budget)
        counts = self._sizer.within([(sequence.kv, count) for sequence, count in parts])
        return [(sequence, count) for (sequence, _), count in zip(parts, counts, strict=False)]

    def _prefill_parts(self, parts: list[tuple[Sequence, int]]) -> float:
        """The next tokens of these sequences, in one pass; the seconds that it took."""
        rows = [self._rows[sequence.submit.id] for sequence, _ in parts]
        tokens = [sequence.tokens[sequence.kv : sequence.kv + count] for sequence, count in parts]
        seconds = prefill(self._loaded.model, [(row.caches, part) for row, part in zip(rows, tokens, strict=True)])
        self._sizer.ran(sum(count for _, count in parts), seconds)
        for row, (sequence, count) in zip(rows, parts, strict=True):
            self._prefilled(row, count)
            self._send(Progress(sequence.submit.id, sequence.kv, len(sequence.tokens)))
        return seconds

    def _prefilled(self, row: Row, count: int) -> None:
        self._scheduler.prefilled(row.sequence, count)
        if count:
            self._shelf.share(row.lease, row.sequence)
        if row.sequence.phase is Phase.DECODE:
            try:
                self._constraints.settle(row.sequence.submit.id)
            except ValueError as error:
                self._fail(row.sequence, str(error), "invalid")
            else:
                self._decoder.join(row)

    def _release(self, sequence: Sequence, leave: Callable[[Lease], None] | None = None) -> None:
        """The sequence has left its slot: its keys and values are stored, unless `leave` does otherwise with them."""
        row = self._rows.pop(sequence.submit.id, None)
        if row is None:
            return
        if row in self._decoder.rows:
            self._decoder.leave(row)
        self._room.settle(self._rows.values())
        if leave is None:
            self._shelf.give(row.lease, sequence)
        else:
            leave(row.lease)

    def close(self) -> None:
        self._shelf.close()

    def _fail(
        self,
        sequence: Sequence,
        message: str,
        kind: FailureKind = "internal",
        leave: Callable[[Lease], None] | None = None,
    ) -> None:
        self._scheduler.remove(sequence)
        self._constraints.forget(sequence.submit.id)
        self._shelf.forget(sequence.submit.id)
        self._release(sequence, leave)
        self._send(Failed(sequence.submit.id, kind, message))

    def recover(self, error: Exception) -> None:
        """A step raised: the sequences in flight fail, those that wait go on with a fresh batch."""
        self._decoder = Decoder(self._loaded.model, self._loaded.info.vocab_size)
        if self._prewarmer:
            self._prewarmer.abandon()
        for sequence in list(self._scheduler.running):
            self._fail(sequence, f"the engine failed in a step: {error!r}", leave=self._shelf.rescue)
