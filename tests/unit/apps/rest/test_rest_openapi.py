"""The description of the interface: its examples work, and answers have no member that it does not name."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import jsonschema
import pytest
from support.rest_in_process import VN, Desk

from apps.cli.reference.rest import description
from controller.config.config_diff import ConfigChange
from controller.config.config_summary import ConfigDiff

DOCUMENT = description()
OPERATIONS = [(path, method) for path, item in DOCUMENT["paths"].items() for method in item]
CHANGES = [(path, method) for path, method in OPERATIONS if method != "get"]


def closed(document: Any) -> Any:
    """The schemas of the description, so that a member that is not described is an error."""
    schemas = copy.deepcopy(document["components"]["schemas"])
    for schema in schemas.values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return {"schemas": schemas}


def example_of(body: dict[str, Any]) -> Any:
    schema = body["content"]["application/json"]["schema"]
    return DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["example"]


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    desk = Desk()
    desk.connect()
    desk.talk(1, 2)
    desk.run([50e6], [0.0], 1)
    desk.patch(VN, {"receive_limit_bps": 20_000_000})
    monkeypatch.setattr(
        desk.service,
        "reload",
        lambda dry_run: ConfigDiff([ConfigChange("log_level", "info", "debug")], ["log_level debug, was info"]),
    )
    return desk


@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=lambda value: str(value))
def test_the_examples_are_requests_that_work(desk: Desk, path: str, method: str) -> None:
    operation = DOCUMENT["paths"][path][method]
    parameters = operation.get("parameters", [])
    url, headers = path, {}
    for one in parameters:
        if one["in"] == "path":
            url = url.replace(f"{{{one['name']}}}", str(one["example"]))
        if one["in"] == "header":
            headers[one["name"]] = one["example"]
    body = None
    if "requestBody" in operation:
        body = example_of(operation["requestBody"])
    queries = [{one["name"]: one["example"]} for one in parameters if one["in"] == "query" and "example" in one]
    if path == "/v1/loop":
        return  # there is no loop without switches: tests/wire asks for it
    for query in queries or [{}]:
        if path == "/v1/stream":
            query = {"count": 1} | query
        answer = desk.client.open(url, method=method.upper(), query_string=query, json=body, headers=headers)
        assert answer.status_code == 200, (query, answer.text)
        (kind, described), *more = operation["responses"]["200"]["content"].items()
        assert (answer.content_type.partition(";")[0], more) == (kind.partition(";")[0], [])
        if kind == "application/json":
            schema = jsonschema.Draft202012Validator({**described["schema"], "components": closed(DOCUMENT)})
            value = json.loads(answer.text)
            schema.validate(value)
            if path != "/v1/openapi.json":  # others have no schema that accepts just anything
                del value[next(iter(value))]
                assert not schema.is_valid(value)


def test_a_refusal_is_as_described(desk: Desk) -> None:
    answer = desk.client.get("/v1/vlans/99")
    described = DOCUMENT["paths"]["/v1/vlans/{vlan_vid}"]["get"]["responses"]["404"]["content"]
    assert list(described) == [answer.mimetype]
    schema = {**described[answer.mimetype]["schema"], "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(schema).validate(json.loads(answer.text))
    assert not jsonschema.Draft202012Validator(schema).is_valid({})


def test_operations_have_names_for_clients() -> None:
    names = [DOCUMENT["paths"][path][method]["operationId"] for path, method in OPERATIONS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z]+([A-Z][a-z]+)+", name) for name in names), names
    assert {"changeVn", "listVns", "getVn", "changeLimits", "resetOverrides", "listPairs"} <= set(names)


@pytest.mark.parametrize(("path", "method"), CHANGES, ids=lambda value: str(value))
def test_if_match_is_required_where_a_change_without_it_is_428(desk: Desk, path: str, method: str) -> None:
    operation = DOCUMENT["paths"][path][method]
    headers = [one for one in operation.get("parameters", []) if one["in"] == "header"]
    if not headers:
        return
    parts = {one["name"]: str(one["example"]) for one in operation["parameters"] if one["in"] == "path"}
    body = example_of(operation["requestBody"]) if "requestBody" in operation else None
    answer = desk.client.open(path.format(**parts), method=method.upper(), json=body)
    assert (answer.status_code == 428) == headers[0].get("required", False), answer.text


@pytest.mark.parametrize("text", ["20000000.0", "2e7", "20000000.000", "2.0E+7"])
def test_a_number_without_a_fraction_is_an_integer(desk: Desk, text: str) -> None:
    body = f'{{"receive_limit_bps": {text}}}'
    kind = "application/json"
    assert desk.client.patch(VN, data=body, content_type=kind).json["receive_limit_bps"] == 20_000_000
    many = f'{{"limits": [{{"vlan_vid": 10.0, "switch": "s1", "port_no": 1.0, "receive_limit_bps": {text}}}]}}'
    assert desk.client.post("/v1/limits", data=many, content_type=kind).status_code == 200
    for bad in ("20000000.5", "2e400", "NaN", "1e16"):
        refused = desk.client.patch(VN, data=body.replace(text, bad), content_type=kind)
        assert refused.status_code == 422, bad


@pytest.mark.parametrize(("item", "accepted"), [("s1", True), ("s 1", False), ("s/1", False), ("", False)])
def test_the_schema_refuses_the_switches_that_the_server_refuses(desk: Desk, item: str, accepted: bool) -> None:
    body = {"limits": [{"vlan_vid": 10, "switch": item, "port_no": 1, "receive_limit_bps": 20_000_000}]}
    schema = {"$ref": "#/components/schemas/ManyLimits", "components": DOCUMENT["components"]}
    assert jsonschema.Draft202012Validator(schema).is_valid(body) == accepted
    assert (desk.client.post("/v1/limits", json=body).status_code == 200) == accepted


def test_the_pattern_of_cursors_is_that_of_those_made(desk: Desk) -> None:
    (pattern,) = {
        one["schema"]["pattern"]
        for path, method in OPERATIONS
        for one in DOCUMENT["paths"][path][method].get("parameters", [])
        if one["name"] == "cursor"
    }
    assert re.fullmatch(pattern, desk.get("/v1/vns?limit=1")["next"])
    for cursor in ("ä", "a b", "ab=c", "===", "[]"):
        assert re.fullmatch(pattern, cursor) is None
        assert desk.client.get("/v1/vns", query_string={"cursor": cursor}).status_code == 422


def test_openapi_3_0_says_the_same(desk: Desk) -> None:
    """Its schemas are of JSON Schema's draft 4, but for ``nullable``."""
    old = desk.get("/v1/openapi.json?version=3.0")
    assert (old["openapi"], desk.get("/v1/openapi.json?version=3.1")["openapi"][:4]) == ("3.0.3", "3.1.")
    assert desk.client.get("/v1/openapi.json?version=2.0").status_code == 422
    assert old["paths"].keys() == DOCUMENT["paths"].keys()
    assert not {'"null"', '"const"'} & set(re.findall('"(?:null|const)"', json.dumps(old)))
    fields = old["components"]["schemas"]["VnPatch"]["properties"]
    assert (fields["send_ceiling_bps"]["type"], fields["send_ceiling_bps"]["nullable"]) == ("integer", True)
    assert "nullable" not in fields["send_limit_bps"]
    for path, method in OPERATIONS:
        if "requestBody" in DOCUMENT["paths"][path][method]:
            new = DOCUMENT["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]
            example = example_of(DOCUMENT["paths"][path][method]["requestBody"])
            validator = jsonschema.Draft4Validator({**new, "components": old["components"]})
            validator.validate(example)
            assert not validator.is_valid({**example, "nothing": 1})
    vlan = {"$ref": "#/components/schemas/VlanPatch", "components": old["components"]}
    assert jsonschema.Draft4Validator(vlan).is_valid({"parameters": {"d": 1.5}})
    assert not jsonschema.Draft4Validator(vlan).is_valid({"parameters": {"d": 1}})  # more than 1, not from 1 on


def test_rates_do_not_fit_32_bits() -> None:
    fields = DOCUMENT["components"]["schemas"]
    assert fields["VnPatch"]["properties"]["send_limit_bps"]["format"] == "int64"
    assert fields["VnPatch"]["properties"]["receive_ceiling_bps"]["anyOf"][0]["format"] == "int64"
    assert fields["VnView"]["properties"]["receive_limit_bps"]["format"] == "int64"
    vid = fields["Import"]["properties"]["vlans"]["items"]["properties"]["vlan_vid"]
    assert "format" not in vid["anyOf"][0]


def test_every_operation_has_a_tag_and_schemes_that_exist() -> None:
    tags = {tag["name"] for tag in DOCUMENT["tags"]}
    schemes = DOCUMENT["components"]["securitySchemes"].keys()
    for path, method in OPERATIONS:
        operation = DOCUMENT["paths"][path][method]
        assert operation["tags"], path
        assert set(operation["tags"]) <= tags
        for needed in operation.get("security", DOCUMENT["security"]):
            assert needed.keys() <= schemes
    assert {name for one in DOCUMENT["security"] for name in one} == set(schemes)
