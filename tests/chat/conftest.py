"""Text sides of small models, one for each template that is at hand."""

from pathlib import Path

import pytest

from tests.chat.folders import M2, OWN, ROOT, TOKENS, make_folder, real_template
from vllm_mlx.chat.model import ChatModel

OWN_TEMPLATES = sorted(path.stem for path in OWN.glob("*.jinja"))


@pytest.fixture(scope="session")
def m2_model(tmp_path_factory: pytest.TempPathFactory) -> ChatModel:
    template = (ROOT / "vllm_mlx/demo/chat_template.jinja").read_text(encoding="utf-8")
    return ChatModel.load(make_folder(tmp_path_factory.mktemp("m2"), template, M2))


@pytest.fixture(scope="session", params=["demo", *TOKENS])
def any_model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, m2_model: ChatModel
) -> ChatModel:
    if request.param == "demo":
        return m2_model
    template = real_template(request.param)
    if template is None:
        pytest.skip("the model's own template is not here")
    return ChatModel.load(make_folder(tmp_path_factory.mktemp("model"), template, TOKENS[request.param]))


def own_template(name: str) -> str:
    return Path(OWN / f"{name}.jinja").read_text(encoding="utf-8")
