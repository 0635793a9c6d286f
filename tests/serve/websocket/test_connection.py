"""The WebSocket API: order of replies, resumed episodes, idempotent steps, batches."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
from tests.serve.replies import assert_error, talk_close
from tests.serve.running import Running, labs, running, talk

from tropism.serve.storage.working_memory import SessionLimits
from tropism.wire.arrays import decode_arrays
from tropism.wire.codec import pack, unpack


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("CartPole-v1", own=labs()) as started:
        yield started


def test_the_frames_are_those_of_openenv(server: Running):
    with server.ws("Lab-v0") as connection:
        assert talk(connection, "state") == {"type": "state", "data": {"episode_id": None, "step_count": 0}}
        first = talk(connection, "reset", {"seed": 4, "episode_id": "ep-1"})
        assert first["type"] == "observation"
        assert first["data"]["observation"] == {"value": [4.0, 0.0], "text": "Observation: [4. 0.]", "metadata": {}}
        assert (first["data"]["reward"], first["data"]["done"]) == (0.0, False)
        then = talk(connection, "step", {"value": 0})["data"]
        assert (then["reward"], then["done"], then["observation"]["value"]) == (1.0, False, [4.0, 1.0])
        assert talk(connection, "state")["data"] == {"episode_id": "ep-1", "step_count": 1}
        talk_close(connection)


def test_replies_are_in_order_and_have_the_id_of_their_frame(server: Running):
    with server.ws("Lab-v0") as connection:
        talk(connection, "reset", {"seed": 0})
        for number in range(20):
            action = 1 if number == 0 else 0  # the first one sleeps
            connection.send(json.dumps({"type": "step", "data": {"value": action}, "id": number}))
        replies = [json.loads(connection.recv(10)) for _ in range(20)]
        assert [reply["id"] for reply in replies] == list(range(20))
        assert [reply["data"]["observation"]["value"][1] for reply in replies] == list(range(1, 21))
        assert talk(connection, "state", id=None)["id"] is None


MISSHAPEN = {
    "type that is no string": {"type": 3},
    "no type": {},
    "unknown field": {"type": "state", "extra": 1},
    "data that is no object": {"type": "step", "data": 3},
    "request id that is no string": {"type": "step", "data": {"value": 0}, "request_id": 7},
}


@pytest.mark.parametrize("name", MISSHAPEN)
def test_an_error_has_the_id_of_its_frame(server: Running, name: str):
    with server.ws("Lab-v0") as connection:
        talk(connection, "reset", {"seed": 1})
        for id in (7, "seven", 7.5, True, None):
            connection.send(json.dumps(MISSHAPEN[name] | {"id": id}))
            reply = json.loads(connection.recv(10))
            assert_error(reply, "VALIDATION_ERROR")
            assert reply["id"] == id
            connection.send(pack(MISSHAPEN[name] | {"id": id}))
            assert json.loads(connection.recv(10))["id"] == id
        for frame in (MISSHAPEN[name], MISSHAPEN[name] | {"id": [7]}):
            connection.send(json.dumps(frame))
            assert "id" not in json.loads(connection.recv(10))


def test_a_session_is_resumed_after_its_socket_was_dropped(server: Running):
    with server.ws() as connection, server.ws() as other:
        id = talk(connection, "reset", {"seed": 3, "episode_id": "mine"})["data"]["session_id"]
        talk(other, "reset", {"seed": 3})
        for each in (connection, other):
            talk(each, "step", {"value": 1})
        connection.socket.close()
        with server.ws(query=f"?session_id={id}") as resumed:
            assert talk(resumed, "state")["data"] == {"episode_id": "mine", "step_count": 1}
            assert talk(resumed, "step", {"value": 0})["data"] == talk(other, "step", {"value": 0})["data"]


def test_a_closed_session_is_not_found(server: Running):
    with server.ws() as connection:
        id = talk(connection, "reset")["data"]["session_id"]
        talk_close(connection)
    with server.ws(query=f"?session_id={id}") as connection:
        assert_error(json.loads(connection.recv(10)), "SESSION_ERROR")


def test_a_repeated_request_id_does_not_step_again(server: Running):
    with server.ws() as connection:
        id = talk(connection, "reset", {"seed": 1})["data"]["session_id"]
        first = talk(connection, "step", {"value": 1}, request_id="a")
        assert talk(connection, "step", {"value": 1}, request_id="a") == first
        for kind, data in (("step", {"value": 0}), ("snapshot", {})):  # another request under the same id
            refused = talk(connection, kind, data, request_id="a")
            assert "request_id" in assert_error(refused, "STATE_ERROR")["message"]
        with server.ws(query=f"?session_id={id}") as resumed:
            assert talk(resumed, "step", {"value": 1}, request_id="a") == first
            assert talk(resumed, "state")["data"]["step_count"] == 1


def test_a_request_whose_reply_was_dropped_is_not_performed_again():
    with running(own=labs(), session_limits=SessionLimits(max_replies=2)) as server, server.ws("Lab-v0") as connection:
        talk(connection, "reset", {"seed": 1})
        last = [talk(connection, "step", {"value": 0}, request_id=f"r{number}") for number in range(5)][-1]
        for number in range(3):
            refused = talk(connection, "step", {"value": 0}, request_id=f"r{number}")
            assert "no longer stored" in assert_error(refused, "STATE_ERROR")["message"]
        assert talk(connection, "step", {"value": 0}, request_id="r4") == last
        assert talk(connection, "state")["data"]["step_count"] == 5
        talk(connection, "reset", {"seed": 1})  # clears request ids
        assert talk(connection, "step", {"value": 0}, request_id="r0")["type"] == "observation"


def test_snapshot_restore_fork_and_history(server: Running):
    with server.ws() as connection:
        talk(connection, "reset", {"seed": 6})
        snapshot = talk(connection, "snapshot")["data"]
        ahead = [talk(connection, "step", {"value": action})["data"] for action in (0, 1)]
        fork = talk(connection, "fork", {"from": snapshot["snapshot_id"]})["data"]
        with server.ws(query=f"?session_id={fork['session_id']}") as twin:
            assert [talk(twin, "step", {"value": action})["data"] for action in (0, 1)] == ahead
            assert talk(twin, "state")["data"]["episode_id"] != talk(connection, "state")["data"]["episode_id"]
        restored = talk(connection, "restore", {"from": snapshot["snapshot_id"]})
        assert restored["type"] == "observation"
        assert talk(connection, "state")["data"]["step_count"] == 0
        assert talk(connection, "step", {"value": 0})["data"] == ahead[0]
        history = talk(connection, "history", {"from": 0})["data"]
        assert (history["seed"], len(history["steps"])) == (6, 1)


def test_the_history_of_a_fork_contains_its_seed(server: Running):
    with server.ws("Lab-v0") as connection:
        talk(connection, "reset", {"seed": 6})
        fork = talk(connection, "fork", {"from": "now", "seed": 9})["data"]
        with server.ws("Lab-v0", query=f"?session_id={fork['session_id']}") as twin:
            history = talk(twin, "history")["data"]
            assert (history["seed"], history["steps"]) == (6, [{"seed": 9}])
            assert history["episode_id"] == fork["episode_id"] != talk(connection, "state")["data"]["episode_id"]


def test_the_history_of_a_very_long_episode_is_limited():
    with running(own=labs(), session_limits=SessionLimits(max_entries=4)) as server, server.ws("Lab-v0") as connection:
        talk(connection, "reset", {"seed": 1})
        for _ in range(3):
            talk(connection, "step", {"value": 0})
        assert talk(connection, "history")["data"]["whole"]
        talk(connection, "step", {"value": 0})
        history = talk(connection, "history")["data"]
        assert (len(history["steps"]), history["whole"]) == (3, False)
        for origin, steps in (({"step": 2}, 2), ("now", 4)):
            fork = talk(connection, "fork", {"from": origin, "seed": 5})["data"]
            with server.ws("Lab-v0", query=f"?session_id={fork['session_id']}") as twin:
                assert talk(twin, "step", {"value": 0})["data"]["observation"]["value"] == [1.0, steps + 1.0]
        late = talk(connection, "fork", {"from": {"step": 4}})
        assert "0 to 3" in late["data"]["message"]


def test_two_sockets_may_share_one_session(server: Running):
    with server.ws() as connection:
        id = talk(connection, "reset", {"seed": 1})["data"]["session_id"]
        with server.ws(query=f"?session_id={id}") as second:
            talk(second, "step", {"value": 1})
            assert talk(connection, "state")["data"]["step_count"] == 1
            talk_close(second)
        assert_error(talk(connection, "step", {"value": 1}), "SESSION_ERROR")
        assert talk(connection, "reset", {"seed": 1})["data"]["session_id"] != id


def test_a_batch_equals_sessions_in_json_and_msgpack(server: Running):
    count, seed = 3, 11
    with server.ws() as connection, server.ws() as packed:
        opened = talk(connection, "open", {"count": count, "seeds": seed})
        packed.send(pack({"type": "open", "data": {"count": count, "seeds": [11, 12, 13]}, "id": 5}))
        reply = unpack(packed.recv(30))  # pyright: ignore[reportArgumentType]
        assert (reply["type"], reply["id"]) == ("batch", 5)
        assert np.array_equal(decode_arrays(reply["data"])["observation"], opened["data"]["observation"])
        stepped = talk(connection, "step_batch", {"actions": [1, 0, 1]})["data"]
        packed.send(pack({"type": "step_batch", "data": {"actions": np.array([1, 0, 1])}}))
        arrays = decode_arrays(unpack(packed.recv(30))["data"])  # pyright: ignore[reportArgumentType]
        assert np.array_equal(arrays["observation"], np.asarray(stepped["observation"], np.float32))
    for number, action in enumerate((1, 0, 1)):
        with server.ws() as connection:
            first = talk(connection, "reset", {"seed": seed + number})["data"]["observation"]["value"]
            assert first == opened["data"]["observation"][number]
            then = talk(connection, "step", {"value": action})["data"]
            assert then["observation"]["value"] == stepped["observation"][number]
            assert then["reward"] == stepped["reward"][number]


BATCHES = {
    "wrong seeds": ("open", {"count": 2, "seeds": [1]}),
    "negative seeds": ("open", {"count": 2, "seeds": -1}),
    "unknown mode": ("open", {"count": 2, "mode": "sometimes"}),
    "unknown field": ("open", {"count": 2, "colour": 1}),
    "too few actions": ("step_batch", {"actions": [1]}),
    "bad action": ("step_batch", {"actions": [1, 7]}),
    "actions of objects": ("step_batch", {"actions": [{}, {}]}),
    "ragged actions": ("step_batch", {"actions": [[1], [1, 2]]}),
    "no actions": ("step_batch", {}),
    "dtype of objects": ("step_batch", {"actions": {"dtype": "|O", "shape": [2], "data": "x"}}),
    "shape that does not fit": ("step_batch", {"actions": {"dtype": "<i4", "shape": [2], "data": "x"}}),
    "bad mask": ("reset_batch", {"mask": [True]}),
}


@pytest.mark.parametrize("name", BATCHES)
def test_bad_batch_requests_do_not_affect_the_batch(server: Running, name: str):
    kind, data = BATCHES[name]
    with server.ws() as connection:
        first = talk(connection, "open", {"count": 2, "seeds": 1})["data"]
        assert_error(talk(connection, kind, data), "VALIDATION_ERROR")
        then = talk(connection, "step_batch", {"actions": [1, 1]})["data"]
        assert np.shape(then["observation"]) == np.shape(first["observation"])


def test_a_host_environment_has_no_batch(server: Running):
    with server.ws("Lab-v0") as connection:
        assert "one by one" in assert_error(talk(connection, "open", {"count": 2}), "VALIDATION_ERROR")["message"]
