"""What one running sequence holds of KV memory."""

from concurrent.futures import Future
from dataclasses import dataclass, field

from cacheplane.identity import Namespace
from worker.kv.edges import Tokens
from worker.kv.radix import Node
from worker.wire import Cached


@dataclass(slots=True, eq=False)
class Holding:
    """A slot, and the node of the tree that the sequence stands on.

    namespaces   namespace by the token where its span begins
    reused       tokens whose KV the slot began with
    cached       the same by the tier that they came from
    stored       full blocks of this sequence that are in the tree
    storing      False once a block could not be stored, or when nothing shall be: later blocks would have no parent
    loading      True while blocks of the prefix are still on their way; the slot is not computed on until then
    """

    slot: int
    node: Node
    namespaces: dict[int, Namespace]
    storing: bool
    reused: int = 0
    cached: Cached = field(default_factory=Cached)
    stored: int = 0
    loading: bool = False
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """A load under way: the path that was planned, and which of its nodes the loader brings in, in order."""

    holding: Holding
    tokens: Tokens
    path: list[Node]
    brought: list[int]
    future: "Future[int]"
