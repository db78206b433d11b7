"""Starts ryu-manager in a way that today's eventlet allows.

``ryu-manager`` is installed from here instead of from Ryu: Ryu 4.34 imports ``eventlet.wsgi.ALREADY_HANDLED``, which
newer eventlet no longer has, and dies on SIGTERM without closing its applications.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings


def _prepare() -> None:
    """Make the process ready for Ryu; nothing else may have been imported that uses threads or sockets."""
    warnings.filterwarnings("ignore", message="(?s).*[Ee]ventlet is deprecated.*")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    import eventlet

    eventlet.monkey_patch()
    import eventlet.wsgi

    if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
        eventlet.wsgi.ALREADY_HANDLED = []  # Ryu's wsgi returns it, so it must be iterable


def _stop_cleanly() -> None:
    """Let SIGTERM and SIGINT end the manager's wait, so that it closes its applications."""
    import eventlet
    import greenlet

    main = greenlet.getcurrent()

    def stop(_signal: int, _frame: object) -> None:
        eventlet.spawn_n(eventlet.kill, main, KeyboardInterrupt)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def manager(arguments: list[str]) -> int:
    """Run ryu-manager with these arguments."""
    from ryu import cfg

    cfg.CONF.register_cli_opts(
        [cfg.StrOpt("dets-config", help="configuration file of apps/dets.py (default: dets.yaml)")]
    )
    from ryu.cmd.manager import main as ryu_main

    _stop_cleanly()
    ryu_main(args=arguments, prog="ryu-manager")
    return 0


def ryu_manager() -> int:
    """Entry point ``ryu-manager``: Ryu's own manager, its arguments and ``--dets-config FILE``."""
    _prepare()
    return manager(sys.argv[1:])


def main(config: str, apps: list[str]) -> int:
    """Entry point of ``dets run``: run the DETS application, and other Ryu applications beside it.

    The process becomes ``python -m apps.launcher``, because greening must come before any other import.
    """
    from controller.config import ConfigError, load_config

    try:
        load_config(config)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    application = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dets.py")
    command = [sys.executable, "-m", "apps.launcher", "--dets-config", config, application, *apps]
    return os.execv(sys.executable, command)


if __name__ == "__main__":
    sys.exit(ryu_manager())
