"""A stand-in for the controller, and the command that asks it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.fake_rest_server import FakeRestServer

from apps import cli


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Leave out what is set for ``dets`` on this machine."""
    for name in ("URL", "TOKEN", "TOKEN_FILE", "CACERT", "CERT", "KEY", "CONFIG"):
        monkeypatch.delenv(f"DETS_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRestServer]:
    monkeypatch.setenv("COLUMNS", "300")
    with FakeRestServer() as desk:
        monkeypatch.setenv("DETS_URL", desk.url)
        yield desk


@pytest.fixture
def dets(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*words: str) -> tuple[int, str, str]:
        status = cli.main(list(words))
        said = capsys.readouterr()
        return status, said.out, said.err

    return run
