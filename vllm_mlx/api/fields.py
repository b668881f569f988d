"""The request fields that chat and text completions share, and what becomes of those that only have a name here."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from vllm_mlx.api.constraints import answer_of, one_answer, structured_of
from vllm_mlx.api.errors import invalid, unsupported
from vllm_mlx.api.requests import Wire, WireRequest
from vllm_mlx.api.schemas import FORMAT_SCHEMA

Bias = Annotated[float, Field(ge=-100, le=100)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]


class StreamOptions(Wire):
    """What a stream carries beside the reply."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationFields(WireRequest):
    """Length, sampling, stops, and what is reported."""

    model: str | None = Field(None, description="Any name, unless the server is strict.")
    n: int | None = Field(None, ge=1, le=128, description="How many replies; each is a sequence of its own.")
    best_of: int | None = Field(None, description="As many as n.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(
        None, ge=1, lt=2**31, description="At most what is left of the context, which is the default."
    )
    min_tokens: int | None = Field(None, ge=0, lt=2**31, description="No stop token is drawn before.")
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1, lt=2**31, description="0 and -1: off.")
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0, le=10)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[str, Bias] | None = Field(None, description="By token id.")
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="A negative one is no seed.")
    stop: str | list[str] | None = Field(None, description="Looked for in visible text only.")
    stop_token_ids: list[TokenId] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = Field(None, description="No stop token is drawn at all.")
    skip_special_tokens: bool | None = Field(None, description="Only true: no control token reaches a client.")
    truncate_prompt_tokens: int | None = Field(None, ge=-1, lt=2**31, description="Keeps the prompt's last tokens.")
    return_token_ids: bool | None = None
    response_format: dict[str, Any] | None = Field(
        None, description="text, json_object or json_schema.", json_schema_extra=FORMAT_SCHEMA
    )
    structured_outputs: dict[str, Any] | None = Field(
        None, description="One of json, json_object, regex, choice, grammar (Lark or GBNF)."
    )
    priority: int | None = Field(None, ge=-(2**31), lt=2**31, description="Smaller is earlier.")

    ignored: ClassVar[Mapping[str, str]] = {
        "metadata": "a label for the caller's own books",
        "user": "a label for the caller's own books",
        "session_id": "a label for the caller's own books",
        "request_id": "ids are made here; X-Request-Id is kept",
        "stream_interval": "every step is sent at once",
        "spaces_between_special_tokens": "no control token reaches a client",
        "mm_processor_kwargs": "there is no processor of images",
        "include_obfuscation": "nothing is padded",
    }
    refused: ClassVar[Mapping[str, str]] = {
        "allowed_token_ids": "use logit_bias",
        "bad_words": "use logit_bias",
        "guided_choice": "use structured_outputs",
        "guided_grammar": "use structured_outputs",
        "guided_json": "use structured_outputs",
        "guided_regex": "use structured_outputs",
        "cache_salt": "all requests share one prefix cache",
        "kv_transfer_params": "there is one server",
        "length_penalty": "there is no beam search",
        "logits_processors": "no code is taken from a request",
        "prompt_logprobs": "the prompt's tokens are not scored",
        "repetition_detection": "use repetition_penalty",
        "return_prompt_text": "use return_token_ids and /detokenize",
        "return_tokens_as_token_ids": "use return_token_ids",
        "use_beam_search": "tokens are sampled",
        "vllm_xargs": "there are no plugins",
    }

    def common(self) -> dict[str, Any]:
        """The fields of `GenerationRequest` that these set. Raises `ApiError` for what they do not go with."""
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options is only allowed when stream is true", "stream_options")
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise unsupported("best_of", "use n")
        if self.skip_special_tokens is False:
            raise unsupported("skip_special_tokens", "no control token reaches a client")
        if self.min_tokens and self.max_tokens and self.min_tokens > self.max_tokens:
            raise invalid(f"min_tokens {self.min_tokens} is above max_tokens {self.max_tokens}", "min_tokens")
        if self.truncate_prompt_tokens == 0:
            raise invalid(
                "truncate_prompt_tokens must not be 0: a prompt has a token at least", "truncate_prompt_tokens"
            )
        return {
            "model": self.model,
            "stream": bool(self.stream),
            "n": self.n or 1,
            "max_tokens": self.max_tokens,
            "min_tokens": self.min_tokens or 0,
            "sampling": self.sampling(),
            "stop": self.stop_strings(),
            "include_stop": bool(self.include_stop_str_in_output),
            "stop_token_ids": tuple(self.stop_token_ids or ()),
            "ignore_eos": bool(self.ignore_eos),
            "truncate_prompt": self.truncate_prompt_tokens,
            "token_ids": bool(self.return_token_ids),
            "answer": one_answer(
                answer_of(self.response_format, "response_format"), structured_of(self.structured_outputs)
            ),
            "priority": self.priority or 0,
        }

    def sampling(self) -> dict[str, Any]:
        """The sampling parameters that the client set, by the engine's names."""
        names = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
        found = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.top_k is not None:
            found["top_k"] = max(self.top_k, 0)
        if self.seed is not None and self.seed >= 0:
            found["seed"] = self.seed
        if self.logit_bias:
            found["logit_bias"] = {_token_id(key): bias for key, bias in self.logit_bias.items()}
        return found

    def stop_strings(self) -> tuple[str, ...]:
        """The stop strings; an empty one would stop before the first character and is refused."""
        found = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        if "" in found:
            raise invalid("stop: a stop string must not be empty", "stop")
        return found

    @property
    def wants_usage(self) -> bool:
        """Whether the stream ends with a usage chunk."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def wants_usage_always(self) -> bool:
        """Whether every chunk has the usage until then."""
        return self.stream_options is not None and bool(self.stream_options.continuous_usage_stats)


def _token_id(key: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) <= 9):
        raise invalid(f"logit_bias: '{key:.50}' is not a token id", "logit_bias")
    return int(key)
