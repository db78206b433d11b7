"""How large each package may be: who passes its ceiling raises it in the same commit, and says there why."""

import tokenize
from collections import Counter
from pathlib import Path

from support.paths import ROOT

CEILINGS = {
    "apps": 932,
    "apps/agent": 1170,
    "apps/cli": 2440,
    "apps/cluster": 2084,
    "apps/ovsdb": 540,
    "apps/rest": 3703,
    "apps/runtime": 1919,
    "apps/settings": 855,
    "apps/southbound": 1491,
    "apps/ui": 60,
    "controller": 360,
    "controller/agents": 845,
    "controller/allocation": 760,
    "controller/capability": 730,
    "controller/central": 2470,
    "controller/cluster": 214,
    "controller/config": 1912,
    "controller/dets": 680,
    "controller/fabric": 835,
    "controller/forwarding": 1770,
    "controller/node_protocol": 685,
    "controller/gatekeeper": 535,
    "controller/hygenicc": 510,
    "controller/limits": 820,
    "controller/loop": 630,
    "controller/metering": 1200,
    "controller/partition": 596,
    "controller/monitoring": 590,
    "controller/openflow": 1600,
    "controller/plugins": 110,
    "controller/policy": 725,
    "controller/seawall": 970,
    "controller/shards": 1229,
    "controller/switch": 1690,
    "controller/whatif": 438,
    "experiments": 712,
    "experiments/bench": 4515,
    "experiments/evaluation": 1150,
    "experiments/figures": 725,
    "experiments/machine": 950,
    "experiments/measure": 320,
    "experiments/model": 1807,
    "experiments/ovs": 1140,
    "experiments/papers": 1787,
    "experiments/runs": 1240,
    "experiments/scenarios": 1446,
    "experiments/soak": 688,
    "experiments/switch": 1600,
    "experiments/wire": 850,
    "topologies": 600,
}
"""Lines of Python at most, without blank ones, comments and docstrings; of a folder with what is below it."""
LAYOUT = {tokenize.NL, tokenize.COMMENT, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(path: Path) -> int:
    lines, begins = set[int](), True
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in LAYOUT and token.type != tokenize.ENCODING:
                if not (begins and token.type == tokenize.STRING):
                    lines.update(range(token.start[0], token.end[0] + 1))
                begins = False
            begins = begins or token.type == tokenize.NEWLINE
    return len(lines)


def sizes() -> Counter[str]:
    found = Counter[str]()
    for top in ("controller", "apps", "topologies", "experiments"):
        for path in (ROOT / top).rglob("*.py"):
            found["/".join(path.relative_to(ROOT).parts[:-1][:2])] += code_lines(path)
    return found


def test_no_package_is_larger_than_it_may_be() -> None:
    too_large = {name: size for name, size in sizes().items() if size > CEILINGS.get(name, 0)}
    assert not too_large
