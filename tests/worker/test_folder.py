"""A Hugging Face folder served by a whole worker: what a gateway gets of it, and replies that are those of the peer."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from tokenizers import Tokenizer

from tests.worker.client import Client
from tests.worker.live import LiveWorker
from tests.worker.peers import CONTEXT, VOCABULARY, WINDOW, Peer
from tests.worker.tokenizer.folders import TEMPLATE, metaspace
from worker.wire import ModelInfo

PROMPT = [1, *range(3, 3 + 3 * WINDOW)]
SETTINGS = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}


@pytest.fixture(scope="module")
def peer() -> Peer:
    return Peer("mistral")


@pytest.fixture(scope="module")
def folder(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = peer.write_folder(tmp_path_factory.mktemp("mistral") / "model", shard="60KB")
    (path / "tokenizer.json").write_text(metaspace().to_str())
    (path / "tokenizer_config.json").write_text(json.dumps(SETTINGS))
    return path


@pytest.fixture(scope="module")
def live(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveWorker]:
    flags = ("--weights", "float32", "--chunk-tokens", "16", "--slots", "2")
    with LiveWorker(folder, tmp_path_factory.mktemp("live"), *flags) as worker:
        yield worker


@pytest.fixture
async def client(live: LiveWorker) -> AsyncIterator[Client]:
    async with Client(live.url) as client:
        yield client


async def test_a_gateway_gets_all_that_it_renders_with(client: Client) -> None:
    info = msgspec.json.decode((await client.get("/model")).body, type=ModelInfo)
    assert (info.architecture, info.context_length, info.vocab_size) == ("mistral", CONTEXT, VOCABULARY)
    assert (info.bos_id, info.eos_id, info.stop_ids) == (1, 2, [2])
    assert info.special_tokens == ["<unk>", "<s>", "</s>"]
    assert info.chat_template == TEMPLATE
    assert Tokenizer.from_str(info.tokenizer).encode("th").tokens == ["\u2581th"]


async def test_replies_are_those_of_the_peer_across_the_window_and_from_the_cache(client: Client, peer: Peer) -> None:
    sampling = {"max_tokens": 2 * WINDOW}
    first = await client.generate(tokens=PROMPT, sampling=sampling)
    again = await client.generate(tokens=PROMPT, sampling=sampling)
    assert (first.start.cached.device, again.start.cached.device) == (0, 48)
    assert again.tokens() == first.tokens()
    theirs = peer.logits([*PROMPT, *first.tokens()])[len(PROMPT) - 1 : -1]
    assert theirs.argmax(-1).tolist() == first.tokens()


async def test_a_grammar_sees_text_where_spaces_and_bytes_are_spelled(client: Client) -> None:
    reply = await client.generate(tokens=PROMPT, grammar='start: " th 塩"', sampling={"max_tokens": 20})
    assert (reply.text(), reply.finish().reason) == (" th 塩", "stop")
