"""Where schemas sit inside a schema, and the JSON pointers that lead to them."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
SINGLES = (
    "items",
    "additionalItems",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "propertyNames",
    "contains",
    "not",
    "if",
    "then",
    "else",
)
DEFINITIONS = ("$defs", "definitions")
ANNOTATIONS = frozenset(
    ("title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly", "$schema")
)

Path = tuple[str | int, ...]


def children(schema: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Each subschema with its path from `schema`, such as ("properties", "when"). Values are as found, any type."""
    for keyword, value in schema.items():
        if keyword in MAPS and isinstance(value, dict):
            yield from (((keyword, name), inner) for name, inner in value.items())
        elif isinstance(value, list) and (keyword in LISTS or keyword == "items"):
            yield from (((keyword, index), inner) for index, inner in enumerate(value))
        elif keyword in SINGLES:
            yield (keyword,), value


def dotted(at: str, path: Path) -> str:
    """A parameter path as OpenAI writes it: `at.properties.when.anyOf[0]`."""
    return at + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def pointer(path: Path) -> str:
    """The URI fragment of `path`: "#/properties/when"."""
    return "#" + "".join("/" + _escaped(str(step)) for step in path)


def _escaped(step: str) -> str:
    step = step.replace("~", "~0").replace("/", "~1")
    return "".join(letter if letter.isalnum() and letter.isascii() else _percent(letter) for letter in step)


def _percent(letter: str) -> str:
    return letter if letter in "-._~!$&'()*+,;=:@" else "".join(f"%{byte:02X}" for byte in letter.encode())


def lookup(root: Any, reference: str) -> Any:
    """What a local reference ("#", "#/$defs/a") points at. Raises KeyError when nothing is there."""
    value = root
    for step in map(str, steps(reference)):
        if isinstance(value, dict):
            value = value[step]
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            raise KeyError(step)
    return value


def steps(reference: str) -> Path:
    """The path that a local reference names. Raises KeyError when it is not local."""
    if reference == "#":
        return ()
    if not reference.startswith("#/"):
        raise KeyError(reference)
    return tuple(unquote(step).replace("~1", "/").replace("~0", "~") for step in reference[2:].split("/"))
