"""Calls under a grammar, in every format: what is drawn from it is valid, and it draws all that is valid."""

import json
import os
from collections import Counter
from pathlib import Path

import jsonschema
import mlx.core as mx
import numpy as np
import pytest
from grammar_formats import FORMATS, MORE_TOOLS, TOOLS, VALUE_ENDS, WRITTEN, function
from tokenizers import AddedToken, Tokenizer

import tool_parsers
from vllm_mlx.chat.reply import fold
from vllm_mlx.engine.grammar import Grammars
from vllm_mlx.engine.masks import as_mask
from vllm_mlx.engine.protocol import Sampling, ToolGrammar
from vllm_mlx.engine.sampling import Choice, Draw, Sampler

CASES = Path(__file__).parent.parent / "cases"
REQUESTS = int(os.environ.get("GRAMMAR_REQUESTS", "24"))

REASONS = {
    "prose inside a block": "m2-013 m2-more-010 m2-more-112 m3-013 m3-more-102 m3-more-114 ki-016 qc-013 m2-more-139"
    " q3-025 q3-028",
    "text outside parameters": "m3-082 m3-more-032 m3-more-033 m3-more-034 m3-more-037",
    "a number in a spelling that JSON lacks": "m2-064 m2-076 m2-077 m2-more-100 m2-more-102 m3-036",
    "a number beyond what readers hold": "m2-more-104",
    "another spelling of a word": "m2-110 m2-more-096 m3-034 m3-more-086",
    "control characters or needless escapes in JSON": "m2-088 m2-more-106 m2-more-107 q3-003 q3-004 ki-003",
    "members of nested JSON in another order than the schema's": "m3-051",
    "an empty text for a list": "m2-094",
    "one value for a list": "m3-056 m3-more-012 m3-more-014 m3-more-023 m3-more-029 m3-more-085 m3-more-096",
    "a list's elements under another name": "m3-049",
    "a parameter that is not declared or comes again": "m2-123 m2-126 m2-156 m2-more-026 m3-058 m3-more-001 m3-more-004"
    " ki-007 ki-011 qc-006 qc-021 gl-002 gl-003 d3-006 d3-018"
    " m2-more-154 m3-more-005 m3-more-007 m3-more-010 m3-more-013 m3-more-015 m3-more-016 m3-more-027 m3-more-028",
    "an end tag is missing": "m2-136 m2-more-012 m2-more-014 m2-more-015 m2-more-034 m2-more-035 m3-079 m3-080"
    " m3-more-039 m3-more-040 m3-more-041 m3-more-042 m3-more-043 m3-more-054 m3-more-057 q3-013 ki-010 qc-011 qc-012"
    " gl-010 gl-011 gl-012 d4-011",
    "the text ends inside a tag": "m3-072",
    "an opening tag is missing": "m3-more-030 m3-more-031 m3-more-036",
    "a stray tag, or one that is none": "qc-025 m2-more-009 m2-more-011 m2-more-013 m2-more-016 m2-more-019 m2-more-118"
    " m3-more-044 m3-more-049 m3-more-050 m3-more-051 m3-more-052 m3-more-055 m3-more-076 m3-more-098",
    "arguments in a string, or none at all": "q3-001 q3-002 ki-002 ki-008 d3-008 d3-014 d3-016 d3-021",
    "members of the call that nobody knows, or in another order": "q3-005 q3-006 q3-011 q3-020",
    "brackets too few or too many": "q3-007 q3-008",
    "two calls in one pair of tags": "q3-012 q3-026 q3-027",
    "a call without a number": "ki-006",
    "the own tags of GLM and DeepSeek inside a value": "gl-004 gl-005 gl-006 gl-007 gl-025 d4-006 d4-008",
    "a parameter that does not say what it is": "d4-005",
    "a turn token": "m2-more-122 m2-more-124 m3-more-075",
}
"""What the parsers read, and the grammar keeps a model from writing: the calls are repaired there."""


class Words:
    """The built-in model's vocabulary with the tokens of a format, and what may come next in it."""

    def __init__(self, demo: Path, folder: Path, format: str, *, special: bool = False) -> None:
        tokenizer = Tokenizer.from_file(str(demo / "tokenizer.json"))
        add = tokenizer.add_special_tokens if special else tokenizer.add_tokens
        add([AddedToken(text, normalized=False) for text in FORMATS[format].tokens])
        tokenizer.add_special_tokens([AddedToken("<end>", normalized=False)])
        tokenizer.save(str(folder / "tokenizer.json"))
        self.format = format
        self.tokenizer = tokenizer
        self.size = tokenizer.get_vocab_size()
        self.end = tokenizer.token_to_id("<end>")
        ends = (FORMATS[format].ends, *VALUE_ENDS)
        self.likely = [token for text in ends for token in tokenizer.encode(text).ids] + [self.end]
        self.grammars = Grammars(folder, self.size)

    def constraint(self, tools, **fields):
        names = fields.pop("names", [tool["function"]["name"] for tool in tools])
        grammar = ToolGrammar(self.format, json.dumps(tools), names, **fields)
        return self.grammars.prepare(grammar, [self.end]).result()

    def allowed(self, constraint, *, thinking=False):
        """A bool an id."""
        bits = constraint.allowed(thinking=thinking)
        return np.ones(self.size, bool) if bits is None else np.unpackbits(bits, bitorder="little")[: self.size] > 0

    def refused(self, constraint, text, *, thinking=False):
        """Writes `text` token by token; what stands before the first token that is not allowed, and the token."""
        written = []
        for token in self.tokenizer.encode(text).ids:
            if not self.allowed(constraint, thinking=thinking)[token]:
                return self.tokenizer.decode(written, skip_special_tokens=False), self.tokenizer.id_to_token(token)
            constraint.accept(token, thinking=thinking)
            written.append(token)
        return None

    def calls(self, text, tools):
        parser = tool_parsers.get(self.format)(tools)
        return fold([*parser.feed(text), *parser.finish()])


@pytest.fixture(scope="session", params=FORMATS)
def words(request, demo_folder, tmp_path_factory):
    return Words(demo_folder, tmp_path_factory.mktemp(request.param), request.param)


def schema_of(tools, name):
    return next((t["function"].get("parameters") or {} for t in tools if t["function"]["name"] == name), None)


def is_valid(call, tools):
    schema = schema_of(tools, call.name)
    if schema is None:
        return False
    try:
        jsonschema.validate(json.loads(call.arguments), schema)
    except (jsonschema.ValidationError, jsonschema.SchemaError):
        return False
    return True


def cases_of(format):
    """Texts that are calls of declared tools, and nothing but text before them."""
    for file in sorted(CASES.glob(FORMATS[format].cases)):
        for line in file.read_text(encoding="utf-8").strip().split("\n"):
            case = json.loads(line)
            if case["tools"] and case["expect"]["tool_calls"]:
                yield case


def test_what_is_a_valid_call_is_accepted_token_by_token(words):
    refused = {}
    for case in cases_of(words.format):
        reply = words.calls(case["text"], case["tools"])
        if reply.aborted or not all(is_valid(call, case["tools"]) for call in reply.tool_calls):
            continue
        if found := words.refused(words.constraint(case["tools"]), case["text"]):
            refused[case["id"]] = found
    listed = {id for ids in REASONS.values() for id in ids.split()}
    assert refused.keys() <= listed, {id: refused[id] for id in refused.keys() - listed}


def drawn(words, constraint, seed, count=400):
    """A text of random tokens, those of the format's markup more likely: (text, whether it came to its end)."""
    draw = np.random.default_rng(seed)
    logits = draw.normal(0, 2, words.size)
    likely = np.zeros(words.size, bool)
    likely[words.likely] = True
    bias = draw.uniform(0.1, 0.6)
    ids = []
    for _ in range(count):
        allowed = words.allowed(constraint)
        assert allowed.any(), words.tokenizer.decode(ids, skip_special_tokens=False)
        if (allowed & likely).any() and draw.random() < bias:
            allowed &= likely
        weights = np.where(allowed, np.exp(logits + draw.normal(0, 1, words.size)), 0)
        token = int(draw.choice(words.size, p=weights / weights.sum()))
        if token == words.end:
            return words.tokenizer.decode(ids, skip_special_tokens=False), True
        constraint.accept(token, thinking=False)
        ids.append(token)
    return words.tokenizer.decode(ids, skip_special_tokens=False), False


def check(words, tools, seed, count=400, **fields):
    """One reply that must begin with a call: what became of it, once all that it holds was found valid."""
    text, ended = drawn(words, words.constraint(tools, required=True, **fields), seed, count)
    reply = words.calls(text, tools)
    for call in reply.tool_calls:
        assert is_valid(call, tools), (seed, call, text)
    if ended:
        assert reply.tool_calls, (seed, text)
        assert not reply.aborted, (seed, text)
        assert not (reply.content or "").strip(), (seed, text)
    return Counter(whole=ended, cut=not ended, calls=len(reply.tool_calls))


def test_random_calls_are_valid(words):
    found = sum((check(words, TOOLS, seed) for seed in range(REQUESTS)), Counter())
    assert found["whole"]
    assert found["calls"] > REQUESTS / 4


def test_random_calls_of_hard_schemas_are_valid(words):
    for seed, tool in enumerate(MORE_TOOLS):
        check(words, [tool], seed)


def test_a_named_tool_is_called_once(words):
    for seed in range(8):
        text, ended = drawn(words, words.constraint(TOOLS, required=True, names=["ns.edit-file"], single=True), seed)
        names = [call.name for call in words.calls(text, TOOLS).tool_calls]
        assert names == ["ns.edit-file"] * ended, text


def test_a_call_between_control_tokens_is_followed(demo_folder, tmp_path):
    words = Words(demo_folder, tmp_path, "kimi_k2", special=True)
    case = next(cases_of("kimi_k2"))
    constraint = words.constraint(case["tools"])
    assert words.refused(constraint, case["text"]) is None
    assert not constraint.unconstrained_calls


CONTENT = (
    "def main():\n\tif a < b && c > d:\n        return '</div>'\n\r\n"
    '{"arguments": {"path": "x"}}}}\n'
    '<function=write_file>\n<parameter=path>\nx\n</parameter>\n</function> and <parameter name="p">v</parameter>.\n'
    '<invoke name="write_file">\n<parameter name="path">y</parameter>\n</invoke>\n'
    "</parameter>, </invoke>, </function>. åäö 数据 \U0001f642\n<item><a>1</a></item> ]]> </think >\n"
) * 12 + "no newline at the end, two blanks  "


@pytest.mark.parametrize("own", [False, True])
def test_a_grammar_changes_no_byte_of_a_long_text(words, own):
    """At temperature 0, over the choices of a reply: a model that wants each of its tokens, and close behind others."""
    if own and words.format in ("glm47", "deepseek_v4", "minimax_m3"):
        pytest.skip("a call cannot quote the tokens of its own format there")
    quoted = "".join(f"Write {token} as it is.\n" for token in FORMATS[words.format].tokens) if own else ""
    content = CONTENT + quoted
    text = WRITTEN[words.format]("write_file", {"path": "a/b.md", "content": content})
    (call,) = words.calls(text, TOOLS).tool_calls
    assert json.loads(call.arguments)["content"] == content
    tokens = [*words.tokenizer.encode(text).ids, words.end]
    draw = np.random.default_rng(0)
    for required in (False, True):
        constraint = words.constraint(TOOLS, required=required)
        sampler = Sampler(words.size)
        sampler.join(Choice(Sampling(temperature=0), 0, [], 0))
        for position, token in enumerate(tokens):
            logits = draw.normal(0, 1, words.size)
            logits[token] = 9
            bits = constraint.allowed(thinking=False)
            mask = None if bits is None else as_mask(bits, words.size)
            drawn = sampler.draw(mx.array(logits)[None], mx.array([0]), [Draw(position, mask=mask)])
            assert drawn.tokens.item() == token, words.tokenizer.decode(tokens[:position], skip_special_tokens=False)
            constraint.accept(token, thinking=False)
        assert not constraint.unconstrained_calls


def test_a_long_text_under_a_bound_is_held_to_its_end(words):
    tools = [function("save", {"text": {"type": "string", "minLength": 1, "maxLength": 524288}}, ["text"])]
    constraint = words.constraint(tools)
    assert words.refused(constraint, WRITTEN[words.format]("save", {"text": CONTENT})) is None
    assert not constraint.unconstrained_calls
