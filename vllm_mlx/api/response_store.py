"""What `previous_response_id`, `item_reference` and `GET /v1/responses/{id}` find: the latest responses, in memory."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tool_parsers.json_text import write_json

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response as it was sent, and the items that a next turn goes on from: its input and its output."""

    body: bytes
    history: Sequence[Item]
    output_ids: Sequence[str]
    size: int

    @property
    def input(self) -> Sequence[Item]:
        """The items that it was asked with."""
        return self.history[: len(self.history) - len(self.output_ids)]


class ResponseStore:
    """Forgets the response that was used least lately once there are too many, by number or by bytes."""

    def __init__(self, *, max_responses: int = 1000, max_bytes: int = 128 * 2**20) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._responses: OrderedDict[str, StoredResponse] = OrderedDict()
        self._items: dict[str, Item] = {}
        self._bytes = 0

    def put(self, id: str, body: bytes, history: Sequence[Item], output: Sequence[Item]) -> None:
        """Keeps a response; `history` is what it was asked with. One that is too big alone is not kept."""
        # Histories share their items: counting each in full errs on the safe side.
        size = len(body) + sum(_size(item) for item in history)
        if size > self._max_bytes:
            return
        stored = StoredResponse(body, [*history, *output], [item["id"] for item in output], size)
        self._responses[id] = stored
        self._items.update({item["id"]: item for item in output})
        self._bytes += size
        while len(self._responses) > self._max_responses or self._bytes > self._max_bytes:
            self.delete(next(iter(self._responses)))

    def get(self, id: str) -> StoredResponse | None:
        """A response that is still known."""
        stored = self._responses.get(id)
        if stored is not None:
            self._responses.move_to_end(id)
        return stored

    def item(self, id: str) -> Item | None:
        """An output item of a response that is still known."""
        return self._items.get(id)

    def delete(self, id: str) -> bool:
        """Forgets a response; False when it was not known."""
        stored = self._responses.pop(id, None)
        if stored is None:
            return False
        self._bytes -= stored.size
        for item in stored.output_ids:
            self._items.pop(item, None)
        return True


def _size(item: Item) -> int:
    return len(write_json(item))
