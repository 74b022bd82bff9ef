"""Which keyword it was: the grammar engine refuses a whole schema, the client wants to know what to change."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from gateway.schemas.limits import SchemaError
from gateway.schemas.tree import DEFINITIONS, Path, children, dotted, lookup, pointer, steps

MAX_BYTES = 512 * 1024
"""Schema text compiled to find the keyword: 8 tries for the largest schema. Then the blame stays where it has come."""
MAX_SECONDS = 1.0
"""Of the thread's CPU time, likewise: of a small schema that combines alternatives each try takes as long as it may."""
_ROOT = "saltway-root"
_MESSAGE_CHARACTERS = 200
_UNIMPLEMENTED = re.compile(r'Unimplemented keys: \["(?P<keyword>[^"]+)"')

Refusal = Callable[[dict[str, Any]], str | None]


def blame(schema: dict[str, Any], reason: str, at: str, refusal: Refusal) -> SchemaError:
    """The error for `schema`, which `refusal` refuses for `reason`: the deepest part that fails on its own, and in it
    the keyword without which it would pass.
    """
    search = _Search(schema, refusal)
    path, node, reason = search.deepest((), schema, reason)
    keyword = search.culprit(node, reason)
    param = dotted(at, path if keyword is None else (*path, keyword))
    name = "This schema" if keyword is None else f"`{keyword}` here"
    return SchemaError(f"{name} cannot be enforced: {_first_line(reason)}", param, keyword)


def _first_line(reason: str) -> str:
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    told = next((line for line in lines if line.startswith("error:")), lines[0] if lines else "unknown reason")
    return told.removeprefix("error:").strip()[:_MESSAGE_CHARACTERS]


class _Search:
    """Compiles parts of one schema, a bounded number of times and for a bounded time."""

    def __init__(self, root: dict[str, Any], refusal: Refusal) -> None:
        self._root = root
        self._refusal = refusal
        self._size = len(msgspec.json.encode(root))
        self._spent = 0
        self._until = time.thread_time() + MAX_SECONDS
        self._seen: set[Path] = set()

    def deepest(self, path: Path, node: dict[str, Any], reason: str) -> tuple[Path, dict[str, Any], str]:
        """Walk down, through references too, as long as some part of the refused node is refused alone."""
        for step, inner in self._parts(path, node):
            inner_reason = None if step in self._seen else self._alone(step)
            self._seen.add(step)
            if inner_reason is not None:
                return self.deepest(step, inner, inner_reason)
        return path, node, reason

    def culprit(self, node: dict[str, Any], reason: str) -> str | None:
        """The first keyword whose removal makes `node` pass; `type` only when nothing else does."""
        named = _UNIMPLEMENTED.search(reason)
        if named is not None and named["keyword"] in node:
            return named["keyword"]
        candidates = sorted(
            (keyword for keyword in node if keyword not in DEFINITIONS), key=lambda name: name == "type"
        )
        for keyword in candidates:
            rest = {name: value for name, value in node.items() if name != keyword}
            if self._refused({**self._definitions(), **rest}) is None:
                return keyword
        return candidates[0] if len(candidates) == 1 else None

    def _parts(self, path: Path, node: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
        for step, inner in children(node):
            # A definition is to blame only where it is used.
            if isinstance(inner, dict) and step[0] not in DEFINITIONS:
                yield path + step, inner
        if "$ref" in node:
            target = lookup(self._root, node["$ref"])
            if isinstance(target, dict):
                yield steps(node["$ref"]), target

    def _alone(self, path: Path) -> str | None:
        reference = pointer((_ROOT, *path))
        reason = self._refused({**self._definitions(), "$ref": reference, _ROOT: self._root})
        # A part whose own references do not start at the definitions cannot be judged alone.
        return None if reason is not None and "does not exist" in reason else reason

    def _definitions(self) -> dict[str, Any]:
        return {keyword: self._root[keyword] for keyword in DEFINITIONS if keyword in self._root}

    def _refused(self, schema: dict[str, Any]) -> str | None:
        self._spent += self._size
        is_over = self._spent > MAX_BYTES or time.thread_time() > self._until
        return None if is_over else self._refusal(schema)
