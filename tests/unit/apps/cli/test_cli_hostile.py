"""Every command that asks a controller, against one that means harm: a sentence, an exit status, nothing that moves."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import typer
import yaml

from apps import cli
from apps.cli.support import answers
from apps.cli.support.answers import MAX_ANSWER_BYTES

# Escapes of C0 and C1, ends of lines that would forge one, bidi overrides, invisible characters, half a surrogate pair.
NASTY = "a\x1b[2J\x1b]0;owned\x07\r\ndets: ok\x9b31m\x85\u202egnp.exe\u2066\u2028\u200b\ufeff\U000e0041\x00\x7f\ud800b"
RATE = 1_000_000
MEMBERS: dict[str, Any] = {
    **dict.fromkeys(("name", "switch", "at", "who", "address", "action", "kind", "text", "sentence", "detail"), NASTY),
    **dict.fromkeys(("algorithm", "shadow", "reason", "dpid", "role", "state", "bottleneck", "up_since"), NASTY),
    **dict.fromkeys(("shaping", "control", "enforceable", "enforceable_reasons", "path", "before", "after"), NASTY),
    **dict.fromkeys(("vlan_vid", "port_no", "revision", "changed", "last", "number", "vns", "hosts", "edge_ports"), 1),
    **dict.fromkeys(("installed_revision", "congested_vns", "notifications", "weight", "marked_share"), 1),
    **dict.fromkeys(("send_limit_bps", "receive_limit_bps", "capacity_bps", "granted_bps", "limit_bps"), RATE),
    "admissible_bps": RATE,
    **dict.fromkeys(("measured_receive_bps", "measured_send_bps", "send_limits_bps", "receive_limits_bps"), RATE),
    **dict.fromkeys(("mac", "since", "interface", "fence", "state_since", "why"), NASTY),
    "moved_from": {"switch": NASTY, "port_no": 1},
    "speed_bps": RATE,
    "field": NASTY,
    "status": NASTY,
    "active": True,
    "congested": True,
    "overrun": False,
    "records": "",
    "faults": [NASTY],
    "vlan_vids": [10],
    "parameters": {NASTY: 0.5},
    "values": {NASTY: NASTY},
    "file": {NASTY: RATE},
    "agent": {"state": NASTY, "mode": NASTY, "last_seen_ms": 1},
    "a": {"switch": NASTY, "port_no": 1},
    "b": {"switch": NASTY, "port_no": 1},
    "sender": {"switch": NASTY, "port_no": 1},
    "receiver": {"switch": NASTY, "port_no": 1},
    "a_to_b": {"committed_bps": RATE, "load_bps": RATE},
    "b_to_a": {"committed_bps": RATE, "load_bps": RATE},
    "guarantee": {
        **dict.fromkeys(("entitled_bps", "received_bps"), RATE),
        **dict.fromkeys(("idle_s", "met_s", "violated_s", "violated_last_hour_s"), 1.0),
        "violated_since": NASTY,
        "violated_by_s": dict.fromkeys(("switch", "controller", "floods", "grants"), 1.0),
    },
}
LISTS = (
    *("vlans", "ports", "pairs", "unmetered_pairs", "links", "overrides", "changes", "events", "explanations"),
    *("items", "inactive"),
)


def plausible() -> dict[str, Any]:
    """Return an answer that has what any command looks for, with names that mean harm."""
    answer = {
        **MEMBERS,
        **{name: [dict(MEMBERS)] for name in LISTS},
        "unreachable_nodes": [NASTY],
        "unconfirmed_switches": [NASTY],
        "summary": [NASTY],
    }
    answer["cluster"] = {
        "node": NASTY,
        "role": "standby",
        "active": NASTY,
        "active_url": NASTY,
        "owners": {"s1": NASTY},
    }
    return answer | {"next": None, "disconnected_switches": [NASTY]}


MAC = "02:00:00:00:00:01"
# Where the same name is something else in two answers.
SPECIAL: dict[str, dict[str, Any]] = {
    "/v1/vns": {"vns": [MEMBERS]},
    "/v1/hosts": {"hosts": [MEMBERS]},
    f"/v1/hosts/{quote(MAC, safe='')}": {"hosts": [MEMBERS]},
    "/v1/switches": {"switches": [MEMBERS]},
    "/v1/health": {"switches": {NASTY: NASTY}, "faults": {NASTY: [NASTY]}},
    "/v1/stream": {
        "columns": ["received", "marked", NASTY],
        "vlans": [[10, NASTY]],
        "vns": [[10, NASTY, 1]],
        "rows": [[2], [1], [None]],
        "congested": [0],
        "bottlenecks": [NASTY],
    },
}
VN = ["--vlan", "10", "--port", "s1:1"]
COMMANDS = {
    "vlan list": [[]],
    "vlan show": [["10"]],
    "vlan set": [["10", "--name", "x"], ["10", "--weight", "2", "--wait", "--timeout", "0.2"]],
    "vlan reset": [["10"]],
    "vn list": [[]],
    "vn show": [VN, ["--vlan", "10", "--port", "uplink"]],
    "limit set": [[*VN, "--send", "1M"], ["--vlan", "blue", "--port", "s1:1", "--port", "uplink", "--send", "1M"]],
    "limit apply": [["LIMITS"]],
    "limit reset": [["--all"], VN],
    "port list": [[]],
    "port show": [["s1:1"], ["uplink"]],
    "pair list": [[]],
    "pair unmetered": [[]],
    "host list": [[]],
    "host find": [[MAC]],
    "switch list": [[]],
    "link list": [[]],
    "guarantees": [[], ["--vlan", "10"]],
    "status": [[]],
    "top": [["--count", "1"], ["--count", "1", "--vlan", "10"]],
    "events": [[]],
    "explain": [["--vlan", "10", "--from", "s1:1"], ["--vlan", "10", "--from", "s1:1", "--to", "s1:2"]],
    "history": [[], ["1"]],
    "undo": [[], ["7"]],
    "overrides": [[]],
    "export": [[]],
    "import": [["DOCUMENT"]],
    "reload": [[]],
    "record": [["--output", "RECORDING", "--duration", "0.01"]],
}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
LINES = [(name, words) for name, lines in COMMANDS.items() for words in lines]
IDS = [" ".join([name, *words]) for name, words in LINES]


COMMAND: Any = typer.main.get_command(cli.app)  # made once: that takes longer than most commands do


class Hostile:
    """Listens on a free port of the loopback; ``say`` is called with each connection and the path asked for."""

    def __init__(self) -> None:
        self.say: Callable[[socket.socket, str], None] = lambda sock, path: None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        answering: list[threading.Thread] = []
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                break
            answering = [one for one in answering if one.is_alive()]
            answering.append(threading.Thread(target=self._answer_safely, args=(sock,)))
            answering[-1].start()
        for one in answering:
            one.join()

    def _answer_safely(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):  # who asked has had enough
            self._answer(sock)

    def _answer(self, sock: socket.socket) -> None:
        sock.settimeout(30.0)
        asked = b""
        while b"\r\n\r\n" not in asked:
            piece = sock.recv(65536)
            if not piece:
                return
            asked += piece
        head, _, rest = asked.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0].strip()
        while len(rest) < int(length or 0):
            rest += sock.recv(65536)
        self.say(sock, head.split()[1].decode().partition("?")[0])
        sock.shutdown(socket.SHUT_WR)
        sock.recv(1)


@pytest.fixture(scope="module")
def hostile() -> Iterator[Hostile]:
    server = Hostile()
    yield server
    server.close()


@pytest.fixture
def dets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, hostile: Hostile
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setenv("DETS_URL", hostile.url)
    monkeypatch.setattr(cli, "app", COMMAND)
    files = {"LIMITS": "[{vlan: 10, port: s1:1, send: 1M}]", "DOCUMENT": "{}", "RECORDING": None}
    for name, text in files.items():
        if text is not None:
            (tmp_path / name).write_text(text)

    def run(name: str, words: list[str], *more: str) -> tuple[int, str, str]:
        (tmp_path / "RECORDING").unlink(missing_ok=True)
        status = cli.main([*name.split(), *(str(tmp_path / word) if word in files else word for word in words), *more])
        said = capsys.readouterr()
        for line in (said.out + said.err).split("\n"):
            assert line.isprintable(), line
        return status, said.out, said.err

    return run


def raw(data: bytes) -> Callable[[socket.socket, str], None]:
    return lambda sock, path: sock.sendall(HEAD + data)


def answering(answer: dict[str, Any]) -> Callable[[socket.socket, str], None]:
    """Answer each question alike, but for what has the same name and is something else there."""

    def say(sock: socket.socket, path: str) -> None:
        text = json.dumps({**answer, **SPECIAL.get(path, {})})
        if path == "/v1/stream":
            events = "".join(f"event: {name}\ndata: {text}\n\n" for name in ("keys", "state"))
            sock.sendall(HEAD + events.encode())
        else:
            sock.sendall(HEAD + text.encode())

    return say


def test_all_commands_that_ask_are_tried() -> None:
    def asking(group: Any, prefix: str = "") -> Iterator[str]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from asking(command, f"{name} ")
            elif any("--url" in one.opts for one in command.params):
                yield prefix + name

    assert sorted(asking(COMMAND)) == sorted(COMMANDS)


@pytest.mark.parametrize(("name", "words"), LINES, ids=IDS)
def test_names_move_nothing(dets: Any, hostile: Hostile, name: str, words: list[str]) -> None:
    """Each command shows what it is told, and each line of it can be printed; JSON and YAML say the very same."""
    hostile.say = answering(plausible())
    status, out, err = dets(name, words)
    assert status in (0, 1), err
    assert "Traceback" not in err
    changes = ("vlan set", "vlan reset", "limit set", "limit apply", "limit reset", "undo", "record")
    elsewhere = name == "explain" and "--to" not in words  # which shows those of s1:1 alone
    if name not in changes and not elsewhere:
        assert "\\x1b[2J" in out or "\\u001b[2J" in out
    if name in ("export", "record"):
        return
    for form, load in (("json", json.loads), ("yaml", yaml.safe_load)):
        status, out, err = dets(name, words, "-o", form)
        assert status in (0, 1), err
        if name not in ("limit set", "limit apply") and not elsewhere:
            assert NASTY in _texts(load(out))


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for one in pair for text in _texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return [value] if isinstance(value, str) else []


BODIES = {
    "nothing": b"",
    "space": b" \n ",
    "HTML": b"<html><body>\x1b[2J</body></html>",
    "a list": b"[]",
    "a number": b"5",
    "null": b"null",
    "text": b'"x"',
    "half of it": b'{"vlans": [',
    "NaN": b'{"revision": NaN}',
    "infinity": b'{"revision": 1e999}',
    "many digits": b'{"revision": ' + b"1" * 5000 + b"}",
    "not UTF-8": b'{"revision": "\xff"}',
    "nested lists": b"[" * 100_000,
    "nested objects": b'{"a":' * 100_000,
    "many lists": b"[" + b"[]," * 1_100_000 + b"[]]",
}


@pytest.mark.parametrize("body", BODIES)
def test_a_body_that_is_no_answer_is_one_sentence(dets: Any, hostile: Hostile, body: str) -> None:
    hostile.say = raw(BODIES[body])
    for name, words in LINES:
        status, out, err = dets(name, words)
        assert (status, out, len(err.splitlines())) == (1, "", 1), (name, out, err)
        assert err.startswith(f"dets: what {hostile.url} answers is") or name == "top", (name, err)
        assert name != "top" or err == "dets: the controller has ended the stream\n"  # it holds no event


@pytest.mark.parametrize(("name", "words"), LINES, ids=IDS)
def test_wrong_types_and_missing_members_are_one_sentence(
    dets: Any, hostile: Hostile, name: str, words: list[str]
) -> None:
    """Each member of the answer, and of the rows in it, is another type, or is not there."""
    failed = 0
    for number, answer in enumerate(_mutations(LINES.index((name, words)))):
        hostile.say = lambda sock, path, answer=answer: _mutated(sock, path, answer)
        more = ("-o", ("json", "yaml")[number // 7 % 2]) if number % 7 == 0 and name not in ("export", "record") else ()
        status, _, err = dets(name, words, *more)
        assert status in (0, 1, 2), (answer, err)
        assert all(line.startswith("dets: ") for line in err.splitlines()), (answer, err)
        failed += status != 0
    assert failed or name == "export"


WRONG: tuple[Any, ...] = (None, 5, -1.5, 10**400, "x", True, [], [[]], [None], [5], {}, {"x": {"y": []}})


def _mutations(of_line: int) -> Iterator[tuple[str, Any]]:
    """Yield each name with what stands there instead, or nothing: all names together, and all lines, meet both."""
    names = (
        *MEMBERS,
        *LISTS,
        "switches",
        "faults",
        "cluster",
        "unreachable_nodes",
        "next",
        "disconnected_switches",
        "unconfirmed_switches",
    )
    for number, name in enumerate(dict.fromkeys(names)):
        yield name, ... if (number + of_line) % 2 else WRONG[(number // 2 + of_line) % len(WRONG)]


def _mutated(sock: socket.socket, path: str, mutation: tuple[str, Any]) -> None:
    name, value = mutation
    answer = {**plausible(), **SPECIAL.get(path, {})}

    def change(one: Any) -> Any:
        if isinstance(one, dict):
            inner = {key: change(member) for key, member in one.items() if not (key == name and value is ...)}
            return inner | ({name: value} if name in one and value is not ... else {})
        return [change(member) for member in one] if isinstance(one, list) else one

    text = json.dumps(change(answer))
    events = "".join(f"event: {kind}\ndata: {text}\n\n" for kind in ("keys", "state"))
    sock.sendall(HEAD + (events if path == "/v1/stream" else text).encode())


@pytest.mark.parametrize(("name", "words"), LINES, ids=IDS)
def test_an_answer_without_an_end_is_cut_off(dets: Any, hostile: Hostile, name: str, words: list[str]) -> None:
    def pour(sock: socket.socket, path: str) -> None:
        sock.sendall(HEAD + b"data: ")
        while True:
            sock.sendall(b" " * 2**20)

    hostile.say = pour
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status, out, err = dets(name, words)
    assert (status, out) == (1, "")
    most_bytes = 2 * 64 * 2**20 if name == "record" else MAX_ANSWER_BYTES
    assert f"longer than {most_bytes} bytes" in err
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < (400 if name == "record" else 100) * 1024


DRIBBLES = {
    "body": (HEAD, b" "),
    "head": (HEAD[:-2] + b"X: ", b"y"),
    "other heads before it": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "refusal": (b"HTTP/1.1 422 No\r\nConnection: close\r\n\r\n", b" "),
}


@pytest.mark.parametrize("kind", DRIBBLES)
@pytest.mark.parametrize("name", ["vlan list", "top"])
def test_an_answer_that_dribbles_is_cut_off(
    dets: Any, hostile: Hostile, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    if (name, kind) == ("top", "body"):
        return  # a stream takes as long as it likes
    monkeypatch.setattr(answers, "MAX_ANSWER_S", 0.3)
    stop, most = threading.Event(), 400
    first, more = DRIBBLES[kind]
    sent = [first]

    def dribble(sock: socket.socket, path: str) -> None:
        sock.sendall(first)
        while len(sent) < most and not stop.wait(0.05):
            sock.sendall(more)
            sent.append(more)

    hostile.say = dribble
    try:
        status, out, err = dets(name, COMMANDS[name][0])
    finally:
        stop.set()
    assert len(sent) < most
    assert (status, out, len(err.splitlines())) == (2 if kind == "refusal" else 1, "", 1), err
    assert kind == "refusal" or "takes longer than 0.3 s" in err


def test_pages_without_an_end_are_cut_off(dets: Any, hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.cli.support import rest_client

    monkeypatch.setattr(rest_client, "MAX_PAGES", 20)
    hostile.say = raw(b'{"vlans": [], "next": "x"}')
    assert "more than 20 pages" in dets("vlan list", [])[2]
    monkeypatch.setattr(rest_client, "MAX_PAGES_BYTES", 1000)
    hostile.say = raw(json.dumps({"vlans": [{"name": "x" * 300}], "next": "x"}).encode())
    assert "longer than 1000 bytes" in dets("vlan list", [])[2]


REFUSALS = {
    "a detail": {"detail": NASTY},
    "a long one": {"detail": "x" * 60_000},
    "no text": {"detail": [NASTY]},
    "a list": [],
    "errors of no kind": {
        "detail": NASTY,
        "errors": [5, {"field": []}, {"field": NASTY, "reason": NASTY, "value": {}}],
    },
    "errors": {"detail": "x", "errors": [{"field": "weight", "reason": NASTY, "value": NASTY}]},
    "errors that are none": {"detail": NASTY, "errors": 5},
    "nested": None,
}


@pytest.mark.parametrize("kind", REFUSALS)
@pytest.mark.parametrize("status_line", ["422 x", "500 \x1b[2J\x9b31m", "302 Found\r\nLocation: http://127.0.0.1:9/x"])
def test_refusals_are_one_sentence(dets: Any, hostile: Hostile, kind: str, status_line: str) -> None:
    body = b"[" * 50_000 if REFUSALS[kind] is None else json.dumps(REFUSALS[kind]).encode()
    head = f"HTTP/1.1 {status_line}\r\nConnection: close\r\n\r\n".encode("latin-1")
    hostile.say = lambda sock, path: sock.sendall(head + body)
    for name, words in LINES:
        status, out, err = dets(name, words)
        assert (status, out) == (2 if status_line.startswith("4") else 1, ""), (name, err)
        assert len(err.splitlines()) == 1, (name, err)
        assert len(err) < 3000


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-x\x1b[2J\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n\x1b",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"",
    ],
)
def test_what_is_not_http_is_one_sentence(dets: Any, hostile: Hostile, answer: bytes) -> None:
    hostile.say = lambda sock, path: sock.sendall(answer)
    for name, words in LINES:
        status, out, err = dets(name, words)
        assert (status, out, len(err.splitlines())) == (1, "", 1), (name, err)
        assert err.startswith("dets: ")
