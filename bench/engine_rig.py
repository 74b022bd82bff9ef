"""An engine in this process, driven step by step, to tell its own time from the model's."""

import time
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from gateway.up.model import find_model
from kernels import compute_dtype, storage_of
from worker.engine import Engine
from worker.kv import KVMemory, Layout, SlotLayout, kept_as
from worker.model import Model
from worker.rows import Row
from worker.sampler import Logits
from worker.scheduler import Scheduler
from worker.tokenizer import read_vocabulary
from worker.weights import open_weights
from worker.wire import GenerateRequest, Sampling, SpanWire

_CONTEXT = 512


class Shares(NamedTuple):
    """Parts of a step that are not the model's forward pass.

    scheduler   scheduler and KV memory
    engine      all of them: also choosing tokens, and telling them
    """

    scheduler: float
    engine: float


class EngineRig:
    """The packaged model with `rows` slots, its weights and KV kept as a worker keeps them on this machine.

    shape         of that KV
    prefill_tps   tokens a second of one chunk of 128, measured at the start
    """

    def __init__(self, rows: int = 32) -> None:
        weights = open_weights(find_model("smollm2").path)
        dtype = compute_dtype("auto")
        self._model = Model(weights, dtype, storage=storage_of("auto", dtype))
        vocabulary, plain = read_vocabulary(weights), self._model.kv_shape
        self.shape = kept_as("auto", plain, computed_in_c=SlotLayout.computed_in_c(plain, self._model.device))
        slots = SlotLayout(self.shape, slots=rows, context=_CONTEXT, blocks=rows * _CONTEXT // 16, block_size=16)
        memory = KVMemory(slots)
        self._scheduler = Scheduler(memory, budget=128, max_waiting=8 * rows)
        self._rows = rows
        self._computing = self._choosing = 0.0
        self._plain = self._model.forward
        self._engine = Engine(
            self._model,
            vocabulary,
            memory,
            self._scheduler,
            context=_CONTEXT,
            publish=lambda _: 0,
            on_crash=lambda _: None,
        )
        began = time.perf_counter()
        for start in (0, 128):
            self._model.forward([0] * 128, [Row(0, start, 128)], slots)
        self.prefill_tps = 256 / (time.perf_counter() - began)

    def shares(self, steps: int = 30) -> Shares:
        """All rows decoding, over so many steps."""
        self._model.forward = self._timed  # type: ignore[method-assign]
        for number in range(self._rows):
            self._engine.submit(_request(number), [], lambda _: None)
        for job in self._scheduler.jobs.values():
            for sequence in job.sequences:
                sequence.advance = self._chosen(sequence.advance)  # type: ignore[assignment, method-assign]
        while self._engine.load.decode_sequences < self._rows:
            self._engine.step()
        self._computing = self._choosing = 0.0
        began = time.perf_counter()
        for _ in range(steps):
            self._engine.step()
        whole = time.perf_counter() - began
        own = whole - self._computing
        return Shares(round((own - self._choosing) / whole, 4), round(own / whole, 4))

    def _timed(self, tokens: list[int], rows: list[Row], layout: Layout) -> Tensor:
        began = time.perf_counter()
        logits = self._plain(tokens, rows, layout)
        self._computing += time.perf_counter() - began
        return logits

    def _chosen(self, advance: Callable[[Logits, list[int]], int]) -> Callable[[Logits, list[int]], int]:
        def timed(logits: Logits, drafts: list[int]) -> int:
            began = time.perf_counter()
            accepted = advance(logits, drafts)
            self._choosing += time.perf_counter() - began
            return accepted

        return timed


def _request(number: int) -> GenerateRequest:
    return GenerateRequest(
        request_id=str(number),
        tokens=[number + 20] * 40,
        spans=[SpanWire(0, f"{number:064x}")],
        sampling=Sampling(max_tokens=400, ignore_eos=True, temperature=0.0),
        tag=str(number % 4),
    )
