"""The cache plane: which worker holds which blocks, and what that is worth.

owns            cache identity, the event wire, stream recovery, the prefix index, fleet state, placement
does not own    HTTP, tenants and keys, tensors, prompts
front door      Namespace, BlockChain (identity); Batch, Snapshot and their codecs (wire);
                Subscriber, PrefixIndex, Fleet, Placement; Translation, Ranks, Poller for engines that are not ours

| file        | noun                                                                            |
|-------------|---------------------------------------------------------------------------------|
| identity    | Scope, Namespace, Span, BlockChain: who may share blocks, and their names       |
| wire        | Batch, Snapshot, Message: what workers say, from any engine, in one normal form |
| stream      | StreamState: pure recovery from loss, duplication, reordering, restarts         |
| refill      | refill: a snapshot as batches, so that it is taken in piece by piece            |
| subscriber  | Subscriber: one worker's sockets, following the stream into the index           |
| content     | decode_engine_batch: the wire with what an engine's blocks hold                 |
| salts       | EngineSalts: what engines are given for a namespace, and the way back           |
| translation | Translation: an engine's blocks under our names, between stream and index       |
| ranks       | Ranks: data-parallel ranks of one engine, each a holder of its own              |
| tensorrt    | Poller: TensorRT-LLM's events, fetched as JSON                                  |
| index       | PrefixIndex: confirmed blocks by worker and tier                                |
| blocktable  | BlockTable: the columns of the index, found by the keys of a whole prompt       |
| keytable    | KeyTable: a hash table over numpy arrays, from keys to rows                     |
| places      | Places: which row a block gets, those of a chain together                       |
| holders     | Holders, HolderSets: who holds a block where, each different set kept once      |
| roster      | Roster: workers as bits of a mask                                               |
| overlap     | Overlap: how much of a prompt each worker holds                                 |
| prefixtree  | PrefixTree: chains by owner, and how much each shares with a prompt             |
| siblings    | Siblings: our own fresh decisions, never mixed with confirmed blocks            |
| guesses     | Guesses: our own past decisions, for workers without events                     |
| missed      | Missed: recently missed work, faded                                             |
| parity      | Parity, Verdict: predicted against delivered reuse, and who may be believed     |
| report      | LoadReport, Occupancy: what a worker says of its load                           |
| rates       | PrefillRate: what we learn of a worker that does not say                        |
| breaker     | Breaker: whether requests may be sent where they have failed                    |
| worker      | Worker, WorkerState, Charge: one worker, and what it was sent                   |
| gauges      | Gauges: the figures of all workers in columns                                   |
| fleet       | Fleet, Line: who is there, how they are, who may be chosen                      |
| reach       | Prompt, Reach: what is known of a prompt on each worker                         |
| cost        | Cost, Costs: what a request costs on each worker, in milliseconds               |
| strategy    | Strategy: by what a worker is chosen                                            |
| tally       | Tally: decisions by mode                                                        |
| placement   | Placement, Decision: the worker that costs least                                |

A worker imports `cacheplane.identity` and `cacheplane.wire` only.
"""

from cacheplane.content import decode_engine_batch
from cacheplane.cost import Cost
from cacheplane.fleet import Fleet
from cacheplane.identity import BLOCK_TOKENS, BlockChain, Namespace, Scope, Span, block_hash, derive_salt, pack_tokens
from cacheplane.index import Overlap, PrefixIndex
from cacheplane.parity import Parity
from cacheplane.placement import Decision, NoWorkerError, Placement
from cacheplane.ranks import Ranks
from cacheplane.report import LoadReport
from cacheplane.salts import EngineSalts
from cacheplane.stream import Phase, StreamState
from cacheplane.subscriber import Subscriber
from cacheplane.tensorrt import Poller
from cacheplane.translation import Translation
from cacheplane.wire import Batch, Snapshot, Tier, WireError, decode_batch, decode_snapshot
from cacheplane.worker import Worker, WorkerState

__all__ = [
    "BLOCK_TOKENS",
    "Batch",
    "BlockChain",
    "Cost",
    "Decision",
    "EngineSalts",
    "Fleet",
    "LoadReport",
    "Namespace",
    "NoWorkerError",
    "Overlap",
    "Parity",
    "Phase",
    "Placement",
    "Poller",
    "PrefixIndex",
    "Ranks",
    "Scope",
    "Snapshot",
    "Span",
    "StreamState",
    "Subscriber",
    "Tier",
    "Translation",
    "WireError",
    "Worker",
    "WorkerState",
    "block_hash",
    "decode_batch",
    "decode_engine_batch",
    "decode_snapshot",
    "derive_salt",
    "pack_tokens",
]
