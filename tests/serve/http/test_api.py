"""The HTTP API: one session per caller, identified by a cookie or a header; and the documents."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from jsonschema import validate
from tests.serve.lab import SLEEP
from tests.serve.running import Running, labs, running, talk

IDS = ("GridWorld-v0", "CartPole-v1")


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(*IDS, own=labs()) as started:
        yield started


def act(action: int, **fields: Any) -> dict[str, Any]:
    return {"action": {"value": action}, **fields}


def test_ten_sessions_have_independent_episodes(server: Running):
    callers = [requests.Session() for _ in range(10)]
    for number, caller in enumerate(callers):
        reply = caller.post(f"{server.url}/envs/Lab-v0/reset", json={"seed": number})
        assert reply.json()["observation"]["value"] == [number, 0]
    for turn in range(1, 4):
        for number, caller in enumerate(callers):
            reply = None
            for _ in range(number):
                reply = caller.post(f"{server.url}/envs/Lab-v0/step", json=act(0))
            state = caller.get(f"{server.url}/envs/Lab-v0/state").json()
            assert state["step_count"] == turn * number
            assert reply is None or reply.json()["observation"]["value"] == [number, turn * number]
    for caller in callers:
        assert caller.post(f"{server.url}/envs/Lab-v0/close").json() == {"closed": True, "step_count": 0}
        caller.close()


def test_cookies_of_two_environments_do_not_mix(server: Running):
    with requests.Session() as caller:
        grid, lab = f"{server.url}/envs/GridWorld-v0", f"{server.url}/envs/Lab-v0"
        caller.post(f"{grid}/reset", json={"seed": 1})
        assert caller.get(f"{lab}/state").status_code == 409
        caller.post(f"{lab}/reset", json={"seed": 7})
        caller.post(f"{grid}/step", json=act(1))
        assert caller.get(f"{grid}/state").json()["step_count"] == 1
        assert caller.get(f"{lab}/state").json()["step_count"] == 0
        assert {cookie.path for cookie in caller.cookies} == {"/envs/GridWorld-v0", "/envs/Lab-v0"}
        assert all(cookie.has_nonstandard_attr("HttpOnly") for cookie in caller.cookies)


def test_the_default_environment_at_the_root_has_its_own_session(server: Running):
    with requests.Session() as caller:
        caller.post(f"{server.url}/envs/GridWorld-v0/reset", json={"seed": 1})
        caller.post(f"{server.url}/envs/GridWorld-v0/step", json=act(1))
        assert caller.post(f"{server.url}/reset", json={}).json()["environment"] == "GridWorld-v0"
        assert caller.get(f"{server.url}/state").json()["step_count"] == 0
        assert caller.get(f"{server.url}/envs/GridWorld-v0/state").json()["step_count"] == 1


def test_unrelated_cookies_are_ignored(server: Running):
    with requests.Session() as caller:
        caller.post(f"{server.url}/reset", json={"seed": 1})
        [mine] = [f"{cookie.name}={cookie.value}" for cookie in caller.cookies]
    headers = {"Cookie": f'theme={{"dark":[1]}}; =; "; {mine}; x=y'}
    assert requests.get(f"{server.url}/state", headers=headers, timeout=10).status_code == 200


def test_a_stale_cookie_is_ignored(server: Running):
    stale = {"Cookie": "tropism.GridWorld-v0=AAAAAAAAAAAAAAAAAAAAAA"}
    assert requests.post(f"{server.url}/step", json=act(1), headers=stale, timeout=10).status_code == 409
    first = requests.post(f"{server.url}/reset", json={}, headers=stale, timeout=10)
    assert first.status_code == 200
    assert first.json()["session_id"] != "AAAAAAAAAAAAAAAAAAAAAA"


def test_the_header_names_a_session_without_cookies(server: Running):
    id = requests.post(f"{server.url}/reset", timeout=10).headers["X-Session-Id"]
    assert len(id) >= 22  # 128 bits
    named = {"X-Session-Id": id}
    assert requests.post(f"{server.url}/step", json=act(1), headers=named, timeout=10).status_code == 200
    assert requests.get(f"{server.url}/state", headers=named, timeout=10).json()["step_count"] == 1


def test_the_error_for_an_unknown_session_header_suggests_leaving_it_out(server: Running):
    for name in ("reset", "step"):
        reply = requests.post(f"{server.url}/{name}", json={}, headers={"X-Session-Id": "gone"}, timeout=10)
        assert (reply.status_code, reply.json()["code"]) == (404, "SESSION_ERROR")
        assert "leave out the header X-Session-Id" in reply.json()["message"]


def test_a_repeated_request_id_does_not_step_again(server: Running):
    with requests.Session() as caller:
        caller.post(f"{server.url}/reset", json={"seed": 1})
        bodies = [caller.post(f"{server.url}/step", json=act(1, request_id="one")).text for _ in range(3)]
        assert len(set(bodies)) == 1
        assert caller.get(f"{server.url}/state").json()["step_count"] == 1
        assert caller.post(f"{server.url}/step", json=act(1, request_id="two")).text != bodies[0]
        refused = [caller.post(f"{server.url}/step", json=act(9, request_id="bad")).status_code for _ in range(2)]
        assert refused == [422, 422]
        assert caller.post(f"{server.url}/step", json=act(1, request_id="bad")).status_code == 200
        again = [caller.post(f"{server.url}/reset", json={"request_id": "r"}).text for _ in range(2)]
        assert again[0] == again[1]
        forks = [caller.post(f"{server.url}/fork", json={"request_id": "f"}).json()["session_id"] for _ in range(2)]
        assert forks[0] == forks[1]


def test_seeds_and_episode_ids(server: Running):
    with requests.Session() as one, requests.Session() as two:
        first = one.post(f"{server.url}/envs/CartPole-v1/reset", json={"seed": 4, "episode_id": "mine"}).json()
        second = two.post(f"{server.url}/envs/CartPole-v1/reset", json={"seed": 4}).json()
        assert first["observation"] == second["observation"]
        states = [each.get(f"{server.url}/envs/CartPole-v1/state").json()["episode_id"] for each in (one, two)]
        assert states[0] == "mine"
        assert len(states[1]) == 36
        huge = [one.post(f"{server.url}/envs/CartPole-v1/reset", json={"seed": 10**30}).json() for _ in range(2)]
        assert huge[0]["observation"] == huge[1]["observation"]
        heavy = {"seed": 4, "options": {"params": {"gravity": 20.0}}}
        assert (
            one.post(f"{server.url}/envs/CartPole-v1/reset", json=heavy).json()["observation"] == first["observation"]
        )
        steps = [each.post(f"{server.url}/envs/CartPole-v1/step", json=act(1)).json() for each in (one, two)]
        assert steps[0]["observation"]["value"] != steps[1]["observation"]["value"]


def test_options_may_be_fields_of_the_reset(server: Running):
    heavy = {"params": {"gravity": 20.0}}
    bodies = [{"seed": 4, "options": heavy}, {"seed": 4, **heavy}, {"seed": 4, **heavy, "options": heavy}]
    base, replies = f"{server.url}/envs/CartPole-v1", []
    for body in bodies:
        with requests.Session() as caller, server.ws("CartPole-v1") as connection:
            caller.post(f"{base}/reset", json=body | {"request_id": "first"}).raise_for_status()
            replies.append(caller.post(f"{base}/step", json=act(1)).json())
            assert caller.get(f"{base}/history").json()["options"] == heavy
            assert talk(connection, "reset", body)["type"] == "observation"
            replies.append({"metadata": None} | talk(connection, "step", {"value": 1})["data"])
    assert all(reply == replies[0] for reply in replies)


def test_every_unseeded_episode_can_be_replayed_from_its_history(server: Running):
    with requests.Session() as caller, requests.Session() as twin:
        base = f"{server.url}/envs/CartPole-v1"
        for _ in range(2):
            caller.post(f"{base}/reset")
            replies = [caller.post(f"{base}/step", json=act(action)).json() for action in (0, 1, 1)]
            history = caller.get(f"{base}/history").json()
            twin.post(f"{base}/reset", json={"seed": history["seed"], "options": history["options"]})
            repeated = [twin.post(f"{base}/step", json={"action": row["action"]}).json() for row in history["steps"]]
            assert repeated == replies
            assert caller.get(f"{base}/history?from=2").json()["steps"] == history["steps"][2:]


def test_snapshot_restore_and_fork(server: Running):
    with requests.Session() as caller:
        base = f"{server.url}/envs/CartPole-v1"

        def step(action: int, headers: Any = None) -> Any:
            return caller.post(f"{base}/step", json=act(action), headers=headers).json()

        caller.post(f"{base}/reset", json={"seed": 2})
        there = step(1)
        snapshot = caller.post(f"{base}/snapshot", json={}).json()
        assert snapshot["step_count"] == 1
        ahead = [step(0), step(0)]
        fork = caller.post(f"{base}/fork", json={}).json()
        twin = {"X-Session-Id": fork["session_id"]}
        assert fork["step_count"] == 3
        assert step(1, twin) == step(1)
        caller.post(f"{base}/reset", json={"seed": 99})  # another episode than that of the snapshot
        restored = caller.post(f"{base}/restore", json={"from": snapshot["snapshot_id"]}).json()
        assert restored["observation"] == there["observation"]
        assert [step(0), step(0)] == ahead
        history = caller.get(f"{base}/history").json()
        assert (history["seed"], [row["action"]["value"] for row in history["steps"]]) == (2, [1, 0, 0])
        earlier = caller.post(f"{base}/fork", json={"from": snapshot["snapshot_id"], "seed": 5}).json()
        assert earlier["step_count"] == 1
        second = caller.post(f"{base}/fork", json={"from": {"step": 1}}).json()
        assert step(0, {"X-Session-Id": second["session_id"]}) == ahead[0]
        assert caller.get(f"{base}/state", headers=twin).json()["step_count"] == 4
        assert len(caller.get(f"{base}/history", headers=twin).json()["steps"]) == 4


def test_a_fork_is_independent(server: Running):
    with requests.Session() as caller:
        base = f"{server.url}/envs/Lab-v0"
        caller.post(f"{base}/reset", json={"seed": 2})
        twin = {"X-Session-Id": caller.post(f"{base}/fork", json={}).json()["session_id"]}
        caller.post(f"{base}/step", json=act(0))
        assert caller.get(f"{base}/state", headers=twin).json()["step_count"] == 0
        caller.post(f"{base}/close")
        assert caller.post(f"{base}/step", json=act(0), headers=twin).json()["observation"]["value"] == [2, 1]


def test_actions_as_text(server: Running):
    with requests.Session() as caller:
        caller.post(f"{server.url}/reset", json={"seed": 1})
        first = caller.post(f"{server.url}/step", json={"action": {"text": "right"}}).json()
        assert first["observation"]["value"] == [0.0, 0.25]
        unclear = caller.post(f"{server.url}/step", json={"action": {"text": "fly"}}).json()
        assert (unclear["reward"], unclear["observation"]["value"]) == (0.0, [0.0, 0.25])
        assert "fly" in unclear["observation"]["error"]
        assert caller.get(f"{server.url}/state").json()["step_count"] == 1


def test_replies_match_the_schemas(server: Running):
    for id in (*IDS, "Lab-v0"):
        base = f"{server.url}/envs/{id}"
        schema = requests.get(f"{base}/schema", timeout=10).json()
        assert set(schema) == {"action", "observation", "state"}
        with requests.Session() as caller:
            reply = caller.post(f"{base}/reset", json={"seed": 1}).json()
            validate(reply["observation"], schema["observation"])
            reply = caller.post(f"{base}/step", json=act(0)).json()
            validate(reply["observation"], schema["observation"])
            validate(caller.get(f"{base}/state").json(), schema["state"])
            validate({"value": 0}, schema["action"])


def test_the_pages(server: Running):
    assert requests.get(f"{server.url}/health", timeout=10).json()["status"] == "healthy"
    metadata = requests.get(f"{server.url}/envs/CartPole-v1/metadata", timeout=10).json()
    assert (metadata["name"], metadata["pure"]) == ("CartPole-v1", True)
    assert metadata["description"]
    names = [row["name"] for row in requests.get(f"{server.url}/list_environments", timeout=10).json()]
    assert names == [*IDS, "Lab-v0", "Unwritable-v0", "Stuck-v0"]
    document = requests.get(f"{server.url}/envs/CartPole-v1/openapi.json", timeout=10).json()
    assert document["openapi"].startswith("3.1")
    assert {"/reset", "/step", "/state"} <= set(document["paths"])
    page = requests.get(f"{server.url}/docs", timeout=10)
    assert page.headers["content-type"].startswith("text/html")
    assert "<html" in page.text


def test_metrics_count_requests(server: Running):
    def count(name: str) -> float:
        lines = requests.get(f"{server.url}/metrics", timeout=10).text.splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    steps = 'tropism_requests_total{type="step"}'
    before = count(steps), count("tropism_sessions"), count("tropism_sessions_opened_total")
    with requests.Session() as caller:
        caller.post(f"{server.url}/reset")
        caller.post(f"{server.url}/step", json=act(1))
        after = count(steps), count("tropism_sessions"), count("tropism_sessions_opened_total")
        assert after == (before[0] + 1, before[1] + 1, before[2] + 1)
        caller.post(f"{server.url}/close")
        assert count("tropism_sessions") == before[1]


def test_a_timeout_is_ignored_if_the_step_cannot_be_rolled_back(server: Running):
    with server.http("Unwritable-v0") as caller:
        caller.post("/reset", json={"seed": 1})
        late = caller.post("/step", json=act(SLEEP, timeout_s=0.01))
        assert late.status_code == 200
        assert caller.get("/state").json()["step_count"] == 1
