"""Which protocol answers on which path."""

from typing import Any

from vllm_mlx.api import chat_completions, completions, messages, responses
from vllm_mlx.api.answer import Codec

CODECS: dict[str, Codec[Any]] = {
    "/v1/chat/completions": chat_completions.CODEC,
    "/chat/completions": chat_completions.CODEC,
    "/v1/completions": completions.CODEC,
    "/completions": completions.CODEC,
    "/v1/messages": messages.CODEC,
    "/v1/responses": responses.CODEC,
}
