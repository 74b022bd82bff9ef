"""Of what type the values of keywords are, so that whoever reads them afterwards need not ask.

source   the meta-schema of JSON Schema 2020-12; keywords whose values are schemas are checked where these are read
"""

from collections.abc import Callable
from typing import Any

from gateway.schemas.limits import SchemaError
from gateway.schemas.tree import Path, dotted


def check_shape(node: dict[str, Any], at: str, path: Path) -> None:
    """Raises SchemaError for the first keyword of one schema whose value is of another type."""
    for keyword, value in node.items():
        is_right, words = _SHAPES.get(keyword, _ANY)
        if not is_right(value):
            raise SchemaError(f"Must be {words}.", dotted(at, (*path, keyword)), keyword)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(inner, str) for inner in value)


def _is_type(value: Any) -> bool:
    return isinstance(value, str) or _is_texts(value)


def _is_lists_of_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_texts(inner) for inner in value.values())


_Shape = tuple[Callable[[Any], bool], str]
_ANY: _Shape = (lambda _: True, "anything")
_TEXT: _Shape = (_is_text, "a text")
_NUMBER: _Shape = (_is_number, "a number")  # Draft 4 had booleans for two of them, which llguidance drops silently
_SHAPES: dict[str, _Shape] = {
    "type": (_is_type, "the name of a type, or a list of such names"),
    "enum": (_is_list, "a list"),
    "required": (_is_texts, "a list of names"),
    "dependentRequired": (_is_lists_of_texts, "an object of lists of names"),
    **dict.fromkeys(("$ref", "format", "pattern"), _TEXT),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"), _NUMBER),
    **dict.fromkeys(("minProperties", "maxProperties"), _NUMBER),
}
