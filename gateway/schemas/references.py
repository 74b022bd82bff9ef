"""References: local only, of bounded expansion, and with an end."""

from typing import Any

from gateway.schemas.limits import SchemaError
from gateway.schemas.tree import Path, children, dotted, lookup

MAX_EXPANSION = 50_000
"""Subschemas after every reference is written out, recursion counted once."""
MAX_REFERENCES = 256
"""Different targets in one schema."""
MAX_CHAIN = 32
"""References that lead to references."""


def check_references(schema: dict[str, Any], at: str) -> None:
    """Raises SchemaError for a reference that is remote, dangling or circular, or for too much behind them.

    A recursive schema is fine as long as some instance of it is finite: a tree whose children may be empty is, an
    object that requires itself is not.
    """
    targets: dict[str, Any] = {}
    _collect(schema, schema, at, (), targets)
    if not targets:
        return
    if len(targets) > MAX_REFERENCES:
        raise SchemaError(f"More than {MAX_REFERENCES} definitions are referred to.", f"{at}.$ref", "$ref")
    _expand(schema, targets, {}, (), at)
    if not _has_end(schema, _ending(targets)):
        raise SchemaError("The schema requires itself without end.", f"{at}.$ref", "$ref")


def _collect(root: dict[str, Any], node: Any, at: str, path: Path, targets: dict[str, Any]) -> None:
    """Fill `targets` with what each reference points at."""
    if not isinstance(node, dict):
        return
    if "$ref" in node:
        reference = node["$ref"]
        param = dotted(at, (*path, "$ref"))
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise SchemaError("Only references inside the schema (#/...) are followed.", param, "$ref")
        if reference not in targets:
            try:
                targets[reference] = lookup(root, reference)
            except KeyError:
                raise SchemaError("The reference points at nothing.", param, "$ref") from None
            # The target may lie where no keyword leads, as in OpenAPI's #/components/schemas.
            _collect(root, targets[reference], at, (*path, "$ref"), targets)
    for step, inner in children(node):
        _collect(root, inner, at, path + step, targets)


def _expand(node: Any, targets: dict[str, Any], sizes: dict[str, int], open_: tuple[str, ...], at: str) -> int:
    """The number of subschemas of `node` written out; a reference that is being expanded already counts as one."""
    if not isinstance(node, dict):
        return 1
    size = 1 + sum(_expand(inner, targets, sizes, open_, at) for _, inner in children(node))
    reference = node.get("$ref")
    if reference is not None and reference not in open_:
        if len(open_) >= MAX_CHAIN:
            raise SchemaError(f"References are chained more than {MAX_CHAIN} deep.", f"{at}.$ref", "$ref")
        if reference not in sizes:
            sizes[reference] = _expand(targets[reference], targets, sizes, (*open_, reference), at)
        size += sizes[reference]
    if size > MAX_EXPANSION:
        message = f"Written out, the schema has more than {MAX_EXPANSION} parts."
        raise SchemaError(message, f"{at}.$ref", "$ref")
    return size


def _ending(targets: dict[str, Any]) -> frozenset[str]:
    """The references with a finite instance: the least fixed point."""
    known: frozenset[str] = frozenset()
    while True:
        grown = frozenset(name for name, node in targets.items() if name in known or _has_end(node, known))
        if grown == known:
            return known
        known = grown


def _has_end(node: Any, known: frozenset[str]) -> bool:
    """Whether an instance can be finished without any reference outside `known`."""
    if not isinstance(node, dict):
        return True
    if "$ref" in node and node["$ref"] not in known:
        return False
    for keyword in ("anyOf", "oneOf"):
        branches = node.get(keyword)
        if isinstance(branches, list) and branches and not any(_has_end(branch, known) for branch in branches):
            return False
    if isinstance(node.get("allOf"), list) and not all(_has_end(part, known) for part in node["allOf"]):
        return False
    return not _is_only(node, "object") or all(_has_end(part, known) for part in _required(node))


def _is_only(node: dict[str, Any], kind: str) -> bool:
    return node.get("type") in (kind, [kind])


def _required(node: dict[str, Any]) -> list[Any]:
    properties, required = node.get("properties"), node.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return []
    return [properties[name] for name in required if isinstance(name, str) and name in properties]
