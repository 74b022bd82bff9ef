"""An engine in this process, driven step by step, to tell its own time from the model's."""

import time

import torch
from torch import Tensor

from gateway.up.model import find_model
from worker.engine import Engine
from worker.kv import KVMemory, Layout, SlotLayout
from worker.model import Model
from worker.rows import Row
from worker.scheduler import Scheduler
from worker.tokenizer import read_vocabulary
from worker.weights import open_weights
from worker.wire import GenerateRequest, Sampling, SpanWire

_CONTEXT = 512


class EngineRig:
    """The packaged model with `rows` slots.

    prefill_tps   tokens a second of one chunk of 128, measured at the start
    """

    def __init__(self, rows: int = 32) -> None:
        weights = open_weights(find_model("smollm2").path)
        self._model, vocabulary = Model(weights, torch.float32), read_vocabulary(weights)
        shape = self._model.kv_shape
        slots = SlotLayout(shape, slots=rows, context=_CONTEXT, blocks=rows * _CONTEXT // 16, block_size=16)
        memory = KVMemory(slots)
        scheduler = Scheduler(memory, budget=128, max_waiting=8 * rows)
        self._rows = rows
        self._spent = 0.0
        self._plain = self._model.forward
        self._engine = Engine(
            self._model, vocabulary, memory, scheduler, context=_CONTEXT, publish=lambda _: 0, on_crash=lambda _: None
        )
        began = time.perf_counter()
        for start in (0, 128):
            self._model.forward([0] * 128, [Row(0, start, 128)], slots)
        self.prefill_tps = 256 / (time.perf_counter() - began)

    def scheduler_share(self, steps: int = 30) -> float:
        """The part of a step that is not the model's forward pass, all rows decoding with random sampling."""
        self._model.forward = self._timed  # type: ignore[method-assign]
        for number in range(self._rows):
            self._engine.submit(_request(number), [], lambda _: None)
        while self._engine.load.decode_sequences < self._rows:
            self._engine.step()
        self._spent = 0.0
        began = time.perf_counter()
        for _ in range(steps):
            self._engine.step()
        whole = time.perf_counter() - began
        return (whole - self._spent) / whole

    def _timed(self, tokens: list[int], rows: list[Row], layout: Layout) -> Tensor:
        began = time.perf_counter()
        logits = self._plain(tokens, rows, layout)
        self._spent += time.perf_counter() - began
        return logits


def _request(number: int) -> GenerateRequest:
    return GenerateRequest(
        request_id=str(number),
        tokens=[number + 20] * 40,
        spans=[SpanWire(0, f"{number:064x}")],
        sampling=Sampling(max_tokens=400, ignore_eos=True, temperature=0.0),
        tag=str(number % 4),
    )
