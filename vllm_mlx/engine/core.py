"""The step loop: requests in, a step of the whole batch, replies out. Owns every sequence's keys and values.

A step launches the next decode of all rows, then reads the tokens of the one before (so the device does not wait for
Python), and last prefills a chunk of one prompt, small enough that the rows keep their pace.
"""

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from vllm_mlx.config import EngineConfig
from vllm_mlx.engine import kv
from vllm_mlx.engine.decode import Decoder, Flight, Row
from vllm_mlx.engine.loader import LoadedModel
from vllm_mlx.engine.prefill import ChunkSizer, prefill
from vllm_mlx.engine.prefix_cache import BLOCK, Lease, PrefixCache
from vllm_mlx.engine.protocol import Cancel, Delta, Failed, Finish, Progress, Reply, Request, Step, Submit
from vllm_mlx.engine.room import Room
from vllm_mlx.engine.sampling import NOT_A_NUMBER, Choice, Draw, seed_of
from vllm_mlx.engine.scheduler import Gate, Phase, Scheduler, Sequence
from vllm_mlx.engine.snapshots import SnapshotCache

_REMEMBERED = 256
_HEADROOM = 256
"""New tokens that buffers have room for from the start."""
_SHARED = 256
"""Tokens in common for which a prompt waits until another has computed them."""


class Core:
    """One model and the sequences that it continues. Used by one thread."""

    def __init__(self, loaded: LoadedModel, config: EngineConfig, send: Callable[[Reply], None]) -> None:
        self._loaded = loaded
        self._send = send
        self._cuttable = kv.cuttable(loaded.make_caches())
        self._cache = self._make_cache(config)
        self._room = Room(loaded.kv_limit, loaded.kv_per_token, self._cache)
        longest = min(loaded.info.max_model_len, self._room.longest())
        info = self.info = msgspec.structs.replace(loaded.info, max_model_len=longest)
        self._scheduler = Scheduler(config.max_num_seqs, config.max_waiting_seqs, info.max_model_len, info.vocab_size)
        self._sizer = ChunkSizer(config.prefill_step_size, config.max_prefill_stall_ms / 1000)
        self._decoder = Decoder(loaded.model, info.vocab_size)
        self._rows: dict[str, Row] = {}
        self._ended: OrderedDict[str, Sequence] = OrderedDict()
        """Sequences that ended by themselves lately: the API may still say that fewer of their tokens count."""

    def _make_cache(self, config: EngineConfig) -> PrefixCache | SnapshotCache | None:
        if not config.enable_prefix_caching:
            return None
        kind = PrefixCache if self._cuttable else SnapshotCache
        return kind(self._loaded.make_caches, max_bytes=0)

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    def handle(self, request: Request) -> None:
        """Takes one request; it acts at the next step."""
        match request:
            case Submit():
                if refusal := self._scheduler.submit(request):
                    self._send(refusal)
            case Finish(id, keep):
                self._stop(id, keep)
            case Cancel(id):
                self._stop(id, None)

    def _stop(self, id: str, keep: int | None) -> None:
        sequence = self._scheduler.get(id)
        if sequence is None:
            ended = self._ended.pop(id, None)
            if ended and keep is not None and self._cache:
                self._cache.cut(ended.tokens[: ended.kv], len(ended.submit.prompt) + keep)
            return
        if keep is not None:
            del sequence.tokens[len(sequence.submit.prompt) + keep :]
        self._scheduler.remove(sequence)
        self._release(sequence)

    def step(self) -> None:
        """Moves everything on by one step."""
        while sequence := self._scheduler.admit(self._gate):
            self._admit(sequence)
        flight = self._decoder.take()
        if flight and any(row.sequence.must_wait for row in self._decoder.rows):
            self._deliver(flight)
            flight = None
        self._launch()
        if flight:
            self._deliver(flight)
        self._prefill()
        if not self._decoder.rows:
            self._decoder.take()

    def _gate(self, sequence: Sequence) -> Gate:
        if not self._room.fits(self._rows.values(), self._reserve(sequence)):
            return Gate.SHUT
        # What another prompt is about to compute is not computed twice: this one waits for it, and copies.
        tokens = sequence.tokens
        for other in self._scheduler.running if self._cache else ():
            if other.phase is Phase.PREFILL and other.tokens[:_SHARED] == tokens[:_SHARED]:
                shared = _common(other.tokens, tokens)
                if shared >= max(_SHARED, other.kv + BLOCK):
                    return Gate.PASS_BY
        return Gate.OPEN

    def _reserve(self, sequence: Sequence) -> int:
        """Tokens to make room for: what there is and some new ones."""
        coming = sequence.submit.max_tokens - sequence.generated
        return min(len(sequence.tokens) + min(_HEADROOM, coming), self.info.max_model_len)

    def _admit(self, sequence: Sequence) -> None:
        submit = sequence.submit
        choice = Choice(
            submit.sampling, seed_of(submit.sampling), sequence.tokens, len(submit.prompt), logprobs=submit.logprobs
        )
        self._room.settle(self._rows.values())
        lease = self._cache.take(sequence.tokens) if self._cache else Lease(self._loaded.make_caches(), 0)
        if not sequence.reported:
            sequence.cached = min(lease.length, len(submit.prompt))
        row = Row(sequence, lease, choice)
        self._rows[submit.id] = row
        self._reserve_for(row)
        self._prefilled(row, lease.length)

    def _reserve_for(self, row: Row) -> None:
        row.reserved = self._reserve(row.sequence)
        self._room.settle(self._rows.values())
        if self._cuttable and row.caches:
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

    def _launch(self) -> None:
        for row in [row for row in self._decoder.rows if not row.sequence.launchable]:
            self._decoder.leave(row)
        for row in list(self._decoder.rows):
            if row.sequence.kv >= row.reserved and row in self._decoder.rows:
                self._make_way(row)
        if not self._decoder.rows:
            return
        self._decoder.launch([_draw(row.sequence) for row in self._decoder.rows])
        self._scheduler.launched(row.sequence for row in self._decoder.rows)

    def _deliver(self, flight: Flight) -> None:
        deltas: list[Delta] = []
        for read in flight.read():
            sequence = read.row.sequence
            if sequence.phase is not Phase.DECODE:
                continue
            if read.token == NOT_A_NUMBER:
                self._fail(sequence, "the model's output is not a number")
                continue
            delta = self._scheduler.accept(sequence, read.token, read.logprobs)
            deltas.append(delta)
            if delta.finish:
                self._release(sequence)
                self._remember(sequence)
        if deltas:
            self._send(Step(deltas))

    def _prefill(self) -> None:
        sequence = self._scheduler.next_prefill()
        if sequence is None:
            return
        row = self._rows[sequence.submit.id]
        count = self._sizer.size(sequence.remaining, others_wait=bool(self._decoder.rows))
        seconds = prefill(self._loaded.model, row.caches, sequence.tokens[sequence.kv : sequence.kv + count])
        self._sizer.ran(count, seconds)
        self._prefilled(row, count)
        self._send(Progress(sequence.submit.id, sequence.kv, len(sequence.tokens)))

    def _prefilled(self, row: Row, count: int) -> None:
        self._scheduler.prefilled(row.sequence, count)
        if self._cache and count:
            self._cache.share(row.lease, row.sequence.tokens[: row.sequence.kv])
        if row.sequence.phase is Phase.DECODE:
            self._decoder.join(row)

    def _release(self, sequence: Sequence, *, keep: bool = True) -> None:
        """The sequence has left its slot. With `keep` its keys and values are stored, else they are not trusted."""
        row = self._rows.pop(sequence.submit.id, None)
        if row is None:
            return
        if row in self._decoder.rows:
            self._decoder.leave(row)
        self._room.settle(self._rows.values())
        if self._cache and keep:
            self._cache.give(row.lease, sequence.tokens[: sequence.kv], sequence.kv)
        elif self._cache:
            self._cache.drop(row.lease)

    def _remember(self, sequence: Sequence) -> None:
        self._ended[sequence.submit.id] = sequence
        if len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)

    def _fail(self, sequence: Sequence, message: str) -> None:
        self._scheduler.remove(sequence)
        self._release(sequence, keep=False)
        self._send(Failed(sequence.submit.id, "internal", message))

    def recover(self, error: Exception) -> None:
        """A step raised: the sequences in flight fail, those that wait go on with a fresh batch."""
        self._decoder = Decoder(self._loaded.model, self._loaded.info.vocab_size)
        for sequence in list(self._scheduler.running):
            self._fail(sequence, f"the engine failed in a step: {error!r}")


def _common(a: list[int], b: list[int]) -> int:
    """How many tokens two sequences have in common at their beginning."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _draw(sequence: Sequence) -> Draw:
    submit = sequence.submit
    banned = submit.stop_ids if sequence.launched < submit.min_tokens else ()
    return Draw(position=sequence.launched, forced=sequence.next_forced(), banned=banned)
