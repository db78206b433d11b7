"""The ``links`` of a configuration: core links whose capacity is known, and whether the limits fit them.

Links are found by the controller itself; here only their capacities are told, for it does not guess them. A link that
is not named is taken to carry whatever comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from controller.config.document import Document, Path, show_value
from controller.config.sections import MAX_PORT_NO, LinkSection, read_section
from controller.fabric.description import Config, CoreLink, LinkEnd, Switch, Vn
from controller.limits.admission import admit_core, core_overloaded, core_topology
from controller.limits.hose_model import AdmissionError, VnLimits
from controller.units import format_rate


def read_links(document: Document, sections: object, switches: Mapping[str, Switch]) -> tuple[CoreLink, ...]:
    """Return the links that have no problem; the problems of the others are reported."""
    if not isinstance(sections, list):
        return ()  # reported by the root section
    links = []
    used: dict[LinkEnd, int] = {}
    for index, data in enumerate(sections):
        path = ("links", f"[{index}]")
        section = read_section(LinkSection, document, path, data)
        ends = [] if section.has_bad("between") else _ends(document, path, section.between or [], switches)
        for end in ends:
            if used.setdefault(end, index) != index:
                document.report((*path, "between"), f"{end} is an end of links[{used[end]}] already")
        if len(ends) == 2 and section.capacity is not None:
            links.append(CoreLink((ends[0], ends[1]), section.capacity))
    return tuple(links)


def _ends(document: Document, path: Path, texts: list[str], switches: Mapping[str, Switch]) -> list[LinkEnd]:
    path = (*path, "between")
    ends = []
    for index, text in enumerate(texts):
        end = _end(text, switches)
        if isinstance(end, str):
            document.report((*path, f"[{index}]"), end)
        else:
            ends.append(end)
    if len(texts) != 2:
        document.report(path, f"must name the two ends of the link, not {len(texts)}")
        return []
    if len(ends) == 2 and ends[0].dpid == ends[1].dpid:
        document.report(path, f"both ends are on switch {ends[0].switch}")
        return []
    return ends


def _end(text: str, switches: Mapping[str, Switch]) -> LinkEnd | str:
    """Return the end that a text names, or what is wrong with it."""
    name, _, number = text.rpartition(":")
    if not (name and number.isascii() and number.isdecimal() and 0 < int(number[:11]) <= MAX_PORT_NO):
        return f"{show_value(text)} is not SWITCH:PORT, such as s1:1001"
    if name not in switches:
        return f"{name!r} is not a switch of this file; its switches are {', '.join(list(switches)[:20])}"
    if int(number) in switches[name].ports:
        return f"{text} is an edge port of this file, and no link between switches"
    return LinkEnd(name, switches[name].dpid, int(number))


def check_limits(document: Document, config: Config, default_path: Callable[[Vn, str], Path]) -> None:
    """Report the first limit in the file with which some traffic matrix would overload a link.

    ``default_path`` gives the path of a VN's limit (``send`` or ``receive``) in the file.
    """
    core = core_topology(config)
    vns = list(config.vns())
    asked = [VnLimits(vn.vlan_vid, f"{vn.switch}:{vn.port_no}", vn.send_limit_bps, vn.receive_limit_bps) for vn in vns]
    if not core_overloaded(core, asked):
        return
    # More VNs never mean less load: find the first that is one too many.
    fit, too_many = 0, len(asked)
    while too_many - fit > 1:
        middle = (fit + too_many) // 2
        fit, too_many = (fit, middle) if core_overloaded(core, asked[:middle]) else (middle, too_many)
    try:
        admit_core(core, asked[:fit], asked[fit])
    except AdmissionError as error:
        way = error.key.rpartition(".")[2].removesuffix("_limit")
        place, offer = asked[fit].port, format_rate(error.largest_bps)
        document.report(
            default_path(vns[fit], way),
            f"the {way} limit of VLAN {vns[fit].vlan_vid} at {place}, {format_rate(error.value_bps)}, does not fit: "
            f"{error.overload}; at most {offer} fits beside the limits before it",
        )
