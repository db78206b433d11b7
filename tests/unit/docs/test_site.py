"""The documents as a site: links and anchors hold, the reference is there, and nothing comes from elsewhere."""

import json
import re
import subprocess
import sys
from pathlib import Path

from support.paths import ROOT

SCRIPTS = ("mermaid.min.js", "iframe-worker.js")
"""What npm fetches: stood in for, as this test has no network."""
ELSEWHERE = re.compile(
    r'<(?:script|img|iframe)[^>]* src="?(?:https?:)?//|<link[^>]* rel="?stylesheet"?[^>]* href="?(?:https?:)?//'
)


def test_the_site_is_whole_and_needs_no_network(tmp_path: Path) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name in SCRIPTS:
        (scripts / name).write_text(f"// {name}\n")
    site = tmp_path / "site"
    command = [ROOT / "scripts" / "site", sys.executable, site, scripts]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr  # --strict: every warning is an error
    pages = {page: page.read_text() for page in site.rglob("*.html")}
    assert len(pages) > 60
    assert not [page for page, text in pages.items() if ELSEWHERE.search(text)]
    reference = pages[site / "python.html"]
    assert all(f'id="{name}"' in reference for name in ("experiments.run", "experiments.evaluation.result.Result"))
    assert "../scripts/mermaid.min.js" in pages[site / "docs" / "architecture.html"]
    found = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    assert {"docs/operator-guide.html", "python.html"} <= {one["location"] for one in found}
