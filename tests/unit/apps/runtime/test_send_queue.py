"""What waits for a peer to read it is bounded, kept in order, and sent in few calls."""

from __future__ import annotations

from apps.runtime.send_queue import MOST_UNREAD_BY_STRANGER_BYTES, MOST_UNREAD_BYTES, SendQueue


class Socket:
    """A socket that keeps what each call sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def sendall(self, data: memoryview) -> None:
        self.sent.append(bytes(data))


def test_short_messages_are_sent_in_one_call_and_in_order():
    sock = Socket()
    queue = SendQueue(sock)
    for number in range(100):
        assert queue.put(bytes([number]) * 8, last=number == 99)
    queue.send_all()
    assert sock.sent == [b"".join(bytes([number]) * 8 for number in range(100))]
    assert queue.octets == 0


def test_a_long_message_is_sent_by_itself():
    sock = Socket()
    queue = SendQueue(sock)
    queue.put(b"a" * 8)
    queue.put(b"b" * 100_000)
    queue.put(b"c" * 8, last=True)
    queue.send_all()
    assert [(data[:1], len(data)) for data in sock.sent] == [(b"a", 8), (b"b", 100_000), (b"c", 8)]


def test_a_stranger_leaves_less_unread_than_a_switch():
    queue = SendQueue(Socket())
    assert queue.put(bytes(MOST_UNREAD_BY_STRANGER_BYTES))
    assert not queue.put(b"x")
    queue = SendQueue(Socket())
    queue.allow_switch()
    assert queue.put(bytes(MOST_UNREAD_BYTES))
    assert not queue.put(b"x")


def test_nothing_is_sent_after_the_end():
    sock = Socket()
    queue = SendQueue(sock)
    queue.put(b"never sent")
    queue.end()
    queue.send_all()
    assert sock.sent == []
