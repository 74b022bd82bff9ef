import asyncio

import pytest

from tenants.lookups import BRIEF_SECONDS, PATIENCE_SECONDS, Lookups


class Silent:
    """A database that says nothing until it is let; counts what it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.speaks = asyncio.Event()

    async def __call__(self) -> int:
        self.asked += 1
        await self.speaks.wait()
        return self.asked


async def test_all_who_ask_for_one_key_wait_for_one_read_and_the_next_is_another() -> None:
    lookups, silent = Lookups[str, int](), Silent()
    asking = [asyncio.create_task(lookups("acme", silent, known=False)) for _ in range(10)]
    await asyncio.sleep(0)
    asking[0].cancel()
    await asyncio.sleep(0)
    silent.speaks.set()
    assert await asyncio.gather(*asking[1:]) == [1] * 9
    assert asking[0].cancelled()
    assert await lookups("acme", silent, known=False) == 2


@pytest.mark.parametrize(("known", "seconds"), [(True, BRIEF_SECONDS), (False, PATIENCE_SECONDS)])
async def test_a_read_that_hangs_is_waited_for_once(
    known: bool, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    lookups, silent = Lookups[str, int](), Silent()
    began = asyncio.create_task(lookups("acme", silent, known=known))
    await asyncio.sleep(0)
    at = loop.time() + seconds
    monkeypatch.setattr(loop, "time", lambda: at)
    with pytest.raises(TimeoutError):
        await began
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await lookups("acme", silent, known=known)
    assert silent.asked == 1
    silent.speaks.set()


async def test_what_a_read_raises_is_raised_to_all(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> int:
        raise OSError

    lookups = Lookups[str, int]()
    results = await asyncio.gather(*(lookups("acme", fails, known=True) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [OSError] * 3
    assert caplog.records == []
