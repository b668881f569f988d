"""Log-probabilities: a list of tokens in chat completions and responses, parallel lists in text completions."""

from collections.abc import Sequence
from typing import Any

from vllm_mlx.api.generation import Token
from vllm_mlx.chat.detokenize import Vocabulary


def logprobs_of(tokens: Sequence[Token], vocabulary: Vocabulary) -> dict[str, Any]:
    """Every token that counts, thoughts and calls included, as its text, its bytes and its log-probability."""
    content = []
    for token in tokens:
        if token.logprobs is not None:
            top = [_scored(id, logprob, vocabulary) for id, logprob in token.logprobs.top]
            content.append({**_scored(token.id, token.logprobs.logprob, vocabulary), "top_logprobs": top})
    return {"content": content, "refusal": None}


def _scored(id: int, logprob: float, vocabulary: Vocabulary) -> dict[str, Any]:
    raw = vocabulary.bytes_of(id)
    return {"token": raw.decode(errors="replace"), "logprob": _finite(logprob), "bytes": list(raw)}


def text_logprobs_of(tokens: Sequence[Token], vocabulary: Vocabulary, offset: int) -> dict[str, Any]:
    """The log-probabilities of text completions; `offset` is where the first token begins, in characters."""
    found: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for token in tokens:
        if token.logprobs is not None:
            text = _text(token.id, vocabulary)
            found["tokens"].append(text)
            found["token_logprobs"].append(_finite(token.logprobs.logprob))
            found["top_logprobs"].append(
                {_text(id, vocabulary): _finite(logprob) for id, logprob in token.logprobs.top}
            )
            found["text_offset"].append(offset)
            offset += len(text)
    return found


def _text(id: int, vocabulary: Vocabulary) -> str:
    return vocabulary.bytes_of(id).decode(errors="replace")


def _finite(logprob: float) -> float:
    """JSON has no minus infinity; clients know this number for it."""
    return max(logprob, -9999.0)
