"""The route table is true: methods, request types and replies of every route, and the table in the documentation."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from docs.routes import table
from jsonschema import validate
from tests.serve.replies import assert_refused
from tests.serve.requests import act
from tests.serve.running import Running, running

from tropism.serve.http.messages import Route, Trait
from tropism.serve.http.openapi import document, json_schema
from tropism.serve.http.routes import ROUTES, find_route

ID = "GridWorld-v0"
VALID: dict[str, dict[str, Any]] = {  # by path, for requests with required fields
    "/step": act(1),
    "/agent/{agent_id}/step": act(1),
    "/sessions/{view}/picture": {"step": 0},
    "/sessions/{view}/fork": {"step": 0},
    "/recordings/{number}/picture": {"step": 0},
    "/recordings/{number}/fork": {"step": 0},
}
SERVE_PAGE = Path(__file__).parents[3] / "docs" / "serve.md"


def name(route: Route) -> str:
    return f"{route.method} {route.path}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(ID, record=tmp_path_factory.mktemp("recordings")) as started:
        yield started


@pytest.fixture
def caller(server: Running) -> Iterator[httpx.Client]:
    """A caller with a session that has a snapshot."""
    with server.http(ID) as client:
        client.post("/reset", json={"seed": 1})
        yield client


def path_of(route: Route, caller: httpx.Client) -> str:
    ids = caller.post("/reset", json={"seed": 1}).json()
    return route.path.format(view=ids["view"], agent_id=ids["agent_id"], number=0, file="app.js", path="a")


def send(route: Route, caller: httpx.Client, data: dict[str, Any]) -> httpx.Response:
    if Trait.ROOT in route.traits:
        caller.base_url = caller.base_url.copy_with(path="/")
    path = path_of(route, caller)
    return caller.get(path, params=data) if route.method == "GET" else caller.request(route.method, path, json=data)


@pytest.mark.parametrize("route", ROUTES, ids=name)
def test_replies_are_of_the_declared_type(server: Running, caller: httpx.Client, route: Route):
    data = VALID.get(route.path, {})
    if route.path == "/restore":
        data = {"from": caller.post("/snapshot", json={}).json()["snapshot_id"]}
        response = caller.post("/restore", json=data)
    else:
        response = send(route, caller, data)
    if route.path.startswith("/files"):  # tests/serve/session/test_files.py has an environment with files
        assert_refused(response, "STATE_ERROR")
        return
    assert response.status_code == 200, response.text
    if isinstance(route.reply, tuple):
        assert response.headers["content-type"].partition(";")[0] in route.reply
        return
    if route.traits & (Trait.ROOT | Trait.RPC):  # not in the document of an environment
        spaces = server.app.environments[ID].form.schema()
        schema = json_schema(route.reply, {name.title(): space for name, space in spaces.items()})
    else:
        operation = document(ROUTES, server.app.environments[ID], "")["paths"][route.path][route.method.lower()]
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    validate(response.json(), schema)
    declared = schema.get("items", schema).get("properties")
    reply = response.json()[0] if isinstance(response.json(), list) else response.json()
    assert declared is None or set(reply) - {"recording"} == set(declared)


@pytest.mark.parametrize("route", [route for route in ROUTES if route.request not in (None, bytes)], ids=name)
def test_requests_are_of_the_declared_type(caller: httpx.Client, route: Route):
    unknown = {**VALID.get(route.path, {}), "unknown_field": 1}
    assert_refused(send(route, caller, unknown), "VALIDATION_ERROR")


@pytest.mark.parametrize("route", ROUTES, ids=name)
def test_other_methods_are_refused_and_the_allowed_ones_listed(caller: httpx.Client, route: Route):
    if Trait.ROOT in route.traits:
        caller.base_url = caller.base_url.copy_with(path="/")
    wrong = caller.request("PATCH", path_of(route, caller))
    assert_refused(wrong, "METHOD_NOT_ALLOWED")
    assert wrong.headers["allow"] == ", ".join(other.method for other in ROUTES if other.path == route.path)


@pytest.mark.parametrize("path", ["", "/", "/step/", "/sessions//history", "/sessions/a/b/history", "/page/app.js"])
def test_paths_match_as_a_whole(caller: httpx.Client, path: str):
    assert_refused(caller.get(path), "NOT_FOUND")


def test_a_parameter_may_have_any_text(caller: httpx.Client):
    assert_refused(caller.get("/sessions/{view}/history"), "SESSION_ERROR")


def test_public_routes_need_no_token_and_others_do(tmp_path: Path):
    public = {route.path for route in ROUTES if Trait.PUBLIC in route.traits}
    agents = {f"/agent/{{agent_id}}/{name}" for name in ("step", "observation", "mcp")}  # the id is the credential
    assert public == {"/", "/docs", "/health", "/ready", "/page/{file}"} | agents
    with running(ID, record=tmp_path, tokens=("secret",)) as server, server.http() as stranger:
        for route in ROUTES:
            path = route.path.format(view="a", agent_id="a", number=0, file="app.js", path="a")
            status = stranger.request(
                route.method, path, json={"jsonrpc": "2.0", "method": "ping", "id": 1}
            ).status_code
            expected = 404 if route.path in agents else 200 if Trait.PUBLIC in route.traits else 401
            assert status == expected, path
            assert stranger.request(route.method, f"/envs/{ID}{path}").status_code == 401


def test_every_path_finds_its_route():
    for route in ROUTES:
        values = dict.fromkeys(re.findall(r"\{(\w+)\}", route.path), "7")
        assert find_route(route.method, route.path.format(**values), "") == (route, values)


def test_the_table_in_the_documentation_is_up_to_date():
    assert table() in SERVE_PAGE.read_text(), "run python docs/routes.py"
