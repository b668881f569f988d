"""A template says by what it writes which parsers read it."""

import pytest

import reasoning_parsers
import tool_parsers
from tests.chat.folders import OWN, TOKENS, real_template
from vllm_mlx.chat.family import detect

PAIRS = {
    "MiniMax-M2": ("minimax_m2", "minimax_m2"),
    "MiniMax-M2.1": ("minimax_m2", "minimax_m2"),
    "MiniMax-M2.5": ("minimax_m2", "minimax_m2"),
    "MiniMax-M2.7": ("minimax_m2", "minimax_m2"),
    "MiniMax-M3": ("minimax_m3", "minimax_m3"),
    "Qwen3-0.6B": ("hermes", "qwen3"),
    "Qwen3.5-0.8B": ("qwen3_coder", "qwen3"),
    "Qwen3.5-4B": ("qwen3_coder", "qwen3"),
    "DeepSeek-V4": ("deepseek_v4", "deepseek_v4"),
    "GLM-4.7-Flash": ("glm47", "glm45"),
    "Kimi-K2.5": ("kimi_k2", "kimi_k2"),
}
FILES = {
    "minimax_m3": ("minimax_m3", "minimax_m3"),
    "qwen3": ("hermes", "qwen3"),
    "qwen35": ("qwen3_coder", "qwen3"),
    "deepseek_v4": ("deepseek_v4", "deepseek_v4"),
    "glm47": ("glm47", "glm45"),
    "kimi_k2": ("kimi_k2", "kimi_k2"),
}


def test_every_known_model_has_its_pair() -> None:
    assert set(PAIRS) == set(TOKENS)


@pytest.mark.parametrize("name", PAIRS)
def test_a_models_own_template(name: str) -> None:
    template = real_template(name)
    if template is None:
        pytest.skip("the model's own template is not here")
    assert detect(template) == PAIRS[name]


@pytest.mark.parametrize("name", FILES)
def test_our_templates(name: str) -> None:
    assert detect((OWN / f"{name}.jinja").read_text(encoding="utf-8")) == FILES[name]


@pytest.mark.parametrize(
    ("template", "pair"),
    [
        ('{{ \'<tool_call>\\n{\\"name\\": \\"\' + c.name }}<|im_start|>', ("hermes", None)),
        ('<tool_call>\n{"arguments": {}, "name": "n"}\n</tool_call> <|im_start|></think>', ("hermes", "qwen3")),
        ("<tool_call>\n<function=f>\n<parameter=p>\n", ("qwen3_coder", None)),
        (
            "<｜Assistant｜>…</think> <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>n\n```json",
            ("deepseek_v3", "deepseek_r1"),
        ),
        (
            "<｜Assistant｜></think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>n<｜tool▁sep｜>",
            ("deepseek_v31", "deepseek_v4"),
        ),
        ("<｜Assistant｜></think>, no tools", (None, "deepseek_r1")),
        ("]~b]ai\n<think></think>, no tools", (None, "minimax_m2")),
        ("<tool_call>\n<function=f>\n<parameter=p>\n<mm:think>", ("qwen3_coder", "minimax_m3")),
        ("<｜Assistant｜></think>\n\n<｜DSML｜function_calls>", ("deepseek_v4", "deepseek_v4")),
        ("<|observation|> <tool_call>n<arg_key>k</arg_key><arg_value>", ("glm47", None)),
        ("<|im_start|>assistant, no tools", (None, None)),
        ("a <tool_call> of an unknown kind", (None, None)),
    ],
)
def test_excerpts(template: str, pair: tuple[str | None, str | None]) -> None:
    assert detect(template) == pair


@pytest.mark.parametrize(
    ("alias", "name"),
    [("qwen", "hermes"), ("qwen3", "hermes"), ("qwen3_xml", "qwen3_coder"), ("qwen35", "qwen3_coder"),
     ("glm45", "glm47"), ("kimi-k25", "kimi_k2"), ("Kimi_K2", "kimi_k2"), ("deepseek-v32", "deepseek_v4")],
)  # fmt: skip
def test_aliases(alias: str, name: str) -> None:
    assert tool_parsers.resolve(alias) == name


@pytest.mark.parametrize("name", [*tool_parsers.names()])
def test_a_formats_own_reasoning_parser_exists(name: str) -> None:
    own = tool_parsers.get(name).reasoning
    assert own is not None
    assert reasoning_parsers.resolve(own) == own
