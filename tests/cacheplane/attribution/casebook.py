"""A constructed case, and the list that a module keeps of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cacheplane.attribution import Kind, Part, Reason
from gateway.chat.messages import Message
from tests.cacheplane.attribution.world import Told, World


@dataclass(frozen=True)
class Case:
    """`reasons`: exactly those that are told beside the tail below a block. `change`: the part and kind told."""

    name: str
    reasons: set[Reason]
    run: Callable[[], Told]
    change: tuple[Part, Kind] | None = None


class Casebook(list[Case]):
    """Cases in the order in which they were written down."""

    def case(
        self, name: str, *reasons: Reason, change: tuple[Part, Kind] | None = None
    ) -> Callable[..., Callable[[], Told]]:
        """Writes down what it decorates."""

        def add(run: Callable[[], Told]) -> Callable[[], Told]:
            self.append(Case(name, set(reasons), run, change))
            return run

        return add


def twice(first: list[Message], second: list[Message], tools: Any = (), others: Any = None) -> Callable[[], Told]:
    """One prompt, then another of the same tenant on the same worker."""

    def run() -> Told:
        world = World()
        world.ask(*first, tools=tools)
        return world.ask(*second, tools=tools if others is None else others)

    return run
