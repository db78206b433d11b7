from __future__ import annotations

import gc
import socket
import threading
import time

from experiments.bench.rest.clients import Streams

EVENT = b"event: state\ndata: {}\n\n"


def test_streams_count_and_close_those_that_the_controller_ends_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            ended, kept = (listener.accept()[0] for _ in range(2))
            with kept, ended:
                for one in (ended, kept):
                    one.recv(1 << 16)
                    one.sendall(EVENT)
                ended.close()
                kept.recv(1 << 16)  # until the client has gone

        server = threading.Thread(target=serve)
        server.start()
        with Streams(f"http://127.0.0.1:{listener.getsockname()[1]}", ["", "?vlan=10"]) as streams:
            deadline_s = time.monotonic() + 10
            while (streams.open, streams.states) != (1, 2) and time.monotonic() < deadline_s:
                time.sleep(0.01)
        server.join()
    assert (streams.open, streams.states, streams.received_bytes) == (1, 2, 2 * len(EVENT))
    del streams
    gc.collect()  # a socket that is left open warns, which is an error
