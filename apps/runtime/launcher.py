"""Starts ryu-manager with the present eventlet.

``ryu-manager`` is installed from here instead of from Ryu: Ryu 4.34 imports ``eventlet.wsgi.ALREADY_HANDLED``, which
newer eventlet no longer has, and dies on SIGTERM without closing its applications.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings

from apps.runtime.memory_tuning import disable_heap_trimming, gc_paused, keep_made
from apps.runtime.os_ken_manager import use_chosen_framework
from controller.errors import InvalidValueError


def _prepare() -> None:
    """Prepare the process for Ryu, before any import that uses threads or sockets."""
    disable_heap_trimming()
    warnings.filterwarnings("ignore", message="(?s).*[Ee]ventlet is deprecated.*")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    warnings.filterwarnings("ignore", category=SyntaxWarning, module=r".*[\\/]ryu[\\/]")  # when Ryu is compiled first
    # Eventlet's own resolver has 150 modules, and reads neither nsswitch.conf nor other settings of the C library.
    os.environ["EVENTLET_NO_GREENDNS"] = "yes"
    import eventlet
    import eventlet.green.socket

    from apps.runtime.sockets.name_resolution import getaddrinfo

    eventlet.green.socket.getaddrinfo = getaddrinfo
    eventlet.monkey_patch()
    import eventlet.hubs
    import eventlet.wsgi
    from eventlet.hubs import epolls

    if epolls.is_available():
        from apps.runtime.sockets.hub import Hub

        eventlet.hubs.use_hub(Hub)

    if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
        eventlet.wsgi.ALREADY_HANDLED = []  # Ryu's wsgi returns it, so it must be iterable
    use_chosen_framework()


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
    """Run ryu-manager with these arguments; return the exit status of the process."""
    import eventlet
    from ryu import cfg

    help_config = "configuration file of apps/dets.py (default: dets.yaml)"
    cfg.CONF.register_cli_opt(cfg.StrOpt("dets-config", help=help_config))
    from ryu import log
    from ryu.cmd.manager import main as ryu_main

    from apps.runtime import first_config
    from apps.runtime.logs import FORMATS, set_format
    from controller.config.yaml_document import ConfigError

    init_log = log.init_log

    def init_log_in_format() -> None:
        """Read the configuration, and start logging in its format, before any application logs.

        Ends the process with status 2 if the configuration is invalid.
        """
        log_format = FORMATS[0]
        if cfg.CONF.dets_config is not None:
            try:
                with gc_paused():
                    config = first_config.preload(cfg.CONF.dets_config)
                    keep_made(sum(1 for _ in config.vns()))
                log_format = config.log_format
            except ConfigError as error:
                print(error, file=sys.stderr)
                sys.exit(2)
        init_log()
        if cfg.CONF.log_config_file is None:
            set_format(log_format)

    log.init_log = init_log_in_format
    _stop_cleanly()
    eventlet.spawn_n(gc.enable)  # runs at the main greenlet's first wait: all objects exist by then
    try:
        ryu_main(args=arguments, prog="ryu-manager")
    except ModuleNotFoundError as error:
        missing = _missing_application(arguments, error.name or "")
        if missing is None:
            raise  # an import in an application failed: its author needs the traceback
        print(f"--app: {missing!r} is neither a file nor a module that Python finds", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped before it had started", file=sys.stderr)
    return 0


def _missing_application(arguments: list[str], missing: str) -> str | None:
    """Return the argument that names the module ``missing``, or a module in the package ``missing``; None without."""
    return next((argument for argument in arguments if argument == missing or argument.startswith(f"{missing}.")), None)


def ryu_manager() -> int:
    """Entry point ``ryu-manager``: Ryu's own manager, its arguments and ``--dets-config FILE``."""
    gc.disable()  # collections would take a fifth of the start, and free nearly nothing
    try:
        _prepare()
    except InvalidValueError as error:
        print(error, file=sys.stderr)
        return 2
    return manager(sys.argv[1:])


def module_command(module: str) -> list[str]:
    """Return the command, without arguments, that runs ``module`` from the packages that this process uses.

    Option ``-P`` keeps files of the current folder from hiding modules. If the packages are in the current folder, the
    option is left out: they may be a copy of the project that is not installed.
    """
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    options = [] if os.path.samefile(root, os.curdir) else ["-P"]
    return [sys.executable, *options, "-m", module]


def main(config: str, apps: list[str]) -> int:
    """Entry point of ``dets run``: run the DETS application, and other Ryu applications next to it.

    The process becomes ``python -m apps.runtime.launcher``, because monkey patching must precede all other imports.
    That process also reads the configuration, so that nothing is imported twice.
    """
    application = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "dets.py")
    if sys.version_info < (3, 12):  # Ryu compares versions with distutils, which would load setuptools
        os.environ["SETUPTOOLS_USE_DISTUTILS"] = "stdlib"
    command = [*module_command("apps.runtime.launcher"), "--dets-config", config, application, *apps]
    return os.execv(sys.executable, command)


if __name__ == "__main__":
    sys.path.append("")  # --app may be a module in the current folder
    sys.exit(ryu_manager())
