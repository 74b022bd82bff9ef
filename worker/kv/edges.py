"""How the blocks of a prompt are named in the radix tree."""

from array import array
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from cacheplane.identity import Namespace, Span

Tokens: TypeAlias = "array[int]"  # array("I"): token ids as unsigned 32-bit integers


def edges_of(tokens: Tokens, spans: Sequence[Span], block_size: int, blocks: int) -> list[bytes]:
    """The edges of the first `blocks` blocks: token ids, behind the namespace's key where a span begins."""
    width, raw = block_size * tokens.itemsize, tokens.tobytes()
    edges = [raw[at : at + width] for at in range(0, blocks * width, width)]
    for span in spans:
        if span.start < blocks * block_size:
            index = span.start // block_size
            edges[index] = span.namespace.key + edges[index]
    return edges


def edge_at(tokens: Tokens, namespaces: Mapping[int, Namespace], start: int, block_size: int) -> bytes:
    """The edge of the block that begins at token `start`."""
    namespace = namespaces.get(start)
    raw = tokens[start : start + block_size].tobytes()
    return raw if namespace is None else namespace.key + raw
