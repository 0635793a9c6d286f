"""ConnectFour compared with a checker in plain Python, and its opponents against each other."""

import json
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import random

from tropism import Record, Session, make
from tropism.envs.connect_four import ConnectFour, ConnectFourState, has_four, move_scores
from tropism.errors import ValidationError
from tropism.wire.messages.connect_four import ConnectFourObservation

PARAMS = ConnectFour().default_params()
# Columns that fill all of the board but the last column, without four in a line.
DRAWN = [0, 1, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0, 2, 3, 2, 3, 2, 3, 3, 2, 3, 2, 3, 2, 4, 5, 4, 5, 4, 5, 5, 4, 5, 4, 5, 4]

step = jax.jit(lambda env, key, state, action: env.step(key, state, action, PARAMS), static_argnums=0)


def play(opponent: str, columns: list[int], seed: int = 0) -> list[Any]:
    """Every step of a game, up to its end."""
    env, steps = ConnectFour(opponent), []
    _, state = env.reset(random.key(0), PARAMS)
    for turn, column in enumerate(columns):
        steps.append(step(env, random.fold_in(random.key(seed), turn), state, column))
        state = steps[-1][1]
        if steps[-1][3]:
            break
    return steps


def state_of(rows: str, player: int) -> ConnectFourState:
    """A position from its lowest rows, X and O."""
    drawn = [[{"X": 1, "O": -1, ".": 0}[mark] for mark in row] for row in rows.split()]
    board = np.zeros((6, 7), np.int8)
    board[6 - len(drawn) :] = drawn
    _, state = ConnectFour().reset(random.key(0), PARAMS)
    return replace(state, board=jnp.asarray(board), player=jnp.int8(player))


def has_line(board: Any, player: int) -> bool:
    """Whether there are four in a line, checked cell by cell."""
    cells = {(int(row), int(col)) for row, col in np.argwhere(np.asarray(board) == player)}
    ways = [(0, 1), (1, 0), (1, 1), (-1, 1)]
    return any(all((r + k * a, c + k * b) in cells for k in range(4)) for r, c in cells for a, b in ways)


@given(st.lists(st.lists(st.sampled_from([True, False]), min_size=7, max_size=7), min_size=6, max_size=6))
def test_four_in_a_line_is_found_exactly_where_there_is_one(rows: list[list[bool]]):
    discs = np.array(rows)
    assert bool(jax.jit(has_four)(discs)) == has_line(discs, 1)


def test_each_of_the_69_lines_wins_and_no_three_of_it_do():
    lines = []
    for row, col, down, right in np.ndindex(6, 7, 2, 3):
        cells = [(row + k * down, col + k * (right - 1)) for k in range(4)]
        if (down, right) in ((0, 2), (1, 0), (1, 1), (1, 2)) and all(r < 6 and 0 <= c < 7 for r, c in cells):
            lines.append(cells)
    assert len(lines) == 69
    boards = np.zeros((69, 5, 6, 7), bool)
    for board, cells in zip(boards, lines, strict=True):
        for left_out in range(5):
            for k, cell in enumerate(cells):
                board[left_out][cell] = k != left_out
    found = np.asarray(jax.vmap(jax.vmap(has_four))(boards))
    assert found[:, 4].all()
    assert not found[:, :4].any()


@given(st.lists(st.integers(0, 6), max_size=60))
def test_a_self_play_game_agrees_with_plain_python(columns: list[int]):
    board, player = np.zeros((6, 7), int), 1
    for column, (obs, state, reward, done, info) in zip(columns, play("self", columns), strict=False):
        free = np.flatnonzero(board[:, column] == 0)
        if len(free):
            board[free[-1], column] = player
        won = has_line(board, player)
        assert np.array_equal(state.board, board)
        assert np.array_equal(obs, board * -player)
        assert float(reward) == (-1.0 if not len(free) else 1.0 if won else 0.0)
        assert bool(done) == bool(info["terminated"]) == (won or not len(free) or (board != 0).all())
        assert int(info["winner"]) == int(state.winner) == (player if won else 0)
        assert np.array_equal(info["legal_actions"], board[0] == 0)
        assert not info["truncated"]
        player = -player


def test_a_full_board_without_a_line_is_a_draw():
    steps = play("self", [*DRAWN, *[6] * 6])
    assert len(steps) == 42
    assert steps[-1][3]
    assert not np.asarray(steps[-1][4]["legal_actions"]).any()
    assert [float(entry[2]) for entry in steps] == [0.0] * 42
    assert int(steps[-1][4]["winner"]) == 0


@pytest.mark.parametrize("column", [7, -1, 0])
def test_an_illegal_move_loses_and_changes_nothing(column: int):
    full = state_of("OX..... XO..... OX..... XO..... OX..... XO.....", 1)
    for opponent in ("self", "random", "minimax(1)"):
        _, state, reward, done, info = step(ConnectFour(opponent), random.key(0), full, column)
        assert float(reward) == -1.0
        assert done
        assert info["terminated"]
        assert int(info["winner"]) == 0
        assert np.array_equal(state.board, full.board)


def test_opponents_move_once_and_the_agent_stays_x():
    for opponent in ("random", "minimax(2)"):
        for entry in play(opponent, [3, 2, 4, 1, 5]):
            board = np.asarray(entry[1].board)
            if not entry[3]:
                assert (board == 1).sum() == (board == -1).sum()
                assert np.array_equal(entry[0], board)


def test_the_agent_loses_when_the_opponent_wins():
    about_to_lose = state_of("X...... X...... OOO.X.X", 1)
    _, _, reward, done, info = step(ConnectFour("minimax(1)"), random.key(0), about_to_lose, 6)
    assert float(reward) == -1.0
    assert done
    assert int(info["winner"]) == -1


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_minimax_takes_a_win_at_once_and_blocks_a_loss(depth: int):
    scores = jax.jit(move_scores, static_argnums=2)
    both = state_of("OOO.... XXX....", 1)
    assert int(jnp.argmax(scores(both.board, 1, depth))) == 3
    assert int(scores(both.board, 1, depth)[3]) == depth
    threat = state_of(".O..... .XXX...", -1)
    blocked = np.asarray(scores(threat.board, -1, depth))
    assert (blocked < 0).all(), "an open three cannot be held"
    closed = state_of("OO..... OXXX...", -1)
    values = np.asarray(scores(closed.board, -1, depth))
    assert values.argmax() == 4
    assert (np.delete(values, 4) < values[4]).all()


def test_minimax_scores_are_those_of_plain_recursion():
    def best(board: Any, player: int, depth: int) -> list[int]:
        values = []
        for column in range(7):
            free = np.flatnonzero(board[:, column] == 0)
            if not len(free):
                values.append(-100)
                continue
            after = board.copy()
            after[free[-1], column] = player
            if has_line(after, player):
                values.append(depth)
            elif depth == 1 or (after != 0).all():
                values.append(0)
            else:
                values.append(-max(best(after, -player, depth - 1)))
        return values

    scores = jax.jit(move_scores, static_argnums=2)
    rng, decided = np.random.default_rng(0), 0
    openings = [[int(column) for column in rng.integers(0, 7, length)] for length in range(8, 32, 2)]
    for opening in [*openings, [*DRAWN, 6, 6, 6, 6]]:
        state = play("self", opening)[-1][1]
        expected = best(np.asarray(state.board), int(state.player), 3)
        decided += any(value not in (0, -100) for value in expected)
        assert np.asarray(scores(state.board, state.player, 3)).tolist() == expected
    assert decided > 5


def games(opponent: str, policy_depth: int, count: int) -> np.ndarray:
    """The final rewards of an agent that searches `policy_depth` plies."""
    env = ConnectFour(opponent)

    def turn(carry: Any, key: Any) -> tuple[Any, None]:
        state, total, over = carry
        choice, answer = random.split(key)
        noise = random.uniform(choice, (7,))
        action = jnp.argmax(move_scores(state.board, state.player, policy_depth) + noise)
        _, after, reward, done, _ = env.step(answer, state, action, PARAMS)
        state = jax.tree.map(lambda old, new: jnp.where(over, old, new), state, after)
        return (state, total + jnp.where(over, 0, reward), over | done), None

    def game(key: Any) -> Any:
        _, state = env.reset(key, PARAMS)
        start = (state, jnp.float32(0), jnp.bool_(False))
        (_, total, over), _ = jax.lax.scan(turn, start, random.split(key, 21))
        return jnp.where(over, total, jnp.nan)

    return np.asarray(jax.jit(jax.vmap(game))(random.split(random.key(7), count)))


@pytest.mark.slow
def test_random_play_loses_to_minimax_and_searching_beats_random():
    beaten = games("minimax(2)", 0, 100)
    assert np.isfinite(beaten).all()
    assert (beaten == -1).mean() > 0.9
    assert (games("random", 2, 100) == 1).mean() > 0.9


@pytest.mark.slow
def test_ties_are_broken_by_the_key():
    env = ConnectFour("minimax(1)")
    _, state = env.reset(random.key(0), PARAMS)
    keys = random.split(random.key(0), 200)
    _, after, *_ = jax.vmap(lambda key: env.step(key, state, 3, PARAMS))(keys)
    columns = np.argwhere(np.asarray(after.board) == -1)[:, 2]
    assert len(columns) == 200
    assert set(columns) == set(range(7))
    again = jax.vmap(lambda key: env.step(key, state, 3, PARAMS))(keys)[1]
    assert np.array_equal(after.board, again.board)


@pytest.mark.parametrize("opponent", ["minimax", "minimax(0)", "minimax(6)", "minimax(33)", "alphabeta", "", None, 3])
def test_an_unknown_opponent_is_rejected(opponent: Any):
    with pytest.raises(ValidationError, match="opponent"):
        ConnectFour(opponent)


def test_opponents_make_different_environments():
    assert ConnectFour() == ConnectFour("random") != ConnectFour("self")
    assert ConnectFour("minimax(2)") == ConnectFour(opponent="minimax(2)")


def test_the_reset_reports_the_same_info_as_a_step():
    env = ConnectFour()
    obs, state = env.reset(random.key(0), PARAMS)
    info = env.info(state, PARAMS)
    assert np.asarray(info["legal_actions"]).all()
    assert int(info["winner"]) == 0
    assert set(play("random", [0])[0][4]) == {"legal_actions", "winner", "terminated", "truncated"}
    assert np.asarray(obs) in env.observation_space(PARAMS)


def test_words_are_parsed_as_columns_and_the_board_is_described():
    env = ConnectFour("self")
    assert [env.parse(text, PARAMS) for text in ("column 3", "Column 0.", "6", " 2 ")] == [3, 0, 6, 2]
    for text in ("column 7", "-1", "the middle", "3.5", ""):
        with pytest.raises(ValidationError) as error:
            env.parse(text, PARAMS)
        assert error.value.value == text
        assert "0 to 6" in error.value.expected
    obs, state, *_ = play("self", [3, 3, 0])[-1]
    words = env.describe(jax.tree.map(np.asarray, state), np.asarray(obs), PARAMS)
    assert ". . . O . . .\nX . . X . . ." in words
    assert "You are O" in words
    assert "Legal columns: 0, 1, 2, 3, 4, 5, 6" in words
    obs, state, *_ = play("self", [0, 0, 0, 0, 0, 0])[-1]
    words = env.describe(jax.tree.map(np.asarray, state), np.asarray(obs), PARAMS)
    assert "Legal columns: 1, 2, 3, 4, 5, 6" in words


def test_the_message_has_the_fields_of_its_class():
    env, params = make("ConnectFour-v0", opponent="self")
    session = Session(env, params)
    session.reset(seed=0)
    ts = [session.step(column) for column in (3, 0, 3, 0, 3, 0)][-1]
    message = env.language.message
    assert message is not None
    fields = message(ts.obs, ts.info)
    assert fields["legal_actions"] == list(range(7))
    assert fields["winner"] == 0
    ts = session.step(3)
    fields = json.loads(json.dumps(message(ts.obs, ts.info)))
    assert ConnectFourObservation(**fields).winner == 1
    assert Record(ConnectFourObservation).coerce(fields).board[5] == [1, 0, 0, -1, 0, 0, 0]
