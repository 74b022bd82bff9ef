"""Our own decisions as a stand-in for events."""

from cacheplane.guesses import DEFAULT_BLOCKS, Guesses
from cacheplane.identity import BlockChain, Namespace
from cacheplane.index import Overlap

ACME = Namespace(b"a" * 32)


def chain(*blocks: int) -> BlockChain:
    return BlockChain.of([block for block in blocks for _ in range(16)], ACME)


def test_a_worker_is_thought_to_hold_what_it_computed_for_us() -> None:
    guesses = Guesses()
    assert guesses.match(chain(1, 2), 0) == {}
    guesses.computed("w0", chain(1, 2, 3), 100, now=0)
    guesses.computed("w1", chain(1, 9), 100, now=0)
    assert guesses.match(chain(1, 2, 4), 1) == {"w0": Overlap(device=2), "w1": Overlap(device=1)}
    assert "w0" in guesses
    guesses.drop("w0")
    guesses.drop("w0")
    assert guesses.match(chain(1, 2, 4), 1) == {"w1": Overlap(device=1)}
    assert "w0" not in guesses


def test_it_holds_no_more_than_its_pool_and_the_least_recently_used_goes_first() -> None:
    guesses = Guesses()
    guesses.computed("w0", chain(1, 2), 4, now=0)
    guesses.computed("w0", chain(3, 4), 4, now=1)
    guesses.computed("w0", chain(1, 2), 4, now=2)
    guesses.computed("w0", chain(5), 4, now=3)
    assert guesses.match(chain(1, 2), 3) == {"w0": Overlap(device=2)}
    assert guesses.match(chain(3, 4), 3) == {"w0": Overlap(device=1)}  # its end went first
    guesses.computed("w0", chain(6, 7, 8, 9, 10), 4, now=4)
    assert guesses.match(chain(6, 7, 8, 9, 10), 4) == {"w0": Overlap(device=4)}


def test_nothing_outlives_its_life_unless_used_again() -> None:
    guesses = Guesses(life=10)
    guesses.computed("w0", chain(1, 2), 0, now=0)
    guesses.computed("w0", chain(1), 0, now=5)
    assert guesses.match(chain(1, 2), 9.9) == {"w0": Overlap(device=2)}
    assert guesses.match(chain(1, 2), 10) == {"w0": Overlap(device=1)}
    assert guesses.match(chain(1, 2), 15) == {}


def test_an_engine_that_does_not_say_how_large_its_pool_is_has_a_bound_too() -> None:
    guesses = Guesses()
    prompt = BlockChain(tuple(number.to_bytes(16, "little") for number in range(1, DEFAULT_BLOCKS + 11)), 16)
    guesses.computed("w0", prompt, 0, now=0)
    assert guesses.match(prompt, 0) == {"w0": Overlap(device=DEFAULT_BLOCKS)}
