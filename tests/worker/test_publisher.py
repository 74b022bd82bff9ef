"""Block events over real sockets: numbers without gaps, and everything again for who asks."""

from collections.abc import Iterator

import pytest
import zmq

import worker.publisher
from cacheplane.wire import (
    TOPIC,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Event,
    Message,
    decode_batch,
    decode_message,
    decode_replay,
    encode_replay_request,
)
from worker.publisher import EventPublisher

EPOCH = 2**62 + 1
WAIT_MS = 10_000


@pytest.fixture
def publisher() -> Iterator[EventPublisher]:
    one = EventPublisher("127.0.0.1", EPOCH)
    one.start()
    yield one
    one.stop()


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    with zmq.Context() as one:
        yield one


def stored(number: int) -> BlockStored:
    return BlockStored([bytes([number]) * 16], None, 16)


def receive(socket: zmq.Socket[bytes]) -> list[bytes]:
    assert socket.poll(WAIT_MS), "nothing came"
    return socket.recv_multipart()


def subscribed(context: zmq.Context[zmq.Socket[bytes]], publisher: EventPublisher) -> zmq.Socket[bytes]:
    """A subscriber that has seen everything published so far: events are sent until the first arrives."""
    socket = context.socket(zmq.SUB)
    socket.connect(publisher.pub)
    socket.subscribe(TOPIC)
    seq = publisher.publish([AllBlocksCleared()])
    while not socket.poll(20):
        seq = publisher.publish([AllBlocksCleared()])
    while decode_message(receive(socket)).seq < seq:
        pass
    return socket


def replay(context: zmq.Context[zmq.Socket[bytes]], publisher: EventPublisher, request: list[bytes]) -> list[Message]:
    """What a consumer that missed something is sent, up to the end marker."""
    with context.socket(zmq.DEALER) as socket:
        socket.connect(publisher.replay)
        socket.send_multipart(request)
        messages = []
        while (message := decode_replay(receive(socket))) is not None:
            messages.append(message)
        return messages


def test_messages_come_in_order_numbered_without_gaps(
    context: zmq.Context[zmq.Socket[bytes]], publisher: EventPublisher
) -> None:
    with subscribed(context, publisher) as socket:
        numbers = [publisher.publish([stored(number)]) for number in range(50)]
        assert numbers == list(range(numbers[0], numbers[0] + 50))
        for number, seq in enumerate(numbers):
            message = decode_message(receive(socket))
            assert (message.topic, message.seq) == (TOPIC, seq)
            assert decode_batch(message.payload).events == [stored(number)]


def test_a_message_says_its_epoch_and_all_its_events(
    context: zmq.Context[zmq.Socket[bytes]], publisher: EventPublisher
) -> None:
    events: list[Event] = [stored(1), BlockRemoved([b"x" * 16], reason="evicted"), AllBlocksCleared()]
    with subscribed(context, publisher) as socket:
        publisher.publish(list(events))
        batch = decode_batch(decode_message(receive(socket)).payload)
    assert (batch.epoch, batch.events, batch.dp_rank) == (EPOCH, events, None)


def test_the_first_number_is_zero(publisher: EventPublisher) -> None:
    assert [publisher.publish([stored(0)]) for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("first", [-1, 0, 3, 6, 7, 1 << 40])
def test_a_replay_gives_every_message_from_a_number_on_and_ends(
    context: zmq.Context[zmq.Socket[bytes]], publisher: EventPublisher, first: int
) -> None:
    with subscribed(context, publisher):
        published = publisher.publish([stored(9)])
        assert all_messages(context, publisher, published)
        sent = replay(context, publisher, encode_replay_request(first))
    assert [message.seq for message in sent] == [seq for seq in range(published + 1) if seq >= first]


def all_messages(context: zmq.Context[zmq.Socket[bytes]], publisher: EventPublisher, last: int) -> list[Message]:
    """Everything, once the last message that was queued has been sent."""
    while True:
        sent = replay(context, publisher, encode_replay_request(0))
        if sent and sent[-1].seq == last:
            return sent


def test_a_replay_repeats_the_very_bytes(context: zmq.Context[zmq.Socket[bytes]], publisher: EventPublisher) -> None:
    with subscribed(context, publisher) as socket:
        seq = publisher.publish([stored(5)])
        live = decode_message(receive(socket))
    assert replay(context, publisher, encode_replay_request(seq)) == [live]


@pytest.mark.parametrize("request_", [[b""], [b"", b"short"], [b"", b"12345678", b"more"], [b"x", b"12345678"]])
def test_a_malformed_request_is_ignored_and_the_next_one_answered(
    context: zmq.Context[zmq.Socket[bytes]], publisher: EventPublisher, request_: list[bytes]
) -> None:
    seq = publisher.publish([stored(1)])
    with context.socket(zmq.DEALER) as socket:
        socket.connect(publisher.replay)
        socket.send_multipart(request_)
        socket.send_multipart(encode_replay_request(1 << 40))
        assert decode_replay(receive(socket)) is None
    assert [message.seq for message in all_messages(context, publisher, seq)] == [seq]


def test_only_the_latest_messages_can_be_replayed(
    context: zmq.Context[zmq.Socket[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker.publisher, "_BUFFERED", 3)
    publisher = EventPublisher("127.0.0.1", EPOCH)
    publisher.start()
    seqs = [publisher.publish([stored(number)]) for number in range(8)]
    assert [message.seq for message in all_messages(context, publisher, seqs[-1])] == seqs[-3:]
    publisher.stop()


def test_a_host_that_is_none_of_this_machine_is_said_in_a_sentence() -> None:
    for host in ("192.0.2.1", "::1"):  # of RFC 5737, which no machine has; and of a family that the sockets are not of
        with pytest.raises(OSError, match=f"^cannot listen at --host {host} "):
            EventPublisher(host, EPOCH)


def test_when_too_much_is_queued_the_numbers_show_the_gap(
    context: zmq.Context[zmq.Socket[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker.publisher, "_MAX_QUEUED", 2)
    publisher = EventPublisher("127.0.0.1", EPOCH)
    assert [publisher.publish([stored(number)]) for number in range(5)] == list(range(5))  # nothing is sent yet
    publisher.start()
    assert [message.seq for message in all_messages(context, publisher, 1)] == [0, 1]
    later = publisher.publish([stored(9)])
    assert [message.seq for message in all_messages(context, publisher, later)] == [0, 1, 5]
    publisher.stop()
