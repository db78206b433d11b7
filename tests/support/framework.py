"""Imports Ryu as the launcher does. Import this module before modules of apps/ that use Ryu."""

from __future__ import annotations

import importlib
import warnings

with warnings.catch_warnings():  # what Ryu imports is deprecated
    warnings.simplefilter("ignore")
    import eventlet.wsgi

    eventlet.wsgi.ALREADY_HANDLED = []  # Ryu imports it, and recent versions lack it
    importlib.import_module("ryu.base.app_manager")  # before what it imports, which imports it
    importlib.import_module("apps.runtime.ryu_adapter")
