"""The ``links`` of a configuration: core links with known capacities.

The controller discovers links; only the file states their capacities, since speeds that switches report are not used.
A link that is not in the file is assumed to carry any load. ``controller.config.validation`` checks whether the limits
fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.config.section_reader import read_section
from controller.config.sections import LinkSection
from controller.config.value_types import MAX_PORT_NO
from controller.config.yaml_document import Path, Problem, show_value
from controller.fabric.config_model import CoreLink, LinkEnd, Switch

_MAX_NAMED = 20
_MAX_DIGITS = 10  # of a port number


def read_links(
    sections: Sequence[object], switches: Mapping[str, Switch]
) -> tuple[tuple[CoreLink, ...], list[Problem]]:
    """Return the valid links of the sections of ``links``, and the problems of the others."""
    links, problems = [], []
    index_of: dict[LinkEnd, int] = {}
    for index, data in enumerate(sections):
        path = ("links", f"[{index}]")
        section, bad_section = read_section(LinkSection, path, data)
        problems += bad_section
        if section.has_bad("between"):
            continue
        ends, bad_ends = _read_ends((*path, "between"), section.between or [], switches)
        problems += bad_ends
        for end in ends:
            if index_of.setdefault(end, index) != index:
                problems.append(Problem((*path, "between"), f"{end} is an end of links[{index_of[end]}] already"))
        if len(ends) == 2 and section.capacity is not None:
            links.append(CoreLink((ends[0], ends[1]), section.capacity, section.frame_overhead_bytes))
    return tuple(links), problems


def _read_ends(path: Path, texts: Sequence[str], switches: Mapping[str, Switch]) -> tuple[list[LinkEnd], list[Problem]]:
    """Return the ends of a link, none if they cannot belong to one link, and their problems."""
    results = [_read_end(text, switches) for text in texts]
    ends = [end for end in results if isinstance(end, LinkEnd)]
    problems = [Problem((*path, f"[{index}]"), error) for index, error in enumerate(results) if isinstance(error, str)]
    if len(texts) != 2:
        return [], [*problems, Problem(path, f"must name the two ends of the link, not {len(texts)}")]
    if len(ends) == 2 and ends[0].dpid == ends[1].dpid:
        return [], [*problems, Problem(path, f"both ends are on switch {ends[0].switch}")]
    return ends, problems


def _read_end(text: str, switches: Mapping[str, Switch]) -> LinkEnd | str:
    """Return the end that a text, ``SWITCH:PORT``, names, or the problem of the text."""
    name, _, number = text.rpartition(":")
    is_number = number.isascii() and number.isdecimal() and len(number) <= _MAX_DIGITS
    if not (name and is_number and 0 < int(number) <= MAX_PORT_NO):
        return f"{show_value(text)} is not SWITCH:PORT, such as s1:1001"
    if name not in switches:
        return f"{name!r} is not a switch of this file; its switches are {', '.join(list(switches)[:_MAX_NAMED])}"
    if int(number) in switches[name].ports:
        return f"{text} is an edge port of this file, and no link between switches"
    return LinkEnd(name, switches[name].dpid, int(number))
