"""Names of VLANs, edge ports and VNs on the command line, in the form of the REST interface."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from apps.cli.support.answers import Shape, check
from apps.cli.support.output import location
from apps.cli.support.rest_client import Client
from controller.errors import InvalidValueError
from controller.fabric.value_checks import NAME_RULE, is_name

PORT_HELP = "The edge port: SWITCH:NUMBER or its name"
_PLACE: Shape = {"switch": str, "port_no": int}
_MAX_DIGITS = 20  # of a parsed number: Python rejects thousands of digits


def vlan_text(key: str, text: str) -> str:
    """Return the id or the name of a VLAN; raise InvalidValueError, naming ``key``, for any other text."""
    if text.isascii() and text.isdecimal():
        if len(text) > _MAX_DIGITS or not 1 <= int(text) <= 4094:
            raise InvalidValueError(key, text, "is no VLAN id, 1 to 4094, and digits are not read as a name")
        return str(int(text))
    if not is_name(text):
        raise InvalidValueError(key, text, f"is neither a VLAN's id nor its name, which {NAME_RULE}")
    return text


def parse_port(key: str, text: str) -> tuple[str, int] | None:
    """Return (switch, port_no) of SWITCH:NUMBER, None for a port's name or SWITCH:NAME.

    Raise InvalidValueError for any other text.
    """
    switch, _, port_no = text.rpartition(":")
    if switch and port_no.isascii() and port_no.isdecimal() and len(port_no) <= _MAX_DIGITS:
        return switch, int(port_no)
    if not (is_name(text) or (is_name(switch) and is_name(port_no) and not port_no.isdecimal())):
        raise InvalidValueError(key, text, "is not SWITCH:PORT, such as s1:3, nor the name of a port, such as s1-3")
    return None


def _vlan(value: str | None) -> str | None:
    return None if value is None else vlan_text("vlan", value)


_VLAN_HELP = "The VLAN: its id or name."
VlanName = Annotated[str, typer.Argument(metavar="VLAN", help=_VLAN_HELP, callback=_vlan)]
OfVlan = Annotated[str, typer.Option("--vlan", metavar="VLAN", help=_VLAN_HELP, callback=_vlan)]
OnlyVlan = Annotated[str | None, typer.Option("--vlan", metavar="VLAN", help=_VLAN_HELP, callback=_vlan)]


class NameResolver:
    """Resolves names to ids; each is requested from the controller once.

    Methods raise RequestError for unknown names.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._vids: dict[str, int] = {}
        self._ports: dict[str, tuple[str, int]] = {}

    def vlan_vid(self, key: str, text: str) -> int:
        """Return the id of a VLAN."""
        text = vlan_text(key, text)
        if text.isdecimal():
            return int(text)
        if text not in self._vids:
            self._vids[text] = self._client.call(f"/v1/vlans/{text}", shape={"vlan_vid": int})["vlan_vid"]
        return self._vids[text]

    def port(self, key: str, text: str) -> tuple[str, int]:
        """Return (switch, port_no) of an edge port, given by number or name.

        Raises InvalidValueError, naming ``key``, unless exactly one port has the name.
        """
        numbered = parse_port(key, text)
        if numbered is not None:
            return numbered
        if text not in self._ports:
            switch, _, name = text.rpartition(":")
            if switch:
                rows = [self._client.call(f"/v1/ports/{switch}/{name}", shape=_PLACE)]
            else:
                rows = self._client.pages("/v1/ports", "ports", {"name": name})
            check(rows, [_PLACE], "ports")
            ports = [(row["switch"], row["port_no"]) for row in rows]
            if not ports:
                raise InvalidValueError(key, text, "is not the name of an edge port: dets port list shows those")
            if len(ports) > 1:
                locations = ", ".join(map(location, rows))
                raise InvalidValueError(key, text, f"is the name of {locations}: write SWITCH:PORT")
            self._ports[text] = ports[0]
        return self._ports[text]

    def vn(self, vlan: str, port: str) -> dict[str, Any]:
        """Return a VN in the form of request bodies."""
        switch, port_no = self.port("port", port)
        return {"vlan_vid": self.vlan_vid("vlan", vlan), "switch": switch, "port_no": port_no}

    def vn_path(self, vlan: str, port: str, key: str = "port") -> str:
        """Return the path of a VN's resource."""
        return f"/v1/vns/{vlan_text('vlan', vlan)}/{'/'.join(self.port_path_parts(key, port))}"

    def port_path_parts(self, key: str, text: str) -> tuple[str, str]:
        """Return the two path parts of an edge port."""
        switch, port_no = self.port(key, text)
        return quote(switch, safe="", errors="replace"), str(port_no)


def explanations(client: Client, vlan: str, sender: str, receiver: str | None) -> list[dict[str, Any]]:
    """Return the explanations of the limits of the pairs from ``sender`` (to ``receiver``, or to all)."""
    names = NameResolver(client)
    if receiver is not None:
        ends = (*names.port_path_parts("from", sender), *names.port_path_parts("to", receiver))
        path = f"/v1/pairs/{vlan_text('vlan', vlan)}/{'/'.join(ends)}/explanation"
        return [client.call(path, shape={"sentence": str})]
    sender_port = names.port("from", sender)
    shape = {"explanations": [{"sentence": str, "sender": _PLACE}]}
    pairs = client.call(f"{names.vn_path(vlan, sender, 'from')}/explanations", shape=shape)["explanations"]
    return [pair for pair in pairs if (pair["sender"]["switch"], pair["sender"]["port_no"]) == sender_port]
