"""Blocks of another engine under our names: its tokens and the salt that we gave it make our own chain."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, Literal

from cacheplane.identity import BLOCK_TOKENS, TOKEN_BYTES, Namespace, block_hash, pack_tokens
from cacheplane.salts import EngineSalts
from cacheplane.subscriber import Sink
from cacheplane.wire import AllBlocksCleared, Batch, BlockRemoved, BlockStored, Content, Event, Tier

MAX_BLOCKS: Final = 262_144  # of one engine, with about 250 bytes each


# Why a block has no name of ours; each is a missed hit, none a false one.
#   salt      its root carries none of ours
#   parent    it hangs on a block that is not known
#   content   its engine does not say its tokens, or it holds more than tokens (images)
#   size      it does not consist of whole blocks of ours
#   full      the engine has more blocks than this memory is for
Obstacle = Literal["salt", "parent", "content", "size", "full"]


@dataclass(slots=True)
class _Known:
    """One block of an engine: our names for it, in order, and the tiers on which it is."""

    names: list[bytes]
    tiers: set[Tier]


class Translation:
    """Stands where the stream of an engine that publishes tokens meets the index, and passes on our own names.

    The engine's hashes serve as keys for what it removes or moves later. Its block may be any multiple of ours.

    unsalted     namespace of what carries no salt, for an engine that nobody shares; None counts such blocks
    block_size   ours, in tokens
    Bound        `max_blocks` for each worker; what comes above it is counted, and not passed on
    """

    def __init__(
        self,
        sink: Sink,
        salts: EngineSalts,
        unsalted: Namespace | None = None,
        block_size: int = BLOCK_TOKENS,
        max_blocks: int = MAX_BLOCKS,
    ) -> None:
        self.unnamed: Counter[Obstacle] = Counter()  # blocks that were counted and not guessed
        self._sink, self._salts, self._unsalted = sink, salts, unsalted
        self._block_size, self._max_blocks = block_size, max_blocks
        self._known: dict[str, dict[bytes, _Known]] = {}
        self._groups: dict[str, set[int | None]] = {}  # of layers with full attention, as far as they were heard of

    def apply(self, worker_id: str, batch: Batch) -> None:
        events = [named for event in batch.events if (named := self._named(worker_id, event)) is not None]
        self._sink.apply(worker_id, Batch(batch.ts, events, batch.dp_rank, batch.epoch, batch.skipped))

    def clear(self, worker_id: str, most: int | None = None) -> int:
        self._forget(worker_id)
        return self._sink.clear(worker_id, most)

    def trust(self, worker_id: str) -> None:
        self._sink.trust(worker_id)

    def doubt(self, worker_id: str) -> None:
        self._sink.doubt(worker_id)

    def drop(self, worker_id: str, most: int | None = None) -> int:
        self._forget(worker_id)
        return self._sink.drop(worker_id, most)

    def _forget(self, worker_id: str) -> None:
        self._known.pop(worker_id, None)
        self._groups.pop(worker_id, None)

    def _named(self, worker_id: str, event: Event) -> Event | None:
        known = self._known.setdefault(worker_id, {})
        groups = self._groups.setdefault(worker_id, {None})
        match event:
            case BlockStored():
                groups.add(event.group)
                return self._stored(known, event)
            case BlockRemoved():
                # The blocks of a window have the same hashes as those of full attention, and go sooner.
                return _removed(known, event) if event.group in groups else None
            case AllBlocksCleared():
                known.clear()
                return event

    def _stored(self, known: dict[bytes, _Known], event: BlockStored) -> Event | None:
        moved = event.content is not None and not event.content.tokens
        names = self._moved(known, event) if moved else self._made(known, event)
        if not names:
            return None
        before = None if event.parent is None else known.get(event.parent)
        return BlockStored(names, before.names[-1] if before else None, self._block_size, event.tier)

    def _moved(self, known: dict[bytes, _Known], event: BlockStored) -> list[bytes]:
        """Blocks that are told of without tokens have been told of with tokens before."""
        names = []
        for key in event.hashes:
            if (block := known.get(key)) is None:
                self.unnamed["content"] += 1
            else:
                block.tiers.add(event.tier)
                names += block.names
        return names

    def _made(self, known: dict[bytes, _Known], event: BlockStored) -> list[bytes]:
        """Our names of the blocks of an event, up to the first that cannot be named: the rest hang on it."""
        made: list[bytes] = []
        parent = None if event.parent is None else known.get(event.parent)
        last = parent.names[-1] if parent else None
        for place, key in enumerate(event.hashes):
            namespace = self._namespace(event.content, place) if last is None else None
            full = key not in known and len(known) >= self._max_blocks
            if (obstacle := self._obstacle(event, place, last, namespace, full)) is not None:
                self.unnamed[obstacle] += len(event.hashes) - place
                break
            names = self._chain(last, namespace, _tokens(event, place))
            known.setdefault(key, _Known(names, set())).tiers.add(event.tier)
            last = names[-1]
            made += names
        return made

    def _obstacle(
        self, event: BlockStored, place: int, parent: bytes | None, namespace: Namespace | None, full: bool
    ) -> Obstacle | None:
        """Why this block of the event cannot be named."""
        content, size = event.content, event.block_size
        if content is None:
            return "content"
        if size == 0 or size % self._block_size or len(content.tokens) != size * len(event.hashes):
            return "size"
        if parent is None:
            if event.parent is not None:
                return "parent"
            if namespace is None:
                return "salt"
        elif _beyond(content, place):
            return "content"
        return "full" if full else None

    def _chain(self, parent: bytes | None, namespace: Namespace | None, data: bytes) -> list[bytes]:
        width = self._block_size * TOKEN_BYTES
        names: list[bytes] = []
        for start in range(0, len(data), width):
            parent = block_hash(parent, namespace, data[start : start + width])
            names.append(parent)
            namespace = None
        return names

    def _namespace(self, content: Content | None, place: int) -> Namespace | None:
        """Of a root block: what else it commits to is the salt that we gave, or nothing."""
        extra = [] if content is None else _beyond(content, place)
        if not extra:
            return self._unsalted if content is not None and content.lora is None else None
        return self._salts.namespace(extra[0]) if len(extra) == 1 and isinstance(extra[0], str) else None


def _removed(known: dict[bytes, _Known], event: BlockRemoved) -> Event | None:
    names = []
    for key in event.hashes:
        if (block := known.get(key)) is None or event.tier not in block.tiers:
            continue
        block.tiers.discard(event.tier)
        names += block.names
        if not block.tiers:
            del known[key]
    return BlockRemoved(names, event.tier, event.reason) if names else None


def _tokens(event: BlockStored, place: int) -> bytes:
    """The tokens of one block, as they are hashed."""
    size = event.block_size
    return pack_tokens(event.content.tokens[place * size : (place + 1) * size]) if event.content else b""


def _beyond(content: Content, place: int) -> list[Any]:
    """What a block commits to beside its tokens and the adapter, which a salt of ours commits to already."""
    extra = content.extra[place] if place < len(content.extra) else None
    return [part for part in extra or () if part != content.lora]
