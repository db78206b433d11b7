"""The manager of applications on os-ken, the maintained fork of Ryu (docs/adr/0001); DETS_FRAMEWORK=os-ken selects it.

os-ken has Ryu's modules under the name ``os_ken``, without the manager, the HTTP server and the applications of Ryu.
``use_chosen_framework`` makes ``ryu`` a second name of ``os_ken``, so that applications written for Ryu run unchanged.
``main`` replaces ``ryu.cmd.manager``. Connections of switches need eventlet's hub, which is not os-ken's default.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from controller.errors import InvalidValueError

VARIABLE = "DETS_FRAMEWORK"
FRAMEWORKS = ("ryu", "os-ken")
_REPLACEMENTS = {"ryu.cmd": "apps.runtime", "ryu.cmd.manager": __name__}  # for modules that os-ken does not have


def use_chosen_framework() -> None:
    """Make ``ryu`` a name of os-ken if DETS_FRAMEWORK says so. Raises InvalidValueError for an unknown framework."""
    chosen = os.environ.get(VARIABLE) or FRAMEWORKS[0]
    if chosen not in FRAMEWORKS:
        raise InvalidValueError(VARIABLE, chosen, f"must be {' or '.join(FRAMEWORKS)}")
    if chosen == "os-ken":
        if importlib.util.find_spec("os_ken") is None:
            raise InvalidValueError(VARIABLE, chosen, "is not installed: pip install 'dets-controller[os-ken]'")
        os.environ["OSKEN_HUB_TYPE"] = "eventlet"
        sys.meta_path.insert(0, _RyuFinder())


class _RyuFinder(MetaPathFinder, Loader):
    """Import finder that gives the module ``os_ken.X`` the second name ``ryu.X``."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """Return the spec of a module ``ryu.X``, with the spec of os-ken's module as its loader state.

        None for other modules, and if os-ken has no such module.
        """
        if fullname.partition(".")[0] != "ryu":
            return None
        os_ken_name = _REPLACEMENTS.get(fullname, fullname.replace("ryu", "os_ken", 1))
        original = importlib.util.find_spec(os_ken_name)
        return original and ModuleSpec(fullname, self, loader_state=original)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module under its own name."""
        return importlib.import_module(spec.loader_state.name)

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec; give os-ken's base class of applications Ryu's name ``RyuApp``."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state
        if module.__name__ == "os_ken.base":
            from os_ken.base import app_manager

            app_manager.RyuApp = app_manager.OSKenApp


def main(args: list[str], prog: str) -> None:
    """Run the applications that the arguments name until SIGTERM or SIGINT; the options are those of Ryu's manager."""
    from os_ken import cfg, flags, log  # noqa: F401  # flags, controller and switches add their options
    from os_ken.base.app_manager import AppManager
    from os_ken.controller import controller  # noqa: F401
    from os_ken.lib import hub
    from os_ken.topology import switches  # noqa: F401

    options = [
        cfg.ListOpt("app-lists", default=[], help="application module name to run"),
        cfg.MultiStrOpt("app", positional=True, default=[], help="application module name to run"),
        cfg.StrOpt("pid-file", help="pid file name"),
    ]
    cfg.CONF.register_cli_opts(options)
    cfg.CONF(args=args, prog=prog, project="ryu", default_config_files=[])
    log.init_log()
    if cfg.CONF.pid_file:
        with open(cfg.CONF.pid_file, "w") as file:
            file.write(str(os.getpid()))
    manager = AppManager.get_instance()
    manager.load_apps([*cfg.CONF.app_lists, *cfg.CONF.app])
    services = manager.instantiate_apps(**manager.create_contexts())
    try:
        hub.joinall(services)
    except KeyboardInterrupt:
        pass
    finally:
        manager.close()
