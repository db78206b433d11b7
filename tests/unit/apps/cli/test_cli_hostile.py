"""Every command that asks a controller, against one that means harm: a sentence, an exit status, nothing that moves."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import resource
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apps import cli
from apps.cli.reference.rest import description
from apps.cli.support import answers, rest_client
from apps.cli.support.answers import MAX_ANSWER_BYTES

# Escapes of C0 and C1, ends of lines that would forge one, bidi overrides, invisible characters, half a surrogate pair.
NASTY = "a\x1b[2J\x1b]0;owned\x07\r\ndets: ok\x9b31m\x85\u202egnp.exe\u2066\u2028\u200b\ufeff\U000e0041\x00\x7f\ud800b"
MAC = "02:00:00:00:00:01"
DOCUMENT = description()
# What decides which way a command goes on.
CHOSEN = {"next": None, "records": "", "overrun": False, "role": "standby"}


def plausible(schema: Any) -> Any:
    """Return an answer that has what any command looks for, with texts and names that mean harm."""
    if "$ref" in schema:
        return plausible(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return plausible(next(one for one in schema["anyOf"] if one.get("type") != "null"))
    if schema.get("type") == "array":
        return [plausible(schema["items"])]
    if schema.get("type") == "object":
        members = {
            name: CHOSEN[name] if name in CHOSEN else plausible(of) for name, of in schema.get("properties", {}).items()
        }
        others = schema.get("additionalProperties")
        return {**members, NASTY: plausible(others if isinstance(others, dict) else {})}
    return {"integer": 1, "number": 0.5, "boolean": True}.get(schema.get("type"), NASTY)


ANSWERS = {
    f"{method.upper()} {re.sub('{[^/]+}', '[^/]+', path)}": plausible(content["application/json"]["schema"])
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
    if "application/json" in (content := operation["responses"]["200"]["content"])
}
ANSWERS["GET /v1/stream"] = {
    "columns": ["received", "marked", NASTY],
    "vlans": [[10, NASTY]],
    "vns": [[10, NASTY, 1]],
    "revision": 1,
    "rows": [[2], [1], [None]],
    "congested": [0],
    "bottlenecks": [NASTY],
}


def answer_to(request: str) -> Any:
    return next(answer for pattern, answer in ANSWERS.items() if re.fullmatch(pattern, request))


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


class Hostile(socketserver.ThreadingTCPServer):
    """Listens on a free port of the loopback; ``say`` is called with each connection and request: ``GET /v1/vns``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.say: Callable[[socket.socket, str], None] = lambda sock, request: None
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Connection(socketserver.StreamRequestHandler):
    server: Hostile
    timeout = 30.0

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # who asked has had enough
            method, target, _ = self.rfile.readline().decode().split()
            length = int(http.client.parse_headers(self.rfile)["Content-Length"] or 0)
            self.rfile.read(length)
            self.server.say(self.connection, f"{method} {target.partition('?')[0]}")
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.recv(1)


@pytest.fixture(scope="module")
def hostile() -> Iterator[Hostile]:
    with Hostile() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def dets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, hostile: Hostile
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setenv("DETS_URL", hostile.url)
    monkeypatch.setattr(rest_client, "MAX_PAGES", 20)
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
    return lambda sock, request: sock.sendall(HEAD + data)


def send(sock: socket.socket, request: str, answer: Any) -> None:
    text = json.dumps(answer)
    events = "".join(f"event: {name}\ndata: {text}\n\n" for name in ("keys", "state"))
    sock.sendall(HEAD + (events if request == "GET /v1/stream" else text).encode())


def test_all_commands_that_ask_are_tried() -> None:
    def asking(group: Any, prefix: str = "") -> Iterator[str]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from asking(command, f"{name} ")
            elif any("--url" in one.opts for one in command.params):
                yield prefix + name

    assert sorted(asking(cli.COMMAND)) == sorted(COMMANDS)


@pytest.mark.parametrize(("name", "words"), LINES, ids=IDS)
def test_names_move_nothing(dets: Any, hostile: Hostile, name: str, words: list[str]) -> None:
    """Each command shows what it is told, and each line of it can be printed; JSON and YAML say the very same."""
    hostile.say = lambda sock, request: send(sock, request, answer_to(request))
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
    "many lists": b'{"revision": 1, "changed": 1, "more": [' + b"[]," * 1_100_000 + b"[]]}",
}


@pytest.mark.parametrize("body", BODIES)
def test_a_body_that_is_no_answer_is_one_sentence(dets: Any, hostile: Hostile, body: str) -> None:
    hostile.say = raw(BODIES[body])
    for name, words in LINES:
        status, out, err = dets(name, words)
        assert (status, out, len(err.splitlines())) == (1, "", 1), (name, out, err)
        assert err.startswith(f"dets: what {hostile.url} answers is") or name == "top", (name, err)
        assert name != "top" or err == "dets: the controller has ended the stream\n"  # it holds no event


WRONG: tuple[Any, ...] = (None, 5, -1.5, 10**400, "x", True, [], [[]], [None], [5], {}, {"x": {"y": []}})


@pytest.mark.parametrize(("name", "words"), LINES, ids=IDS)
def test_wrong_types_and_missing_members_are_one_sentence(
    dets: Any, hostile: Hostile, name: str, words: list[str]
) -> None:
    """Each member of the answers, and of the objects in them, is another type, or is not there."""
    asked = set()

    def note(sock: socket.socket, request: str) -> None:
        asked.add(request)
        send(sock, request, answer_to(request))

    hostile.say = note
    dets(name, words)
    failed, line = 0, LINES.index((name, words))
    for number, member in enumerate(sorted({one for request in asked for one in _names(answer_to(request))})):
        form = ("-o", ("json", "yaml")[number // 7 % 2]) if number % 7 == 0 and name not in ("export", "record") else ()
        for wrong in (..., WRONG[(number + line) % len(WRONG)]):
            hostile.say = lambda sock, request, *, of=(member, wrong): send(
                sock, request, _spoilt(answer_to(request), *of)
            )
            status, _, err = dets(name, words, *form)
            assert status in (0, 1, 2), (member, wrong, err)
            assert all(line.startswith("dets: ") for line in err.splitlines()), (member, wrong, err)
            failed += status != 0
    assert failed or name == "export"


def _names(answer: Any) -> Iterator[str]:
    """Yield the names of all members."""
    if isinstance(answer, dict):
        yield from answer
    for inner in answer.values() if isinstance(answer, dict) else answer if isinstance(answer, list) else ():
        yield from _names(inner)


def _spoilt(answer: Any, member: str, wrong: Any) -> Any:
    """Return an answer in which something else stands for a member, or nothing."""
    if isinstance(answer, list):
        return [_spoilt(one, member, wrong) for one in answer]
    if not isinstance(answer, dict):
        return answer
    spoilt = {name: wrong if name == member else _spoilt(one, member, wrong) for name, one in answer.items()}
    return {name: one for name, one in spoilt.items() if one is not ...}


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


STATUS_LINES = ("422 x", "500 \x1b[2J\x9b31m", "302 Found\r\nLocation: http://127.0.0.1:9/x")


@pytest.mark.parametrize("kind", REFUSALS)
def test_refusals_are_one_sentence(dets: Any, hostile: Hostile, kind: str) -> None:
    body = b"[" * 50_000 if REFUSALS[kind] is None else json.dumps(REFUSALS[kind]).encode()
    for number, (name, words) in enumerate(LINES, list(REFUSALS).index(kind)):
        status_line = STATUS_LINES[number % len(STATUS_LINES)]
        head = f"HTTP/1.1 {status_line}\r\nConnection: close\r\n\r\n".encode("latin-1")
        hostile.say = lambda sock, request, *, answer=head + body: sock.sendall(answer)
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
    hostile.say = lambda sock, request: sock.sendall(answer)
    for name, words in LINES:
        status, out, err = dets(name, words)
        assert (status, out, len(err.splitlines())) == (1, "", 1), (name, err)
        assert err.startswith("dets: ")
