"""Which tokens visible text is made of, among thoughts, calls and markup."""

from collections import deque
from collections.abc import Sequence

from vllm_mlx.api.generation import Token
from vllm_mlx.chat.detokenize import Vocabulary


class TextTokens:
    """Tokens wait here until it is known what became of them: text is sent later than the tokens that it is of.

    A token that straddles the end of a piece belongs to that piece.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._bytes = bytearray()
        """What is written and not yet taken."""
        self._waiting: deque[tuple[int, Token]] = deque()
        """The tokens that end in it, and how many bytes are behind each one's end."""
        self._seen = 0

    def feed(self, tokens: Sequence[Token]) -> None:
        """The tokens of a step, before its events."""
        for token in tokens:
            raw = self._vocabulary.bytes_of(token.id)
            self._bytes += raw
            self._seen += len(raw)
            self._waiting.append((self._seen, token))

    def take(self, text: str) -> list[Token]:
        """The tokens of the next piece of a text or a thought. What was written before it is markup and is dropped."""
        piece = text.encode()
        at = self._bytes.find(piece)
        # Bytes that are no characters are not found; then all that waits is of the piece.
        begin, end = (at, at + len(piece)) if at >= 0 else (0, len(self._bytes))
        before = self._seen - len(self._bytes)
        del self._bytes[:end]
        found = []
        while self._waiting and self._waiting[0][0] <= before + begin:
            self._waiting.popleft()
        reached = before + begin
        while self._waiting and reached < before + end:
            reached, token = self._waiting.popleft()
            found.append(token)
        return found

    def drop(self) -> None:
        """A call has ended: its tokens are of no text."""
        self._bytes.clear()
        self._waiting.clear()
