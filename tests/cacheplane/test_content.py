"""What blocks of an engine that is not ours hold."""

from typing import Any

import pytest

from cacheplane.content import decode_engine_batch
from cacheplane.wire import BlockStored
from tests.cacheplane.recordings import key, pack, recorded


def test_content_is_read_when_asked_for_and_never_shown() -> None:
    (event,) = decode_engine_batch(recorded("salted").payload).events
    assert isinstance(event, BlockStored)
    assert event.content is not None
    assert (len(event.hashes), event.block_size, len(event.content.tokens)) == (2, 128, 256)
    assert event.content.extra == [["tenantA"], None]
    assert repr(event).count("Content(...)") == 1


@pytest.mark.parametrize("tokens", [[-1], [2**32], ["7"], "text", [[1, 2]]])
def test_content_that_is_no_token_ids_is_left_out(tokens: Any) -> None:
    event = {"type": "BlockStored", "block_hashes": [5], "block_size": 1, "token_ids": tokens}
    (decoded,) = decode_engine_batch(pack([1.5, [event], None])).events
    assert decoded == BlockStored([key(5)], None, 1)
