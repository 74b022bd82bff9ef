"""What is said in the constructed cases: a system prompt, tools, questions and answers, each of several blocks."""

from typing import Any

from gateway.chat.messages import Message, Tool

SYSTEM = (
    "You keep the books of a salt road. Every load is weighed at the gate, and every carter is paid by the mile. "
    "Never promise a price before the load is on the scales, and say so politely when a carter asks for one."
)
QUESTION = "How much salt went from the old mine to the market in the winter of the great frost, and who carried it?"
OTHER = "Which of the carters still owes the toll of the upper bridge, and since when have they not paid for it?"
ANSWER = "Forty-one carts went, all of them before the thaw, and the brothers from the upper valley led them down."
MORE = "And how many of those carts came back empty, without a single sack of grain or a cask of wine on them?"


def said(*texts: str, system: str | None = SYSTEM) -> list[Message]:
    """User and assistant in turn, behind a system prompt."""
    roles = ("user", "assistant")
    turns = [Message(roles[number % 2], text) for number, text in enumerate(texts)]
    return turns if system is None else [Message("system", system), *turns]


def tool(name: str, **more: Any) -> Tool:
    schema = {"type": "object", "properties": {"load": {"type": "string"}, "gate": {"type": "integer"}}}
    return Tool(name, f"Use {name} for anything that has to do with it, once for every load.", schema | more)


WEIGH, PRICE, LEDGER, TOLL = tool("weigh"), tool("price"), tool("ledger"), tool("toll")
TOOLS = (WEIGH, PRICE, LEDGER, TOLL)


def edited(original: Tool, text: str) -> Tool:
    return Tool(original.name, text, original.parameters)
