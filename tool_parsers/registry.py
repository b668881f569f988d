"""Parsers by name: loaded when asked for, loud about names that are unknown or taken."""

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Generic, Protocol, TypeVar


class _Parser(Protocol):
    @classmethod
    def speaks(cls, template: str) -> bool: ...


T = TypeVar("T", bound=_Parser)


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


@dataclass(frozen=True, slots=True)
class Registry(Generic[T]):
    """Names and aliases of parser classes. Names are insensitive to case and to `-` or `_`."""

    kind: str
    package: str
    _places: dict[str, tuple[str, str]] = field(default_factory=dict)
    _aliases: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, module: str, cls: str, *aliases: str) -> None:
        """Makes a class known. Raises `ValueError` when one of the names is taken."""
        for new in (name, *aliases):
            if _plain(new) in self._aliases:
                raise ValueError(f"{self.kind} parser name taken twice: {new}")
            self._aliases[_plain(new)] = name
        self._places[name] = (module, cls)

    def resolve(self, name: str) -> str:
        """The canonical name. Raises `KeyError` with what there is."""
        try:
            return self._aliases[_plain(name)]
        except KeyError:
            raise KeyError(f"no {self.kind} parser is called {name!r}; there are: {', '.join(self.names())}") from None

    def get(self, name: str) -> type[T]:
        """The class of this name or alias. Raises `KeyError` with what there is."""
        module, cls = self._places[self.resolve(name)]
        found: Any = getattr(import_module(f"{self.package}.{module}"), cls)
        return found  # type: ignore[no-any-return]

    def names(self) -> list[str]:
        """All canonical names, in alphabetical order."""
        return sorted(self._places)

    def aliases(self, name: str) -> list[str]:
        """The other names of a parser."""
        return sorted(alias for alias, own in self._aliases.items() if own == name and alias != _plain(name))

    def detect(self, template: str) -> str | None:
        """The first parser whose format a chat template (Jinja source) writes; None if no parser knows it."""
        return next((name for name in self._places if self.get(name).speaks(template)), None)
