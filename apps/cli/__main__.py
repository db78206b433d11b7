"""``python -m apps.cli`` is the ``dets`` command."""

from __future__ import annotations

import sys

from apps.cli import main

if __name__ == "__main__":
    sys.exit(main())
