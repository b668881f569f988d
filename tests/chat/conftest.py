"""Text sides of small models, one for each template that is at hand."""

import pytest
from folders import M2, OWN, ROOT, TOKENS, make_folder, real_template

from vllm_mlx.chat.model import ChatModel

OWN_TOKENS = {
    "minimax_m3": "MiniMax-M3",
    "qwen3": "Qwen3-0.6B",
    "qwen35": "Qwen3.5-4B",
    "deepseek_v4": "DeepSeek-V4",
    "glm47": "GLM-4.7-Flash",
    "kimi_k2": "Kimi-K2.5",
}


@pytest.fixture(scope="session")
def m2_model(tmp_path_factory: pytest.TempPathFactory) -> ChatModel:
    template = (ROOT / "vllm_mlx/demo/chat_template.jinja").read_text(encoding="utf-8")
    return ChatModel.load(make_folder(tmp_path_factory.mktemp("m2"), template, M2))


@pytest.fixture(scope="session", params=["demo", *OWN_TOKENS, *TOKENS])
def any_model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, m2_model: ChatModel
) -> ChatModel:
    if request.param == "demo":
        return m2_model
    if request.param in OWN_TOKENS:
        template: str | None = (OWN / f"{request.param}.jinja").read_text(encoding="utf-8")
    else:
        template = real_template(request.param)
    if template is None:
        pytest.skip("the model's own template is not here")
    tokens = TOKENS[OWN_TOKENS.get(request.param, request.param)]
    return ChatModel.load(make_folder(tmp_path_factory.mktemp("model"), template, tokens))
