"""Cases by what a client sends: for the first time, again, or with something changed."""

import json

from cacheplane.attribution import Kind, Part, Reason
from gateway.chat.messages import FunctionCall, Message, Tool, ToolCall
from tests.cacheplane.attribution.casebook import Casebook, twice
from tests.cacheplane.attribution.prompts import (
    ANSWER,
    LEDGER,
    MORE,
    OTHER,
    PRICE,
    QUESTION,
    SYSTEM,
    TOLL,
    TOOLS,
    WEIGH,
    edited,
    said,
    tool,
)
from tests.cacheplane.attribution.world import BLOCK, Told, World

R = Reason
CHANGES = Casebook()
case = CHANGES.case

# first_seen


@case("the first prompt of all", R.FIRST_SEEN)
def _() -> Told:
    return World().ask(*said(QUESTION), tools=TOOLS)


case("a next turn's new messages", R.FIRST_SEEN)(twice(said(QUESTION), said(QUESTION, ANSWER, MORE), TOOLS))
case("another conversation of the same application", R.FIRST_SEEN)(twice(said(QUESTION), said(OTHER), TOOLS))
case("another application", R.FIRST_SEEN)(
    twice(
        said(QUESTION),
        said(OTHER, system="Translate what the user writes into Latin, and add a note on each verb that you chose."),
        TOOLS,
        (tool("lexicon"), tool("grammar")),
    )
)


@case("another division of the tenant's cache", R.FIRST_SEEN)
def _() -> Told:
    world = World()
    world.ask(*said(QUESTION), sub="one")
    return world.ask(*said(QUESTION), sub="two")


@case("a conversation in which small words come back", R.FIRST_SEEN)
def _() -> Told:
    world = World()
    world.ask(*said(QUESTION, ANSWER, "Go on."))
    return world.ask(*said(OTHER, MORE, "Go on."))


@case("the tenant's own retry of what never reached a worker", R.FIRST_SEEN)
def _() -> Told:
    world = World()
    world.ask(*said(OTHER))
    return world.ask(*said(QUESTION, ANSWER, MORE, system=None))


# tenant_isolated: to the tenant it is first_seen, whoever sent it before


@case("what another tenant sent", R.FIRST_SEEN)
def _() -> Told:
    world = World()
    world.ask(*said(QUESTION), tools=TOOLS, tenant="globex")
    told = world.ask(*said(QUESTION), tools=TOOLS)
    assert world.attribution.isolated["m"] == told.of(R.FIRST_SEEN)
    return told


@case("what another tenant sent, up to the question", R.FIRST_SEEN)
def _() -> Told:
    world = World()
    world.ask(*said(QUESTION), tools=TOOLS, tenant="globex")
    told = world.ask(*said(OTHER), tools=TOOLS)
    assert 0 < world.attribution.isolated["m"] < told.of(R.FIRST_SEEN)
    return told


# below_block

case("a prompt again", *())(twice(said(QUESTION), said(QUESTION), TOOLS))
case("a prompt shorter than a block", *())(twice([Message("user", "x")], [Message("user", "x")]))


def filled(spare: int) -> list[Message]:
    """A prompt whose length is a whole number of blocks, and `spare` tokens more."""
    for size in range(200):
        messages = said("x" * size, system="y")
        if World().open(*messages).told.prompt % BLOCK == spare:
            return messages
    raise AssertionError


for spare in (0, 1, BLOCK - 1):
    case(f"a prompt of full blocks and {spare} tokens, again", *())(twice(filled(spare), filled(spare)))

# diverged: tools

MOVED = (Part.TOOLS, Kind.ORDER)
others: tuple[Tool, ...]
for name, others in (
    ("reversed tools", TOOLS[::-1]),
    ("two tools that changed places", (PRICE, WEIGH, LEDGER, TOLL)),
    ("the last tool first", (TOLL, WEIGH, PRICE, LEDGER)),
    ("shuffled tools behind one that stays", (WEIGH, TOLL, PRICE, LEDGER)),
):
    case(name, R.DIVERGED_TOOLS, change=MOVED)(twice(said(QUESTION), said(QUESTION), TOOLS, others))

case("shuffled tools, and a next turn", R.DIVERGED_TOOLS, R.FIRST_SEEN, change=MOVED)(
    twice(said(QUESTION), said(QUESTION, ANSWER, MORE), TOOLS, TOOLS[::-1])
)


def resorted(original: Tool) -> Tool:
    return Tool(original.name, original.description, dict(reversed((original.parameters or {}).items())))


def nested(original: Tool) -> Tool:
    schema = original.parameters or {}
    return Tool(
        original.name, original.description, schema | {"properties": dict(reversed(schema["properties"].items()))}
    )


for name, other in (("keys of a schema in another order", resorted), ("properties in another order", nested)):
    case(name, R.DIVERGED_TOOLS, change=(Part.TOOLS, Kind.KEY_ORDER))(
        twice(said(QUESTION), said(QUESTION), TOOLS, (other(WEIGH), *TOOLS[1:]))
    )

case("a tool more, in front", R.DIVERGED_TOOLS, R.FIRST_SEEN, change=(Part.TOOLS, Kind.ADDED))(
    twice(said(QUESTION), said(QUESTION), TOOLS, (tool("bridge"), *TOOLS))
)
for name, others, kind in (
    ("a tool described in other words", (edited(WEIGH, "Weighs."), *TOOLS[1:]), Kind.EDIT),
    ("a tool with one more parameter", (tool("weigh", required=["load"]), *TOOLS[1:]), Kind.EDIT),
    ("a tool less, in front", TOOLS[1:], Kind.REMOVED),
    ("no tools any more", (), Kind.REMOVED),
    ("a line break in a description", (edited(WEIGH, "Use weigh\nfor loads."), *TOOLS[1:]), Kind.EDIT),
):
    case(name, R.DIVERGED_TOOLS, change=(Part.TOOLS, kind))(twice(said(QUESTION), said(QUESTION), TOOLS, others))

LINES, CARRIAGES = (edited(WEIGH, f"Weigh.{end}Once a load.{end}Never two.") for end in ("\n", "\r\n"))
case("carriage returns in a description", R.DIVERGED_TOOLS, change=(Part.TOOLS, Kind.WHITESPACE))(
    twice(said(QUESTION), said(QUESTION), (LINES, *TOOLS[1:]), (CARRIAGES, *TOOLS[1:]))
)

# diverged: system

for name, system, kind in (
    ("carriage returns in the system prompt", SYSTEM.replace(". ", ".\r\n"), Kind.WHITESPACE),
    ("two spaces in the system prompt", SYSTEM.replace("salt road", "salt  road"), Kind.WHITESPACE),
    ("a word changed in the system prompt", SYSTEM.replace("salt road", "spice road"), Kind.EDIT),
    ("a sentence in front of the system prompt", f"Be brief. {SYSTEM}", Kind.EDIT),
):
    before = SYSTEM.replace(". ", ".\n") if "returns" in name else SYSTEM
    case(name, R.DIVERGED_SYSTEM, change=(Part.SYSTEM, kind))(
        twice(said(QUESTION, system=before), said(QUESTION, system=system), TOOLS)
    )

case("a changed system prompt and another question", R.DIVERGED_SYSTEM, R.FIRST_SEEN, change=(Part.SYSTEM, Kind.EDIT))(
    twice(said(QUESTION), said(OTHER, system=SYSTEM.replace("salt road", "spice road")))
)

# diverged: history

LONG = (QUESTION, ANSWER, MORE, ANSWER + " So it is told.", OTHER)
texts: tuple[str, ...]
for name, texts, kind, also in (
    ("an early message edited", (QUESTION + " Be exact.", *LONG[1:]), Kind.EDIT, {R.FIRST_SEEN}),
    ("the oldest turn dropped", LONG[2:], Kind.REMOVED, set()),
    ("an answer with other spaces", (QUESTION, ANSWER.replace(", ", ",  "), *LONG[2:]), Kind.WHITESPACE, set()),
):
    case(name, R.DIVERGED_HISTORY, *also, change=(Part.HISTORY, kind))(twice(said(*LONG), said(*texts)))

CALLS = tuple(ToolCall(str(n), FunctionCall("weigh", json.dumps({"load": f"cart {n}"}))) for n in (1, 2))
RESULTS = [
    Message("tool", json.dumps({"load": load, "pounds": load * 2, "gate": "upper"}), tool_call_id="1")
    for load in ("first of the day", "second of the day")
]
CALLED = [*said(QUESTION), Message("assistant", None, tool_calls=CALLS)]
case("results of two calls in the other order", R.DIVERGED_HISTORY, change=(Part.HISTORY, Kind.ORDER))(
    twice([*CALLED, *RESULTS], [*CALLED, *RESULTS[::-1]], TOOLS)
)
case("a result with its keys in another order", R.DIVERGED_HISTORY, change=(Part.HISTORY, Kind.KEY_ORDER))(
    twice(
        [*CALLED, Message("tool", '{"pounds": "forty", "gate": "upper", "load": "salt"}'), Message("user", MORE)],
        [*CALLED, Message("tool", '{"gate": "upper", "load": "salt", "pounds": "forty"}'), Message("user", MORE)],
        TOOLS,
    )
)
case("a note put between two messages", R.DIVERGED_HISTORY, R.FIRST_SEEN, change=(Part.HISTORY, Kind.ADDED))(
    twice(
        said(QUESTION, ANSWER, MORE),
        [
            *said(QUESTION),
            Message("system", "The scribe is away today, so write it all down yourself."),
            *said(QUESTION, ANSWER, MORE)[2:],
        ],
    )
)

# diverged: volatile values

for name, first, then in (
    ("a clock", "2026-11-29T21:05:33Z", "2026-11-29T21:06:02Z"),
    ("a written date", "Sunday, 29 November 2026", "Monday, 30 November 2026"),
    ("a uuid", "550e8400-e29b-41d4-a716-446655440000", "7d444840-9dc0-11d1-b245-5ffdce74fad2"),
    ("epoch seconds", "1796072733", "1796072755"),
    ("hexadecimal", "9f86d081884c7d65", "60303ae22b998861"),
    ("a request id", "req_8Kd02Lq9fXz1", "req_1Pz77Ww3aBc4"),
):
    clocks = [f"Now: {value}. {SYSTEM}" for value in (first, then)]
    case(f"{name} in the system prompt", R.DIVERGED_VOLATILE, change=(Part.SYSTEM, Kind.VOLATILE))(
        twice(said(QUESTION, system=clocks[0]), said(QUESTION, system=clocks[1]), TOOLS)
    )
    if name == "a clock":
        case("a clock, and a next turn", R.DIVERGED_VOLATILE, R.FIRST_SEEN, change=(Part.SYSTEM, Kind.VOLATILE))(
            twice(said(QUESTION, system=clocks[0]), said(QUESTION, ANSWER, MORE, system=clocks[1]), TOOLS)
        )

case("a clock in a tool's description", R.DIVERGED_VOLATILE, change=(Part.TOOLS, Kind.VOLATILE))(
    twice(
        said(QUESTION),
        said(QUESTION),
        (edited(WEIGH, "The scales were set at 09:05:11."), *TOOLS[1:]),
        (edited(WEIGH, "The scales were set at 10:17:45."), *TOOLS[1:]),
    )
)
case("a clock in the history", R.DIVERGED_VOLATILE, change=(Part.HISTORY, Kind.VOLATILE))(
    twice(said(f"At 09:05: {QUESTION}", ANSWER, MORE), said(f"At 09:17: {QUESTION}", ANSWER, MORE))
)
