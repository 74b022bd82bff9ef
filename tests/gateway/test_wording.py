"""A report at a terminal: what is said, and that nothing goes without words."""

from dataclasses import fields
from itertools import product
from typing import Any, get_args

from cacheplane.attribution import Kind, Part, Reason
from cacheplane.cost import Cost
from cacheplane.placement import Reason as Decided
from cacheplane.tally import Mode
from gateway.explain import RequestReport
from gateway.reuse import Change, Placed
from gateway.wording import lines


def report(**changed: Any) -> RequestReport:
    costs = {"queue": 12.5, "prefill": 40.0, "load": 0.0, "total": 52.5}
    known: dict[str, Any] = {
        "request_id": "req_1",
        "created_at": 1_796_030_800_000,
        "status": 200,
        "model": "tiny",
        "template": "0a1b2c3d",
        "prompt_tokens": 100,
        "available_tokens": 64,
        "routed_tokens": 32,
        "cached_tokens": 16,
        "missed_tokens": {"parity": 16, "routed_away": 32, "diverged_tools": 32, "below_block": 4},
        "diverged": Change(Part.TOOLS, Kind.ORDER, 3, 64, 32),
        "hint": "Send them in one order.",
        "tenant": "acme",
        "worker": "w0",
        "queue_ms": 3.2,
        "ttft_ms": 61.0,
        "duration_ms": 90.4,
        "placed": Placed("w0", "events", "holder-busy", costs, "w1", costs | {"load": 3.0, "total": 55.5}),
    }
    return RequestReport(**known | changed)


def test_a_report_reads_like_this() -> None:
    assert list(lines(report())) == [
        "request req_1, tenant acme, model tiny, status 200, 2026-11-30 09:26:40 UTC",
        "prompt 100 tokens, template 0a1b2c3d",
        "  available somewhere           64   64.0 %",
        "  routed (on w0)                32   32.0 %",
        "  delivered from cache          16   16.0 %",
        "computed, because",
        "  routed_away                   32   32.0 %  another worker had them; see the decision",
        "  diverged_tools                32   32.0 %  sent before, behind tools that changed",
        "  parity                        16   16.0 %  predicted on the worker, but it did not have them;"
        " look at its event stream",
        "  below_block                    4    4.0 %  below a full block, and the last block, which is always computed",
        "diverged in tools[3], token 64: order; it cost 32 tokens",
        "  Send them in one order.",
        "placed on w0 (holder-busy): another worker held more, and would have cost more",
        "  by events: its blocks are known from its events",
        "expected cost, of which the least is chosen",
        "  w0                      52.5 ms = queue 12.5 + prefill 40.0",
        "  w1                      55.5 ms = queue 12.5 + prefill 40.0 + load 3.0",
        "  queue                   computing the prompts before it",
        "  prefill                 computing what of its own is not cached",
        "  load                    bringing its blocks back from host or disk",
        "first token after 61 ms (3 ms in the worker's queue), done after 90 ms",
    ]


def test_a_request_that_no_worker_began_has_no_reasons() -> None:
    told = list(lines(report(missed_tokens=None, diverged=None, hint=None, placed=None, worker=None, ttft_ms=None)))
    assert told[-2:] == [
        "No worker told what it reused, so nothing can be said of the rest.",
        "It was never placed on a worker.",
    ]


def test_every_reason_has_a_meaning_in_words() -> None:
    told = report(missed_tokens={reason.value: 1 for reason in Reason})
    assert all(len(line.split("%  ")[1]) > 2 for line in list(lines(told))[6 : 6 + len(Reason)])


def test_every_decision_has_its_words() -> None:
    terms = {field.name.removesuffix("_ms"): 1.0 for field in fields(Cost)}
    for mode, why in product(get_args(Mode), get_args(Decided)):
        told = list(lines(report(placed=Placed("w0", mode, why, terms | {"total": 6.0}, None, None))))
        at = told.index("expected cost, of which the least is chosen")
        assert told[at - 2].startswith(f"placed on w0 ({why}): ")
        assert told[at - 1].startswith(f"  by {mode}: its" if mode != "load-only" else "  by load-only: nothing")
        assert [line.split()[0] for line in told[at + 1 : -1]] == ["w0", *terms]
