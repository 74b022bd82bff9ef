"""The ends of sequences: what lies behind a sequence's last full block, where a session's next turn goes on."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cacheplane.identity import Namespace
from worker.kv.edges import Tokens
from worker.kv.holding import Holding
from worker.kv.layout import Layout
from worker.kv.radix import Node
from worker.kv.store import BlockStore, copy_block

_Name: TypeAlias = tuple[Node, bytes]  # the node that it follows, and the key of the namespace that begins with it


@dataclass(frozen=True, slots=True)
class _Tail:
    tokens: Tokens
    block: int


class Tails:
    """The last few tokens of sequences that have ended, fewer than a block, on the device.

    Blocks of the pool are full, so that a hash can name each; without this a turn would compute up to a block less one
    token of the turn before once more. Nobody is told of them, they go nowhere else, and there is one behind each
    block at most, the newest. The one that was wanted least lately makes room for a new one.

    most          how many there may be, each in memory for a block
    spoil_freed   for tests: memory that holds none is NaN

    A tail is found by the node that it follows, to which a sequence comes by all its tokens and namespaces before, and
    by the namespace that begins with it, if one does. So nobody finds another's. That of a node which has left the tree
    is found by nobody any more.
    """

    def __init__(self, layout: Layout, most: int, *, spoil_freed: bool = False) -> None:
        self._layout, self._most = layout, most
        self._store = BlockStore(layout.shape, most, layout.block_size, layout.device)
        self._free = list(range(most))
        self._spoil_freed = spoil_freed
        self._kept: OrderedDict[_Name, _Tail] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, holding: Holding, tokens: Tokens, computed: int) -> None:
        """Of a sequence that ends, what lies behind its stored blocks, up to where another namespace begins."""
        start = holding.stored * self._layout.block_size
        end = min([computed, *(at for at in holding.namespaces if at > start)])
        if not self._most or not holding.storing or not 0 < end - start < self._layout.block_size:
            return
        name = _name(holding.node, holding.namespaces, start)
        self._drop(name)
        if not self._free:
            self._drop(next(iter(self._kept)))
        tail = _Tail(tokens[start:end], self._free.pop())
        copy_block(self._store.block(tail.block), self._layout.view(holding.slot, holding.stored))
        self._kept[name] = tail

    def shared(self, holding: Holding, tokens: Tokens, start: int) -> int:
        """How many tokens from `start` on, where whole blocks end, the sequence has in common with a tail."""
        tail = self._kept.get(_name(holding.node, holding.namespaces, start))
        if tail is None:
            return 0
        end = min([len(tokens), *(at for at in holding.namespaces if at > start)])
        pairs = zip(tail.tokens, tokens[start : min(end, start + len(tail.tokens))], strict=False)
        return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(tail.tokens), end - start))

    def bring_in(self, holding: Holding, start: int) -> bool:
        """The slot's next block is the tail that follows; False when there is no room for it."""
        index, name = start // self._layout.block_size, _name(holding.node, holding.namespaces, start)
        into = self._layout.expect(holding.slot, index)
        if into is None:
            return False
        copy_block(into, self._store.block(self._kept[name].block))
        self._layout.arrived(holding.slot)
        self._kept.move_to_end(name)
        return True

    def forget(self, node: Node, namespaces: Mapping[int, Namespace], start: int) -> None:
        """The tail behind that node, which ends before `start`, if there is one."""
        self._drop(_name(node, namespaces, start))

    def check(self) -> None:
        """RuntimeError when the books do not balance."""
        blocks = [*self._free, *(tail.block for tail in self._kept.values())]
        if sorted(blocks) != list(range(self._most)) or any(not tail.tokens for tail in self._kept.values()):
            raise RuntimeError("tails: blocks in use and free blocks differ from those that there are")

    def _drop(self, name: _Name) -> None:
        tail = self._kept.pop(name, None)
        if tail is None:
            return
        self._free.append(tail.block)
        if self._spoil_freed:
            self._store.spoil(tail.block)


def _name(node: Node, namespaces: Mapping[int, Namespace], start: int) -> _Name:
    namespace = namespaces.get(start)
    return node, b"" if namespace is None else namespace.key
