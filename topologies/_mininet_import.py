"""Make ``import mininet`` work: the package comes from Debian, outside of every virtual environment."""

from __future__ import annotations

import importlib
import sys
import types
import warnings

DEBIAN_PACKAGES = "/usr/lib/python3/dist-packages"


def ensure_mininet() -> None:
    """Import mininet, from Debian's folder if necessary; raise ImportError naming the package if it is not installed.

    The folder goes to the end of sys.path, so that an older copy there shadows nothing of the virtual environment.
    """
    with warnings.catch_warnings():
        # Mininet 2.3 imports distutils, which Python 3.11 deprecates.
        warnings.simplefilter("ignore", DeprecationWarning)
        _ensure_distutils()
        try:
            importlib.import_module("mininet")
        except ModuleNotFoundError:
            if DEBIAN_PACKAGES not in sys.path:
                sys.path.append(DEBIAN_PACKAGES)
            try:
                importlib.import_module("mininet")
            except ModuleNotFoundError as error:
                raise ImportError(
                    f"Mininet is not installed (looked in {DEBIAN_PACKAGES} too): apt-get install mininet"
                ) from error
        importlib.import_module("mininet.node")


def _ensure_distutils() -> None:
    """Provide ``distutils.version``, which Python 3.12 dropped and with which mininet.node compares two versions."""
    try:
        importlib.import_module("distutils.version")
    except ModuleNotFoundError:
        version = types.ModuleType("distutils.version")
        version.StrictVersion = _version_tuple  # type: ignore[attr-defined]
        sys.modules["distutils"] = types.ModuleType("distutils")
        sys.modules["distutils.version"] = version


def _version_tuple(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
