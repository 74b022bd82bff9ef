"""A cache that is fair between tags."""

from hypothesis import given
from hypothesis import strategies as st

from worker.tagged import TaggedCache

PUTS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("wxyz"), st.integers(1, 60)), max_size=40)


@given(PUTS)
def test_the_books_balance_and_stay_within_bounds(puts: list[tuple[str, str, int]]) -> None:
    cache: TaggedCache[int] = TaggedCache(100)
    for tag, key, cost in puts:
        cache.put(tag, key, cost, cost)
        held = {tag: sum(cost for _, cost in own.values()) for tag, own in cache._tags.items()}
        assert cache.bytes == sum(held.values()) <= 100
        assert held == cache._held


def test_a_tag_with_much_makes_room_and_not_the_one_with_little() -> None:
    cache: TaggedCache[str] = TaggedCache(100)
    cache.put("little", "one", "kept", 20)
    for number in range(50):
        cache.put("much", str(number), "many", 10)
    assert cache.get("little", "one") == "kept"
    assert [key for key in map(str, range(50)) if cache.get("much", key)] == [str(n) for n in range(42, 50)]


def test_what_was_used_last_stays() -> None:
    cache: TaggedCache[str] = TaggedCache(20)
    cache.put("tag", "old", "a", 10)
    cache.put("tag", "new", "b", 10)
    assert cache.get("tag", "old") == "a"
    cache.put("tag", "newest", "c", 10)
    assert (cache.get("tag", "old"), cache.get("tag", "new")) == ("a", None)


def test_what_is_larger_than_everything_is_not_kept() -> None:
    cache: TaggedCache[str] = TaggedCache(20)
    cache.put("tag", "key", "a", 10)
    cache.put("tag", "huge", "b", 21)
    assert (cache.get("tag", "huge"), cache.get("tag", "key"), cache.bytes) == (None, "a", 10)
