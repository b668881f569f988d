"""Control tokens are found where the template wrote them, as the model's own tokenizer finds them."""

import json
from pathlib import Path

import pytest
from folders import GLM, M2, M3, tokenizer
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers
from tokenizers import Tokenizer as Backend

from vllm_mlx.chat.marks import Marked, Spellings, trie_pattern, unmark
from vllm_mlx.chat.tokenizer import Tokenizer, TokenizerError

M3_TOKENIZER = Tokenizer(tokenizer(M3[0], M3[1]))
M3_COPY = tokenizer((), ())
PIECES = ["[e~[", "]~b]", "]<]minimax[>[", "<mm:think>", "</mm:think>", "[", "]", "<", "e~[", "x", " ", "\n", "é"]
mixtures = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)


@given(mixtures)
def test_text_without_marks_is_encoded_as_the_model_encodes_it(text: str) -> None:
    assert M3_TOKENIZER.encode_marked(unmark(text)) == M3_TOKENIZER.backend.encode(text).ids


@given(mixtures)
def test_own_search_finds_what_the_tokenizer_finds(text: str) -> None:
    found = [token for _, _, token in M3_TOKENIZER.tokens_in(Marked(text, []))]
    control = set(M3_TOKENIZER.added.values())
    assert found == [token for token in M3_TOKENIZER.backend.encode(text).ids if token in control]


@given(mixtures)
def test_marked_text_holds_no_control_token(text: str) -> None:
    marked = unmark(M3_TOKENIZER.spellings.mark(text))
    ids = M3_TOKENIZER.encode_marked(marked)
    assert marked.text == text
    assert not set(ids) & set(M3_TOKENIZER.added.values())
    assert M3_TOKENIZER.decode(ids) == text


@given(st.lists(st.sampled_from([*PIECES, "word", "  ", "naïve 🙂", "1234", "\r\n\n"]), max_size=12).map("".join))
def test_data_is_encoded_as_by_a_copy_without_added_tokens(text: str) -> None:
    assert M3_TOKENIZER.encode_plain(text) == M3_COPY.encode(text).ids


@given(mixtures, mixtures)
def test_template_text_beside_marked_text_keeps_its_tokens(data: str, own: str) -> None:
    marked = unmark("[e~[" + own + M3_TOKENIZER.spellings.mark(data) + "[e~[")
    expected = M3_TOKENIZER.backend.encode("[e~[" + own + "é[e~[").ids
    control = set(M3_TOKENIZER.added.values())
    found = [token for token in M3_TOKENIZER.encode_marked(marked) if token in control]
    assert found == [token for token in expected if token in control]


@given(st.lists(st.text("ab<>", min_size=1, max_size=4), min_size=1, max_size=6), st.text("ab<>", max_size=12))
def test_the_pattern_finds_the_longest_word_first(words: list[str], text: str) -> None:
    import re

    hit = re.compile(trie_pattern(words)).search(text)
    starts = [at for at in range(len(text)) if any(text.startswith(word, at) for word in words)]
    assert (hit is None) == (not starts)
    if hit is not None:
        assert hit.start() == starts[0]
        assert hit.group() == max((word for word in words if text.startswith(word, starts[0])), key=len)


@pytest.mark.parametrize("text", ["plain", "get_weather", "a < b", "x]x", "x<y>", "", " \n"])
def test_harmless_text_is_left_alone(text: str) -> None:
    assert M3_TOKENIZER.spellings.mark(text) == text


def test_words_of_schemas_stay_bare_and_others_are_marked() -> None:
    spellings = Spellings(["<type>", "<city>"])
    marked = spellings.mark_schema({"type": "city", "properties": {"city": {"type": "string"}}})
    assert "type" in marked
    assert marked["type"] != "city"
    assert next(iter(marked["properties"])) != "city"
    assert unmark(json.dumps(marked, ensure_ascii=False)).text.count("city") == 2


def test_a_vocabulary_that_spells_its_own_control_tokens() -> None:
    vocabulary = {"<unk>": 0, "a": 1, "<": 2, "x": 3, ">": 4, "<x>": 5, "x>": 6}
    backend = Backend(models.Unigram([(piece, -1.0) for piece in vocabulary], unk_id=0))
    backend.add_special_tokens([AddedToken("<x>", special=True, normalized=False)])
    ours = Tokenizer(backend)
    marked = unmark("<x>" + ours.spellings.mark("a<x>a"))
    ids = ours.encode_marked(marked)
    assert ids[0] == 5
    assert 5 not in ids[1:]
    assert ours.backend.decode(ids[1:], skip_special_tokens=False).replace(" ", "") == "a<x>a"


def test_text_that_normalizes_to_a_control_token_stays_text() -> None:
    backend = tokenizer(GLM[0], ())
    backend.normalizer = normalizers.NFKC()
    backend.add_tokens([AddedToken("<think>", normalized=True)])
    assert backend.token_to_id("<think>") in backend.encode("＜think＞").ids
    ours = Tokenizer(backend)
    assert ours.added["<think>"] not in ours.encode_marked(unmark(ours.spellings.mark("＜think＞")))


def test_tokens_that_eat_blanks_and_single_words() -> None:
    backend = tokenizer(M2[0], ())
    backend.add_tokens(
        [
            AddedToken("<m>", lstrip=True, rstrip=True, normalized=False),
            AddedToken("word", single_word=True, normalized=False),
        ]
    )
    ours = Tokenizer(backend)
    for text in ("a <m> b", "<m>", " <m>\n<m>", "word", "a word b", "sword words word", "word_"):
        found = [token for _, _, token in ours.tokens_in(Marked(text, []))]
        assert found == [token for token in backend.encode(text).ids if token in set(ours.added.values())], text
        ids = ours.encode_marked(Marked(f"{text}[e~[", [len(text)]))
        assert ids[: len(backend.encode(text).ids)] == backend.encode(text).ids


def test_truncation_and_padding_of_the_file_are_off() -> None:
    backend = tokenizer(*M2[:2])
    backend.enable_truncation(2)
    backend.enable_padding(length=8)
    assert Tokenizer(backend).encode("a b c d") == tokenizer(*M2[:2]).encode("a b c d").ids


def test_begin_of_text_only_when_asked() -> None:
    from tokenizers.processors import TemplateProcessing

    backend = tokenizer(*M2[:2])
    begin = backend.token_to_id("]~!b[")
    backend.post_processor = TemplateProcessing(single="]~!b[ $A", special_tokens=[("]~!b[", begin)])
    ours = Tokenizer(backend)
    assert ours.encode("a", add_special=True) == [begin, *ours.encode("a")]
    assert begin not in ours.encode_marked(unmark(ours.spellings.mark("]~!b[")))


def test_folders_without_a_tokenizer_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match="is not a tokenizer"):
        Tokenizer.load(tmp_path)


def test_without_tokenizer_json_transformers_makes_one(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    assert Tokenizer.load(tmp_path).encode("ab") == [2]
