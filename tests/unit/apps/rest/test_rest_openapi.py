"""The description of the interface: its examples work, and answers have no member that it does not name."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest
from support.rest_in_process import VN, Desk

from apps.cli.reference.rest import description
from controller.config.config_diff import ConfigChange
from controller.config.config_summary import ConfigDiff

DOCUMENT = description()
OPERATIONS = [(path, method) for path, item in DOCUMENT["paths"].items() for method in item]


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
    desk.run([30e6], [0.0], 1)
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
            schema = {**described["schema"], "components": closed(DOCUMENT)}
            jsonschema.Draft202012Validator(schema).validate(json.loads(answer.text))


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


def test_whoever_changes_something_can_see_how() -> None:
    bodies = [
        one["requestBody"] for item in DOCUMENT["paths"].values() for one in item.values() if "requestBody" in one
    ]
    assert len(bodies) == 5
    assert all(example_of(body) for body in bodies)
