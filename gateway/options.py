"""What a settings struct says of itself: its options by name, as variables, and as a table for people."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import inspect

PREFIX = "SALTWAY_"


class Option(msgspec.Struct, frozen=True):
    """One leaf of a struct of settings: `limits.body_bytes` has the path ("limits", "body_bytes")."""

    path: tuple[str, ...]
    annotation: Any
    default: Any

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        return PREFIX + "_".join(self.path).upper()

    @property
    def description(self) -> str:
        """What the option is for, from its own declaration; KeyError where none was written."""
        (meta,) = (part for part in get_args(self.annotation) if isinstance(part, msgspec.Meta))
        if meta.description is None:
            raise KeyError(self.name)
        return meta.description

    @property
    def kind(self) -> str:
        """What may be given, in words: `a whole number, 1 to 65535`."""
        return _kind(inspect.type_info(self.annotation))

    def value(self, settings: msgspec.Struct) -> Any:
        value: Any = settings
        for part in self.path:
            value = getattr(value, part)
        return value


def options(struct: type[msgspec.Struct], above: tuple[str, ...] = ()) -> Iterator[Option]:
    """Every option of the struct and of the structs in it, in the order of declaration."""
    for field in msgspec.structs.fields(struct):
        path = (*above, field.name)
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from options(field.type, path)
        else:
            yield Option(path, field.type, field.default)


def as_text(value: Any) -> str:
    """A value as its variable would hold it; folders in full, since another process may start elsewhere."""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value.absolute() if isinstance(value, Path) else value)


def table(struct: type[msgspec.Struct]) -> str:
    """The options as a Markdown table."""
    rows = [
        "| `saltway.toml` | environment | what may be given | default | meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    for option in options(struct):
        default = str(option.default) if option.default not in ("", ()) else ""
        cells = (f"`{option.name}`", f"`{option.variable}`", option.kind, f"`{default}`" if default else "empty")
        rows.append(f"| {' | '.join(cells)} | {option.description} |")
    return "\n".join(rows)


def _kind(info: inspect.Type) -> str:
    match info:
        case inspect.Metadata():
            return _kind(info.type)
        case inspect.IntType():
            return f"a whole number{_range(info.ge, info.le)}"
        case inspect.StrType():
            return "text" if not info.min_length else "text, not empty"
        case inspect.LiteralType():
            return "one of " + ", ".join(str(value) for value in info.values)
        case inspect.VarTupleType():
            return "a list of addresses with http:// or https://"
        case inspect.CustomType(cls=cls) if cls is Path:
            return "a path"
    raise TypeError(f"an option of type {info} has no words for people yet")


def _range(least: int | None, most: int | None) -> str:
    if least is None:
        return ""
    return f", {least} or more" if most is None else f", {least} to {most}"
