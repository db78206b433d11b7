"""The store's file: made whole, locked, guarded while it is used, and refused in a sentence when it is damaged."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.paths import ROOT

from apps.settings.errors import StoreError
from apps.settings.store import Store, StoredChange, read_state
from apps.settings.store_lock import SUFFIX
from apps.settings.tokens import Tokens
from controller.errors import InvalidValueError
from controller.limits.overrides import Override, VnName

ONE = VnName(10, "s1", 1)
HOLDER = """\
import sys
from apps.settings.store import Store
store = Store(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def change(revision: int) -> StoredChange:
    return StoredChange(revision, "now", "me", "", "vn", 0)


def commit(store: Store, revision: int, ports: int = 1) -> None:
    vns = {VnName(10, "s1", port): Override({"send_limit_bps": 5_000}, revision) for port in range(1, ports + 1)}
    store.commit(change(revision), {}, vns, {"revision": str(revision)})


def execute(path: Path, statement: str) -> None:
    """Change the file behind the store's back."""
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """A store with one change in its log, and many pages in its file."""
    with contextlib.closing(Store(str(path))) as filling:
        commit(filling, 1, ports=500)
    with contextlib.closing(Store(str(path))) as store:
        commit(store, 2)
        yield store


def test_a_store_has_one_controller_by_whatever_name_and_the_other_is_told_who(
    store: Store, path: Path, tmp_path: Path
) -> None:
    (tmp_path / "link.db").symlink_to(path)
    for name in ("x.db", "link.db"):
        who = f"process {os.getpid()} on host {socket.gethostname()}"
        with pytest.raises(StoreError, match=f"{name}' is in use by {who}: a store has one controller"):
            Store(str(tmp_path / name))


def test_the_lock_of_a_process_that_was_killed_is_none(path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match=f"in use by process {process.pid} on host"):
            Store(str(path))
        process.kill()
        process.wait()
        Store(str(path)).close()


def test_what_reads_a_store_and_its_tokens_needs_no_lock(store: Store, path: Path) -> None:
    assert read_state(str(path)).revision == 2
    with contextlib.closing(Tokens(str(path))) as tokens:
        tokens.create("ops", "write")
    commit(store, 3)


def test_a_process_that_opens_and_closes_the_store_does_not_take_the_log_away(store: Store, path: Path) -> None:
    script = "import sys; from apps.settings.tokens import Tokens; Tokens(sys.argv[1]).close()"
    subprocess.run([sys.executable, "-c", script, str(path)], cwd=ROOT, check=True)
    commit(store, 3)
    script = "import sys; from apps.settings.store import read_state; print(read_state(sys.argv[1]).revision)"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout == "3\n"


def replace_by_a_copy(path: Path) -> None:
    shutil.copy(path, f"{path}.copy")
    os.replace(f"{path}.copy", path)


def overwrite(path: Path, start: float, end: float) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(int(start * size))
        file.write(b"\xa5" * int((end - start) * size))


REPLACED = "was removed or replaced while the controller runs"
UNREADABLE = "malformed|is damaged|not a database"
COPY_OF_A_CHANGE = "INSERT INTO changes SELECT 9, at, who, address, action, changed, items FROM changes LIMIT 1"
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "removed": (Path.unlink, REPLACED),
    "replaced by a copy": (replace_by_a_copy, REPLACED),
    "without its log": (lambda path: Path(f"{path}-wal").unlink(), REPLACED),
    "emptied": (lambda path: os.truncate(path, 0), "was emptied while the controller runs"),
    "cut": (lambda path: os.truncate(path, path.stat().st_size // 2), "malformed|is damaged"),
    "with another first half": (lambda path: overwrite(path, 0, 0.5), UNREADABLE),
    "with another second half": (lambda path: overwrite(path, 0.5, 1), "is damaged"),
    "with another log": (lambda path: overwrite(Path(f"{path}-wal"), 0, 1), UNREADABLE),
    "with a change of another's": (
        lambda path: execute(path, COPY_OF_A_CHANGE),
        "has revision 9 where this controller has made 2",
    ),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES)
def test_a_change_is_refused_when_the_file_is_not_as_it_was_left(
    store: Store, path: Path, damage: Callable[[Path], object], words: str
) -> None:
    damage(path)
    for _ in range(2):
        with pytest.raises(StoreError, match=words):
            commit(store, 3)


def test_a_store_that_is_put_back_takes_changes_again(store: Store, path: Path) -> None:
    path.rename(f"{path}.away")
    with pytest.raises(StoreError, match="was removed"):
        commit(store, 3)
    Path(f"{path}.away").rename(path)
    commit(store, 3)
    assert read_state(str(path)).revision == 3


@pytest.mark.parametrize("damage", ["emptied", "cut", "with another first half", "with another second half"])
def test_a_start_on_a_damaged_store_ends_with_a_sentence(path: Path, damage: str) -> None:
    with contextlib.closing(Store(str(path))) as filling:
        commit(filling, 1, ports=500)
    DAMAGES[damage][0](path)
    with pytest.raises(StoreError, match=r"store.file: '.*x.db' ") as refusal:
        Store(str(path))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE vn_overrides SET send_limit_bps = 'fast'", "the override of VLAN 10 at s1:1 cannot be read"),
        ("UPDATE vn_overrides SET send_limit_bps = 1.5", "the override of VLAN 10 at s1:1 cannot be read"),
        ("UPDATE vn_overrides SET weight = 'heavy'", "the override of VLAN 10 at s1:1 cannot be read"),
        ("UPDATE vn_overrides SET port_no = x'00'", "at s1:.* cannot be read"),
        ("INSERT INTO vlan_overrides VALUES (10, '{', 1, 1)", "the override of VLAN 10 cannot be read"),
        ("INSERT INTO vlan_overrides VALUES (10, '[]', 1, 1)", "the override of VLAN 10 cannot be read"),
        ("INSERT INTO vlan_overrides VALUES (10, '{}', 'x', 1)", "the override of VLAN 10 cannot be read"),
    ],
)
def test_values_of_another_kind_are_damage(path: Path, statement: str, words: str) -> None:
    with contextlib.closing(Store(str(path))) as store:
        commit(store, 1)
    execute(path, statement)
    with contextlib.closing(Store(str(path))) as store, pytest.raises(StoreError, match=words):
        store.load()
    with pytest.raises(StoreError, match=words):
        read_state(str(path))


def test_a_change_in_the_history_that_cannot_be_read_is_named(store: Store, path: Path) -> None:
    execute(path, "UPDATE changes SET items = x'00' WHERE revision = 1")
    with pytest.raises(StoreError, match="change 1 cannot be read"):
        store.change(1)
    assert store.change(2) == change(2)


def test_a_change_is_taken_back_with_its_facts(store: Store, path: Path) -> None:
    before = read_state(str(path))
    store.commit(change(3), {}, {}, {"revision": "3", "more": "x"})
    store.undo_last(change(3), before.metadata)
    assert read_state(str(path)) == before
    commit(store, 3)


@pytest.mark.parametrize("table", ["vn_overrides", "facts"])
def test_a_commit_that_fails_half_way_leaves_nothing(path: Path, table: str) -> None:
    with contextlib.closing(Store(str(path))) as store:
        execute(path, f"CREATE TRIGGER t BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'no'); END")
        vns = {ONE: Override({"send_limit_bps": 5_000}, 1)}
        with pytest.raises(StoreError, match="no"):
            store.commit(change(1), {10: Override({"weight": 2.0}, 1)}, vns, {"a": "b"})
        standing = read_state(str(path))
        assert (standing.revision, standing.vlans, standing.vns, standing.metadata) == (0, {}, {}, {})
        execute(path, "DROP TRIGGER t")
        store.commit(change(1), {}, vns, {})
        assert read_state(str(path)).vns == vns


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    text, other, older, newer = (tmp_path / f"{name}.db" for name in ("text", "other", "older", "newer"))
    text.write_text("vlans: {}\n" * 100)
    execute(other, "CREATE TABLE t (a)")
    for path, version in ((older, 1), (newer, 99)):
        Store(str(path)).close()
        execute(path, f"PRAGMA user_version = {version}")
    refused = ((text, "not a database"), (other, "not a store"), (older, "another version"), (newer, "another version"))
    for path, words in 2 * refused:  # a start that fails gives the lock back
        with pytest.raises(StoreError, match=words):
            Store(str(path))
    with pytest.raises(StoreError, match="No such file"):
        Store(str(tmp_path / "none" / "x.db"))


def test_a_new_store_is_made_whole_and_for_its_owner_alone(path: Path, tmp_path: Path) -> None:
    Store(str(path)).close()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["x.db", f"x.db{SUFFIX}"]
    assert all(one.stat().st_mode & 0o077 == 0 for one in tmp_path.iterdir())


def test_tokens(path: Path) -> None:
    with contextlib.closing(Tokens(str(path))) as making, contextlib.closing(Tokens(str(path))) as using:
        reading, writing = making.create("portal", "read"), making.create("ops", "write")
        assert reading not in path.read_text(errors="replace")
        for token, name, scope in ((reading, "portal", "read"), (writing, "ops", "write")):
            found = using.find(token)
            assert found is not None
            assert (found.name, found.scope) == (name, scope)
        assert using.find(reading[:-1]) is None
        with pytest.raises(InvalidValueError, match="already"):
            making.create("ops", "read")
        with pytest.raises(InvalidValueError, match="read or write"):
            making.create("x", "admin")
        making.revoke("ops")
        assert using.find(writing) is None
        with pytest.raises(InvalidValueError, match="there are: portal"):
            making.revoke("ops")


def test_tokens_of_a_damaged_store_are_an_error_of_the_store(store: Store, path: Path) -> None:
    with contextlib.closing(Tokens(str(path))) as tokens:
        execute(path, "DROP TABLE tokens")
        with pytest.raises(StoreError, match="tokens"):
            tokens.find("dets_x")
