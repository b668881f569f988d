"""Ids become text exactly, however they come."""

from collections.abc import Iterable

from folders import M2, tokenizer
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from vllm_mlx.chat.detokenize import Detokenizer, Vocabulary

BACKEND = tokenizer(M2[0], M2[1])
VOCABULARY = Vocabulary(BACKEND)
BEGIN = BACKEND.token_to_id("]~!b[")


def whole(detokenizer: Detokenizer, groups: Iterable[list[int]]) -> list[str]:
    return [detokenizer.feed(group) for group in groups] + [detokenizer.finish()]


def one_by_one(ids: list[int]) -> list[list[int]]:
    return [[token] for token in ids]


@given(st.text())
def test_text_survives_token_by_token(text: str) -> None:
    ids = BACKEND.encode(text, add_special_tokens=False).ids
    pieces = whole(Detokenizer(VOCABULARY), one_by_one(ids))
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces if "\ufffd" not in text)


@given(st.lists(st.integers(0, BACKEND.get_vocab_size() - 1), max_size=30), st.integers(0, 30))
def test_any_ids_give_the_same_text_in_any_groups(ids: list[int], cut: int) -> None:
    grouped = "".join(whole(Detokenizer(VOCABULARY), [ids[:cut], ids[cut:]]))
    assert grouped == "".join(whole(Detokenizer(VOCABULARY), one_by_one(ids)))
    assert grouped == BACKEND.decode(ids, skip_special_tokens=False)


def test_a_split_character_waits_and_nothing_else_does() -> None:
    ids = BACKEND.encode("a🙂b").ids
    pieces = whole(Detokenizer(VOCABULARY), one_by_one(ids))
    assert [piece for piece in pieces if piece] == ["a", "🙂", "b"]


def test_bytes_cut_off_at_the_end_are_one_replacement_character() -> None:
    ids = BACKEND.encode("🙂").ids
    if len(ids) == 1:
        ids = [BACKEND.token_to_id("ð"), BACKEND.token_to_id("Ł")]
    assert whole(Detokenizer(VOCABULARY), [ids[:-1]]) == ["", "\ufffd"]


def test_structural_tokens_stay_and_begin_goes() -> None:
    ids = [BEGIN, *BACKEND.encode("<think>a</think>[e~[").ids]
    assert "".join(whole(Detokenizer(VOCABULARY, frozenset((BEGIN,))), [ids])) == "<think>a</think>[e~["


def test_unknown_ids_add_nothing() -> None:
    assert whole(Detokenizer(VOCABULARY), [[10**6]]) == ["", ""]


def test_bytes_of_a_replay() -> None:
    detokenizer = Detokenizer(VOCABULARY)
    raw = "né".encode()
    assert [detokenizer.feed_bytes(raw[:2]), detokenizer.feed_bytes(raw[2:]), detokenizer.finish()] == ["n", "é", ""]


def test_bytes_of_a_token() -> None:
    space, end = BACKEND.encode(" ").ids[0], BACKEND.token_to_id("[e~[")
    assert (VOCABULARY.bytes_of(space), VOCABULARY.bytes_of(end)) == (b" ", b"[e~[")


@given(st.text(st.sampled_from("ab é🙂"), min_size=1))
def test_byte_fallback_vocabularies_stream_too(text: str) -> None:
    vocabulary = {"<unk>": 0, "▁": 1, "a": 2, "b": 3} | {f"<0x{byte:02X}>": 4 + byte for byte in range(256)}
    backend = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    ids = backend.encode(text).ids
    pieces = whole(Detokenizer(Vocabulary(backend)), one_by_one(ids))
    assert "".join(pieces) == backend.decode(ids)
