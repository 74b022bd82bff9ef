"""Replies, and readers that stop."""

import asyncio

import pytest
from starlette.types import Message

from gateway.reply import Reply, SlowReaderError


async def test_a_whole_reply_has_a_length_and_is_complete() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    reply = Reply(send)
    assert not reply.started
    await reply.whole(418, b"short", [(b"x-mine", b"1")])
    assert reply.started
    assert reply.completed
    start, body = sent
    assert (start["status"], (b"content-length", b"5") in start["headers"]) == (418, True)
    assert (body["body"], body["more_body"]) == (b"short", False)


async def test_a_reply_with_nothing_to_say_has_no_body_and_no_length() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    reply = Reply(send)
    await reply.nothing()
    assert reply.completed
    start, body = sent
    assert (start["status"], start["headers"], body["body"]) == (204, [], b"")


async def test_an_event_stream_is_complete_when_it_is_closed() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    reply = Reply(send)
    await reply.open_events([])
    await reply.events(b"")  # nothing to say is not said
    await reply.events(b"data: 1\n\n")
    assert (reply.started, reply.completed) == (True, False)
    await reply.close_events(b"data: 2\n\n")
    assert reply.completed
    assert [(m["body"], m["more_body"]) for m in sent[1:]] == [(b"data: 1\n\n", True), (b"data: 2\n\n", False)]


async def test_a_reader_that_stops_is_given_up_after_the_send_deadline() -> None:
    async def send(_message: Message) -> None:
        await asyncio.Event().wait()

    reply = Reply(send, send_seconds=0.01)
    with pytest.raises(SlowReaderError):
        await reply.open_events([])
    assert not reply.completed
