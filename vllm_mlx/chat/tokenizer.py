"""Text to token ids, on the `tokenizers` package alone: only the template's own markers become control tokens."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from vllm_mlx.chat.marks import Marked, Spellings


class TokenizerError(ValueError):
    """A model folder whose tokenizer cannot be used; the message is for the user."""


class Tokenizer:
    """A model's tokenizer, which can also encode text as data: as if it had no added tokens."""

    def __init__(self, backend: Backend) -> None:
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        added = backend.get_added_tokens_decoder()
        self.added: dict[str, int] = {token.content: token_id for token_id, token in added.items()}
        self.special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self._control = {text: token_id for text, token_id in self.added.items() if text.strip()}
        self.control: dict[int, str] = {token_id: text for text, token_id in self._control.items()}
        self.spellings = Spellings(self._control)
        # A token matched after normalizing could be spelled in ways that the marks do not see.
        normalizes = backend.normalizer is not None and any(token.normalized for token in added.values())
        self._always_split = normalizes
        self._tokens: dict[str, AddedToken] = {token.content: token for token in added.values()}

    @classmethod
    def load(cls, folder: Path, *, trust_remote_code: bool = False) -> "Tokenizer":
        """Reads tokenizer.json; without one, transformers is asked to make it.

        Raises:
            TokenizerError: there is no usable tokenizer, or its code may not run.
        """
        path = folder / "tokenizer.json"
        if path.is_file():
            try:
                return cls(Backend.from_file(str(path)))
            except Exception as error:  # tokenizers raises bare Exception
                raise TokenizerError(f"{path} is not a tokenizer: {error}") from error
        return cls(_convert(folder, trust_remote_code))

    @cached_property
    def concatenates(self) -> bool:
        """Whether texts cut behind a control token have the ids of the whole: nothing is put before a text's start."""
        joined = all(
            self.encode(f"{token}{text}") == [token_id, *self.encode(text)]
            for token_id, token in list(self.control.items())[:1]
            for text in ("a", " a", "\n")
        )
        return joined and not any(token.rstrip or token.lstrip for token in self._tokens.values())

    def id_of(self, token: str | None) -> int | None:
        """The id of one token by its text."""
        return None if token is None else self.backend.token_to_id(token)

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        """Ids of a text in which added tokens count, as the model's own tokenizer gives them."""
        return self.backend.encode(text, add_special_tokens=add_special).ids

    def encode_marked(self, marked: Marked) -> list[int]:
        """Ids of a rendered text: spellings that hold data are encoded as text."""
        if not marked.data and not self._always_split:
            return self.encode(marked.text)
        ids: list[int] = []
        last = 0
        for start, end, token_id in self.tokens_in(marked):
            ids += self.encode_plain(marked.text[last:start])
            ids.append(token_id)
            last = end
        return ids + self.encode_plain(marked.text[last:])

    def tokens_in(self, marked: Marked, at: int = 0) -> Iterator[tuple[int, int, int]]:
        """The control tokens of a rendered text from `at` on: start, end (with the blanks that it eats), id."""
        pattern, text = self.spellings.pattern, marked.text
        hit = pattern.search(text, at) if pattern else None
        while pattern and hit is not None:
            token = self._tokens[hit.group()]
            if marked.holds_data(hit.start(), hit.end()) or (token.single_word and _inside_word(text, *hit.span())):
                hit = pattern.search(text, hit.start() + 1)
                continue
            start, end = hit.span()
            if token.lstrip:
                start = max(at, len(text[:start].rstrip()))
            if token.rstrip:
                end += len(text[end:]) - len(text[end:].lstrip())
            yield start, end, self._control[hit.group()]
            at = end
            hit = pattern.search(text, end)

    def encode_plain(self, text: str) -> list[int]:
        """Ids of text in which nothing is a control token."""
        pattern = self.spellings.pattern
        if not self._always_split and (pattern is None or pattern.search(text) is None):
            return self.encode(text)
        ids = self._model_ids(text)
        if self.control.keys().isdisjoint(ids):
            return ids
        # The vocabulary itself holds the spelling: apart, its first character and the rest cannot make it.
        ids, last = [], 0
        hit = pattern.search(text) if pattern else None
        while pattern and hit is not None:
            ids += self._model_ids(text[last : hit.start() + 1])
            last = hit.start() + 1
            hit = pattern.search(text, last)
        return ids + self._model_ids(text[last:])

    def _model_ids(self, text: str) -> list[int]:
        """What the tokenizer does with text between added tokens: normalize, cut into words, look up."""
        backend = self.backend
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        words = backend.pre_tokenizer.pre_tokenize_str(text) if backend.pre_tokenizer is not None else [(text, None)]
        tokenize = backend.model.tokenize
        return [token.id for word, _ in words for token in tokenize(word)]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, every token kept."""
        return self.backend.decode(list(ids), skip_special_tokens=False)


def _inside_word(text: str, start: int, end: int) -> bool:
    before, after = text[start - 1 : start], text[end : end + 1]
    return any(char.isalnum() or char == "_" for char in (before, after) if char)


def _convert(folder: Path, trust_remote_code: bool) -> Backend:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise TokenizerError(f"{folder} has no tokenizer.json (install transformers to convert what it has)") from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=trust_remote_code)
    except (OSError, ValueError, ImportError) as error:
        hint = "" if trust_remote_code else " (if it needs code from the folder: --trust-remote-code)"
        raise TokenizerError(
            f"{folder} has no tokenizer.json, and transformers cannot make one{hint}: {error}"
        ) from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Backend):
        raise TokenizerError(
            f"{folder}: its tokenizer is Python code, without a tokenizer.json; a converted one is needed"
        )
    return backend
