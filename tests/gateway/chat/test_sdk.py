"""Both forms of a reply, read by the official client."""

import httpx2
import pytest
from openai import APIError, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.chat.reading import Reading
from gateway.chat.reply import ChatCollector, ChatStream
from gateway.frames import DeltaFrame, ErrorFrame, Frame
from tests.gateway.chat.played import CALL, HEAD, START, TOOLS, frames, request, spelled


def sdk(data: bytes, content_type: str) -> OpenAI:
    """The official client with a server that answers `data`."""
    answer = httpx2.MockTransport(lambda _: httpx2.Response(200, content=data, headers={"content-type": content_type}))
    return OpenAI(api_key="k", base_url="http://t/v1", http_client=httpx2.Client(transport=answer), max_retries=0)


def ask(client: OpenAI) -> ChatCompletion:
    return client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])


def ask_streamed(client: OpenAI) -> list[ChatCompletionChunk]:
    with client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True) as stream:
        return list(stream)


def test_the_official_client_reads_both_forms() -> None:
    asked = request(tools=TOOLS, logprobs=True, stream_options={"include_usage": True})
    played = frames(["See.\n", *CALL], logprobs=True)
    collector, stream = ChatCollector(Reading(asked, spelled), HEAD), ChatStream(Reading(asked, spelled), HEAD)
    for frame in played:
        collector.feed(frame)
    with sdk(collector.reply(), "application/json") as client:
        reply = ask(client)
    ChatCompletion.model_validate(reply.model_dump(), strict=True)
    assert reply.choices[0].message.content == "See."
    with sdk(b"".join(map(stream.feed, played)), "text/event-stream") as client:
        chunks = ask_streamed(client)
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk.model_dump(), strict=True)
    assert chunks[-1].usage == reply.usage
    joined = "".join(
        call.function.arguments or ""
        for chunk in chunks
        for choice in chunk.choices
        for call in choice.delta.tool_calls or []
        if call.function
    )
    assert joined == '{"x": "1"}'


def test_the_official_client_raises_an_error_inside_a_stream() -> None:
    stream = ChatStream(Reading(request(), spelled), HEAD)
    played: list[Frame] = [START, DeltaFrame(0, "a", [1]), ErrorFrame("internal", "x")]
    data = b"".join(map(stream.feed, played))
    with sdk(data, "text/event-stream") as client, pytest.raises(APIError, match="worker failed"):
        ask_streamed(client)
