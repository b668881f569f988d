"""Who runs next: a pure state machine over sequences. It knows counts and ids, neither MLX nor time.

A sequence waits, gets a slot (`admit`), is prefilled in chunks up to its last token (`next_prefill`, `prefilled`),
decodes (`launch`, then `accept` for each token; a step may be launched before the last one was read), and is done.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from vllm_mlx.engine.protocol import Delta, Failed, FinishReason, Miss, Submit, TokenLogprobs


class Phase(Enum):
    """Where a sequence is."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    DONE = "done"


class Gate(Enum):
    """Whether a waiting sequence may have a slot now: `SHUT` holds back those behind it too, `PASS_BY` it alone."""

    OPEN = "open"
    SHUT = "shut"
    PASS_BY = "pass by"


@dataclass(slots=True, eq=False)
class Sequence:
    """One request on its way.

    `tokens` is the prompt and what was generated after it; `kv` of them have their keys and values computed;
    `launched` tokens were asked of the model, `generated` of them were read.
    """

    submit: Submit
    arrival: int
    tokens: list[int]
    phase: Phase = Phase.WAITING
    kv: int = 0
    launched: int = 0
    generated: int = 0
    cached: int = 0
    miss: Miss | None = None
    seed: int | None = None
    thinking: bool = False
    reported: bool = False
    forcing: int = 0
    """How many of the ids that close the thought are still to be forced."""

    @property
    def order(self) -> tuple[int, int]:
        """Who gets a slot first: smaller priority, then first come."""
        return self.submit.priority, self.arrival

    @property
    def remaining(self) -> int:
        """Prompt tokens to prefill: all but the last, which the first decode step takes."""
        return len(self.tokens) - 1 - self.kv

    @property
    def launchable(self) -> bool:
        return self.phase is Phase.DECODE and self.launched < self.submit.max_tokens

    @property
    def is_first(self) -> bool:
        """Whether its first token is on its way."""
        return self.launched > 0 and not self.reported

    @property
    def must_wait(self) -> bool:
        """Whether the next step depends on a token that has not been read: the thought's budget ends here."""
        thinking = self.submit.thinking
        return (
            self.thinking
            and thinking is not None
            and thinking.budget is not None
            and self.launched == thinking.budget
            and self.generated < self.launched
        )

    def next_forced(self) -> int | None:
        """The id that the next token must be, once the thought has used up its budget. Call it once a launch."""
        thinking = self.submit.thinking
        if thinking is None or thinking.budget is None:
            return None
        # With nothing in flight the tokens say what is missing, also where a forced one was lost with the slot.
        if self.thinking and self.generated == self.launched >= thinking.budget:
            begun = _overlap(self.tokens[len(self.submit.prompt) :], thinking.close_ids)
            self.forcing = len(thinking.close_ids) - begun
        if not self.forcing:
            return None
        self.forcing -= 1
        return thinking.close_ids[len(thinking.close_ids) - 1 - self.forcing]


@dataclass(slots=True)
class Scheduler:
    """Slots and queues. `max_num_seqs` run at once, `max_waiting` more may wait."""

    max_num_seqs: int
    max_waiting: int
    max_model_len: int
    vocab_size: int
    waiting: list[Sequence] = field(default_factory=list)
    running: list[Sequence] = field(default_factory=list)
    _by_id: dict[str, Sequence] = field(default_factory=dict)
    _arrivals: int = 0
    _picks: int = 0

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    def submit(self, submit: Submit) -> Failed | None:
        """Queues a sequence, or says why not."""
        if refusal := self._refusal(submit):
            return refusal
        thinking = submit.thinking
        sequence = Sequence(submit, self._arrivals, list(submit.prompt), thinking=bool(thinking and thinking.open))
        self._arrivals += 1
        self.waiting.append(sequence)
        self._by_id[submit.id] = sequence
        return None

    def _refusal(self, submit: Submit) -> Failed | None:
        length = len(submit.prompt)
        if submit.id in self._by_id:
            return Failed(submit.id, "invalid", f"the id {submit.id!r} is in use")
        if not submit.prompt:
            return Failed(submit.id, "invalid", "the prompt has no tokens")
        if not all(0 <= token < self.vocab_size for token in submit.prompt):
            return Failed(submit.id, "invalid", f"the prompt has ids outside the vocabulary of {self.vocab_size}")
        if submit.max_tokens < 1:
            return Failed(submit.id, "invalid", "max_tokens must be at least 1")
        if length + submit.max_tokens > self.max_model_len:
            message = (
                f"{length} prompt tokens and {submit.max_tokens} new ones pass the context of {self.max_model_len}"
            )
            return Failed(submit.id, "too_long", message)
        if len(self.waiting) >= self.max_waiting:
            return Failed(submit.id, "overloaded", f"{self.max_waiting} requests are waiting already: try again later")
        return None

    def get(self, id: str) -> Sequence | None:
        return self._by_id.get(id)

    def admit(self, gate: Callable[[Sequence], Gate] = lambda _: Gate.OPEN) -> Sequence | None:
        """Gives a free slot to a waiting sequence: smaller priority first, then first come, as `gate` lets them."""
        if not self.waiting or len(self.running) >= self.max_num_seqs:
            return None
        for sequence in sorted(self.waiting, key=lambda s: s.order):
            verdict = gate(sequence)
            if verdict is Gate.SHUT:
                return None
            if verdict is Gate.OPEN:
                self.waiting.remove(sequence)
                self.running.append(sequence)
                sequence.phase = Phase.PREFILL
                return sequence
        return None

    def next_prefill(self, budget: int) -> list[tuple[Sequence, int]]:
        """Whose prompts go on, by how many tokens, together at most `budget`.

        First comes the shortest rest, but every fourth time the oldest, so that none starves; others are beside it
        where all that is left of their prompts fits.
        """
        pending = [s for s in self.running if s.phase is Phase.PREFILL]
        if not pending:
            return []
        pending.sort(key=lambda s: (s.submit.priority, s.remaining, s.arrival))
        self._picks += 1
        if self._picks % 4 == 0:
            pending.insert(0, pending.pop(pending.index(min(pending, key=lambda s: (s.submit.priority, s.arrival)))))
        chosen = [(pending[0], min(pending[0].remaining, budget))]
        for sequence in pending[1:]:
            budget -= chosen[-1][1]
            if sequence.remaining > budget:
                break
            chosen.append((sequence, sequence.remaining))
        return chosen

    def prefilled(self, sequence: Sequence, count: int) -> None:
        """`count` more tokens have their keys and values (found in the cache, or computed)."""
        assert 0 <= count <= sequence.remaining
        sequence.kv += count
        if not sequence.remaining:
            sequence.phase = Phase.DECODE

    def youngest(self) -> Sequence:
        """The running sequence that gives way first."""
        return max(self.running, key=lambda s: (s.submit.priority, s.arrival))

    def forwarded(self, sequences: Iterable[Sequence]) -> None:
        """A step that takes each one's last token is on its way."""
        for sequence in sequences:
            assert sequence.launchable
            sequence.kv += 1

    def launched(self, sequences: Iterable[Sequence]) -> None:
        """It will give each one a next token."""
        for sequence in sequences:
            assert sequence.launchable
            sequence.launched += 1

    def accept(self, sequence: Sequence, token: int, logprobs: TokenLogprobs | None = None) -> Delta:
        """Takes the next token of a sequence; the delta to report. Its `finish` is set if this was the last one."""
        assert sequence.phase is Phase.DECODE
        submit = sequence.submit
        sequence.tokens.append(token)
        finish: FinishReason | None = None
        stop_id = token if token in submit.stop_ids else None
        if stop_id is not None:
            finish = "stop"
        else:
            sequence.generated += 1
            self._follow_thinking(sequence)
            if sequence.generated >= submit.max_tokens:
                finish = "length"
        cached, miss = (None, None) if sequence.reported else (sequence.cached, sequence.miss)
        sequence.reported = True
        if finish:
            self.remove(sequence)
        return Delta(
            submit.id,
            [] if stop_id is not None else [token],
            logprobs=[logprobs] if logprobs and stop_id is None else None,
            finish=finish,
            stop_id=stop_id,
            cached_tokens=cached,
            miss=miss,
        )

    def _follow_thinking(self, sequence: Sequence) -> None:
        thinking = sequence.submit.thinking
        if thinking is None or not thinking.close_ids:
            return
        if not sequence.thinking:
            size = len(thinking.open_ids)
            begins = not thinking.open and 0 < size == sequence.generated
            sequence.thinking = begins and sequence.tokens[-size:] == thinking.open_ids
            return
        size = len(thinking.close_ids)
        if sequence.generated >= size and sequence.tokens[-size:] == thinking.close_ids:
            sequence.thinking = False

    def remove(self, sequence: Sequence) -> None:
        """The sequence has ended: its slot is free."""
        if sequence.phase is Phase.DONE:
            return
        (self.waiting if sequence.phase is Phase.WAITING else self.running).remove(sequence)
        sequence.phase = Phase.DONE
        del self._by_id[sequence.submit.id]

    def requeue(self, sequence: Sequence) -> None:
        """Takes the slot away; the sequence waits again and goes on later with the tokens that it has."""
        assert sequence.phase in (Phase.PREFILL, Phase.DECODE)
        self.running.remove(sequence)
        self.waiting.append(sequence)
        sequence.phase = Phase.WAITING
        sequence.kv = 0
        sequence.launched = sequence.generated


def _overlap(tokens: list[int], ids: list[int]) -> int:
    """The length of the longest end of `tokens` that is a beginning of `ids` (but not all of it)."""
    for size in range(min(len(tokens), len(ids) - 1), 0, -1):
        if tokens[-size:] == ids[:size]:
            return size
    return 0
