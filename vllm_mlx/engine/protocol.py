"""What crosses between the API process and the engine process: tokens and numbers, and of text only grammars.

A grammar's tools and forms are text (`ToolGrammar`, `Structured`); no prompt and no reply is, but for what a replay
plays. Frames on the socket are a 4-byte big-endian length and one msgpack-encoded message. The engine is sent its
settings, an `EngineConfig`, and answers with `Ready` or `Fatal`, once. Then requests go to it (`Submit`, `Finish`,
`Cancel`; `Prewarm`, `Inspect`), and it answers with one `Step` a step for all sequences, `Progress` while a prompt is
prefilled, `Failed` for a sequence that ends wrong, and a `CacheReport` for each `Inspect`.
"""

import struct
from typing import Literal

import msgspec

from vllm_mlx.config import EngineConfig


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the next token of one sequence is drawn. `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 are off."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    seed: int | None = None


class Thinking(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether the prompt leaves a thought open, which ids close it, and at most how many tokens it may take.

    `open_ids` begin a thought at the start of a reply that has none open.
    """

    open: bool
    close_ids: list[int]
    budget: int | None = None
    open_ids: list[int] = []


class Structured(msgspec.Struct, frozen=True, tag=True):
    """The whole answer, behind the thought, follows a grammar: llguidance's Lark."""

    lark: str


class ToolGrammar(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Calls follow their tools' schemas. `tools` is JSON; `names` are those that may be called.

    `required`: the answer begins with a call. `single`: it ends behind the first one. `answer` is what an answer
    must be that makes no call.
    """

    format: str
    tools: str
    names: list[str]
    required: bool = False
    single: bool = False
    answer: Structured | None = None


class Submit(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """One sequence to generate.

    `stop_ids` end it (the id is reported in `Delta.stop_id` and is not among `Delta.tokens`); before
    `min_tokens` they cannot be drawn. `max_tokens` >= 1. `logprobs` is how many alternatives a token
    is reported with (None: no log-probabilities at all). A smaller `priority` runs earlier.
    """

    id: str
    prompt: list[int]
    max_tokens: int
    sampling: Sampling = Sampling()
    stop_ids: list[int] = []
    min_tokens: int = 0
    thinking: Thinking | None = None
    logprobs: int | None = None
    priority: int = 0
    grammar: Structured | ToolGrammar | None = None


class Finish(msgspec.Struct, frozen=True, tag=True):
    """The API found the end (a stop string, the end of a turn): stop now; only the first `keep` tokens count."""

    id: str
    keep: int


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Nobody waits for this sequence any more: free its slot by the next step."""

    id: str


class TokenLogprobs(msgspec.Struct, frozen=True):
    """The drawn token's log-probability and the most likely alternatives (id, log-probability), best first."""

    logprob: float
    top: list[tuple[int, float]]


class Miss(msgspec.Struct, frozen=True):
    """Why no more of a prompt was in the cache from token `at` on.

    `evicted`: it was once; `differs`: the cache goes on otherwise; `unseen`: it has nothing there. The first ids from
    there on are given on both sides.
    """

    kind: Literal["evicted", "differs", "unseen"]
    at: int
    cached: list[int]
    prompt: list[int]


FinishReason = Literal["stop", "length"]


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one step gave one sequence.

    `tokens` are ids; a replay of recorded output may give `raw` bytes of text instead. `finish` is set
    on the last delta of a sequence. `unconstrained_calls`: how many calls have begun since the delta before that no
    grammar holds to the whole of their schema. `cached_tokens` (prompt tokens not prefilled) and `miss` come with the
    first.
    """

    id: str
    tokens: list[int] = []
    raw: bytes | None = None
    logprobs: list[TokenLogprobs] | None = None
    finish: FinishReason | None = None
    stop_id: int | None = None
    cached_tokens: int | None = None
    unconstrained_calls: int = 0
    miss: Miss | None = None


class Step(msgspec.Struct, frozen=True, tag=True):
    """One step of the whole batch."""

    deltas: list[Delta]


class Progress(msgspec.Struct, frozen=True, tag=True):
    """Prefill of one sequence: `done` of `total` prompt tokens."""

    id: str
    done: int
    total: int


FailureKind = Literal["invalid", "too_long", "overloaded", "internal"]


class Failed(msgspec.Struct, frozen=True, tag=True):
    """One sequence ended wrong: refused (`invalid`, `too_long`), no room (`overloaded`) or an engine error."""

    id: str
    kind: FailureKind
    message: str


class EngineInfo(msgspec.Struct, frozen=True):
    """What the API needs to know of the loaded model: its context in tokens, vocabulary, device, bytes.

    `kv_tokens`: for how many tokens of all sequences there is memory; 0 if nobody knows. `plan` says for people what
    of the device's memory goes where.
    """

    max_model_len: int
    vocab_size: int
    device: str
    weight_bytes: int
    kv_tokens: int = 0
    plan: list[str] = []


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The model is loaded and the engine takes requests."""

    info: EngineInfo


class Prewarm(msgspec.Struct, frozen=True, tag=True):
    """A prompt that is likely to come: prefilled while nothing else is to do, forgotten when a sequence comes."""

    prompt: list[int]


class Inspect(msgspec.Struct, frozen=True, tag=True):
    """Asks for a `CacheReport`."""


class Lookup(msgspec.Struct, frozen=True):
    """What one prompt found in the cache."""

    id: str
    prompt_tokens: int
    cached_tokens: int
    miss: Miss | None


class CacheRun(msgspec.Struct, frozen=True):
    """Stored tokens: `base` is how many come before them in other runs; a lent one is a running sequence's.

    A larger `used` was of use later.
    """

    base: int
    tokens: int
    bytes: int
    lent: bool
    used: int


class CacheReport(msgspec.Struct, frozen=True, tag=True):
    """The state of the prefix cache and its latest lookups. Bytes are of what no running sequence owns."""

    enabled: bool
    bytes: int
    limit: int
    runs: list[CacheRun]
    lookups: list[Lookup]
    store_bytes: int | None = None
    store_limit: int | None = None


class Fatal(msgspec.Struct, frozen=True, tag=True):
    """The engine cannot start (a model that does not load, no memory): why, in words for the user."""

    message: str


Request = Submit | Finish | Cancel | Prewarm | Inspect
Reply = Ready | Step | Progress | Failed | Fatal | CacheReport

_LENGTH = struct.Struct(">I")


def encode_frame(message: Request | Reply) -> bytes:
    """One message as it goes over the socket."""
    body = _ENCODER.encode(message)
    return _LENGTH.pack(len(body)) + body


def encode_settings(config: EngineConfig) -> bytes:
    """The first frame that an engine process is sent."""
    body = _ENCODER.encode(config)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts a byte stream into frames; the stream may arrive in any pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies of the frames that are complete now."""
        self._buffer += data
        bodies = []
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            end = start + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            bodies.append(bytes(self._buffer[start + _LENGTH.size : end]))
            start = end
        del self._buffer[:start]
        return bodies


_ENCODER = msgspec.msgpack.Encoder()
decode_settings = msgspec.msgpack.Decoder(EngineConfig).decode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
