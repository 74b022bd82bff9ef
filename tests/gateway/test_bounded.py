from collections import OrderedDict

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.bounded import BoundedCache, keep_newest


def test_the_least_recently_used_goes_first() -> None:
    cache: BoundedCache[int] = BoundedCache(30)
    for key in "abc":
        cache.put("", key, ord(key), 10)
    assert cache.get("", "a") == ord("a")
    cache.put("", "d", 4, 10)
    assert [cache.get("", key) for key in "abcd"] == [ord("a"), None, ord("c"), 4]


def test_one_partition_does_not_see_anothers_entries() -> None:
    cache: BoundedCache[int] = BoundedCache(100)
    cache.put("acme", "prompt", 1, 10)
    assert cache.get("globex", "prompt") is None
    assert cache.get("acme", "prompt") == 1


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60))))
def test_it_never_holds_more_than_its_bound(puts: list[tuple[int, int]]) -> None:
    cache: BoundedCache[int] = BoundedCache(50)
    for key, cost in puts:
        cache.put("", key, cost, cost)
        assert cache.bytes <= 50
    held = [value for key in range(6) if (value := cache.get("", key)) is not None]
    assert cache.bytes == sum(held)
    assert len(cache) == len(held)


def test_the_newest_entries_are_kept_by_number() -> None:
    entries: OrderedDict[str, int] = OrderedDict()
    for value, key in enumerate("abcad"):
        entries[key] = value
        keep_newest(entries, key, 3)
    assert list(entries.items()) == [("c", 2), ("a", 3), ("d", 4)]
