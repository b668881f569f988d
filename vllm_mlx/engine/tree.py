"""A tree of token runs that share their beginnings, and its index: hashes of token blocks, each chained to the last.

A node holds tokens from `base` on; those before are its parent's. What belongs to the tokens is the subclasses' matter.
"""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

BLOCK = 32
"""Tokens a hash covers, and the fewest that are worth a node."""


@dataclass(slots=True, eq=False, kw_only=True)
class Node:
    """Tokens `base` to `end`; `hashes` are of the blocks that end in there, `used` is when it was last of use."""

    base: int
    tokens: list[int]
    hashes: list[bytes] = field(default_factory=list)
    parent: Self | None = None
    children: list[Self] = field(default_factory=list)
    used: int = 0

    @property
    def end(self) -> int:
        return self.base + len(self.tokens)

    def path(self) -> list[Self]:
        """From the root to this one."""
        node: Self | None = self
        path = []
        while node is not None:
            path.append(node)
            node = node.parent
        return path[::-1]


N = TypeVar("N", bound=Node)


class Tree(Generic[N]):
    """Nodes by their tokens."""

    def __init__(self, salt: bytes = b"") -> None:
        """`salt` begins the chain of hashes: it names what the nodes depend on besides the tokens."""
        self._salt = salt
        self._roots: list[N] = []
        self._index: dict[bytes, N] = {}
        self._clock = 0

    def nodes(self) -> Iterator[N]:
        """All, parents first."""
        stack = list(self._roots)
        while stack:
            node = stack.pop()
            yield node
            stack += node.children

    def __contains__(self, node: N) -> bool:
        """Whether it hangs on a root of this tree, and has not been removed with one before it."""
        return all(part in (part.parent.children if part.parent else self._roots) for part in node.path())

    def chain(self, tokens: Sequence[int], known: Sequence[bytes] = ()) -> Iterator[bytes]:
        """The hashes of the whole blocks of `tokens` after those that are known."""
        digest = known[-1] if known else self._salt
        for start in range(len(known) * BLOCK, len(tokens) - BLOCK + 1, BLOCK):
            block = array("I", tokens[start : start + BLOCK]).tobytes()
            digest = hashlib.blake2b(digest + block, digest_size=16).digest()
            yield digest

    def match(self, tokens: Sequence[int]) -> tuple[int, N | None]:
        """How many of the tokens there are, and the node that holds the last of them."""
        count, node = 0, None
        for digest in self.chain(tokens):
            found = self._index.get(digest)
            if found is None:
                break
            count, node = count + BLOCK, found
        return (0, None) if node is None else _further(node, tokens, count)

    def known_hashes(self, node: N | None, count: int) -> list[bytes]:
        """The hashes of the whole blocks among the first `count` tokens that end in `node`: not those of branches."""
        if node is None:
            return []
        parts = ends(node.path(), count)
        return [digest for part, end in parts for digest in part.hashes[: end // BLOCK - part.base // BLOCK]]

    def attach(self, node: N, parent: N | None, hashes: Sequence[bytes]) -> None:
        """Adds a node below `parent` (None: as a root)."""
        node.parent = parent
        (self._roots if parent is None else parent.children).append(node)
        self.register(node, hashes)

    def register(self, node: N, hashes: Sequence[bytes]) -> None:
        """The node has these blocks as well; all of its blocks that no other node has lead to it."""
        node.hashes += hashes
        for digest in node.hashes:
            self._index.setdefault(digest, node)

    def unregister(self, node: N, hashes: Sequence[bytes]) -> None:
        for digest in hashes:
            if self._index.get(digest) is node:
                del self._index[digest]

    def remove(self, node: N) -> None:
        """Takes out a node and what hangs on it; nothing, if it is out already."""
        if node not in self:
            return
        (node.parent.children if node.parent else self._roots).remove(node)
        gone = [node]
        for each in gone:
            gone += each.children
            self.unregister(each, each.hashes)
            self.forgotten(each)

    def forgotten(self, node: N) -> None:
        """A node is in the tree no more: for what subclasses keep of it."""

    def touch(self, path: Sequence[N]) -> None:
        """The nodes have been used."""
        self._clock += 1
        for node in path:
            node.used = self._clock


def _further(node: N, tokens: Sequence[int], count: int) -> tuple[int, N]:
    """Goes on token by token from a match that ends in `node`, into its children too."""
    end = min(node.end, len(tokens))
    here = count
    while here < end and node.tokens[here - node.base] == tokens[here]:
        here += 1
    best = (here, node)
    for child in node.children:
        if count <= child.base <= here:
            best = max(best, _further(child, tokens, child.base), key=lambda found: found[0])
    return best


def follower(node: Node | None, count: int) -> list[int]:
    """What the tree has after the first `count` tokens that end in `node`."""
    if node is None:
        return []
    if node.end > count:
        return node.tokens[count - node.base :]
    return next((child.tokens for child in node.children if child.base == count), [])


def holders(node: N | None, count: int) -> list[N]:
    """The nodes that hold the first `count` tokens, which end in `node`; none if they are too few to be worth it."""
    while node and node.base >= count:
        node = node.parent
    return node.path() if node and count >= BLOCK else []


def ends(path: Sequence[N], count: int) -> list[tuple[N, int]]:
    """The nodes of a path, and up to which token each is of the first `count`."""
    return list(zip(path, [*(node.base for node in path[1:]), count], strict=True))


def beyond(path: Sequence[N], count: int) -> int:
    """The tokens in the nodes of a path that are not among the first `count`."""
    return sum(node.end - end for node, end in ends(path, count))
