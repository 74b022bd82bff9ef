"""Fairness between tags: what each has been served, in one currency, so that who has had least comes next.

The currency is the prompt token. The counters follow Sheng et al., "Fairness in Serving Large Language Models",
OSDI 2024 (virtual token counters): a tag that was idle is lifted to the least served of the busy ones, so nobody saves
up service that was not wanted.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

PREFILL = 1.0  # a prompt token
DECODE = 4.0  # a reply token: in a batch of eight on the CPU it takes the time of about four prompt tokens
RESIDENCY = DECODE / 8192  # for each token of context held meanwhile: at 8,192 a reply token costs twice


def reply_cost(count: int, context: int) -> float:
    """What `count` reply tokens cost that end at a context of so many tokens, in prompt tokens."""
    return count * (DECODE + RESIDENCY * context)


@dataclass(slots=True)
class Account:
    """What one tag has been served while it had work, in prompt tokens.

    asked      whole prompts when they get a slot, whether cached or not, and reply tokens; decides who gets a slot.
               What another tag has cached must not show in the order of the queue (a timing side channel)
    computed   what was really computed; decides who gets a step's tokens, where a prompt that is cached takes none
    jobs       requests waiting and running
    slots      sequences running
    """

    asked: float = 0.0
    computed: float = 0.0
    jobs: int = 0
    slots: int = 0


class Fairness:
    """The accounts of all tags that have work, and of those that had more than their share a moment ago.

    slack   prompt tokens that a tag may be ahead of the least served before it has to stand back: enough for a short
            prompt to be computed in one go, and the bound on how unequal tags can be served while both have work
    """

    def __init__(self, slack: float) -> None:
        self.slack = slack
        self._busy: dict[str, Account] = {}
        self._idle: dict[str, Account] = {}

    def __getitem__(self, tag: str) -> Account:
        """The account of a tag that has work."""
        return self._busy[tag]

    @property
    def busy(self) -> int:
        """How many tags have work."""
        return len(self._busy)

    def enter(self, tag: str) -> None:
        """A request has come."""
        account = self._busy.get(tag)
        if account is None:
            account = self._lifted(self._idle.pop(tag, Account()))
            self._busy[tag] = account
        account.jobs += 1

    def leave(self, tag: str) -> None:
        """A request has ended. A tag without work is forgotten as soon as that makes no difference any more."""
        account = self._busy[tag]
        account.jobs -= 1
        if account.jobs:
            return
        self._idle[tag] = self._busy.pop(tag)
        least = self._lifted(Account())
        # With nobody left there is capacity to spare, and what was used of it is held against no one.
        self._idle = {
            tag: account
            for tag, account in self._idle.items()
            if self._busy and (account.asked > least.asked or account.computed > least.computed)
        }

    def line_up(self, tags: Iterable[str]) -> list[str]:
        """Tags in the order of their claims to a slot: fewest slots, then least served; equals stay as they are."""
        return sorted(tags, key=lambda tag: (self._busy[tag].slots, self._busy[tag].asked))

    def richest(self, tags: Iterable[str]) -> list[str]:
        """Tags in the order in which they have to give up a slot: most slots, then most served."""
        return sorted(tags, key=lambda tag: (-self._busy[tag].slots, -self._busy[tag].asked))

    def outweighs(self, poor: str, rich: str) -> bool:
        """Whether one tag may have a slot that another holds, since it has fewer even then."""
        return self._busy[rich].slots - self._busy[poor].slots >= 2

    def takes_turns(self, poor: str, rich: str) -> bool:
        """Whether a tag without any slot may have the only one of another: that one has clearly been served more."""
        one, other = self._busy[poor], self._busy[rich]
        return (one.slots, other.slots) == (0, 1) and other.asked - one.asked > self.slack

    def is_guest(self, tag: str) -> bool:
        """Whether another tag holds more slots."""
        return self._busy[tag].slots < max(account.slots for account in self._busy.values())

    def turn(self, needs: Mapping[str, int], given: Mapping[str, int]) -> tuple[str, int]:
        """Who comes next in sharing out a step, and how many tokens it may take.

        The least served, and who is ahead of it by less than `slack`. Among them short prompts come before long ones,
        so that they are not held up, and of the short ones that of the tag with the fewest slots.

        needs   tokens that the first sequence of each tag still wants
        given   tokens that tags have been given in this step so far
        """
        served = {tag: self._busy[tag].computed + PREFILL * given.get(tag, 0) for tag in needs}
        limit = min(served.values()) + self.slack
        ready = (tag for tag in needs if served[tag] < limit)
        tag = min(ready, key=lambda tag: (needs[tag] > self.slack, self._busy[tag].slots, needs[tag], served[tag]))
        others = min((value for other, value in served.items() if other != tag), default=math.inf)
        room = (others + self.slack - served[tag]) / PREFILL
        return tag, needs[tag] if room >= needs[tag] else max(1, math.ceil(room))

    def _lifted(self, account: Account) -> Account:
        busy = self._busy.values()
        account.asked = max(account.asked, min((other.asked for other in busy), default=0.0))
        account.computed = max(account.computed, min((other.computed for other in busy), default=0.0))
        return account
