"""ConnectFour: drop discs into a 6 × 7 rack; the first to line up four wins."""

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, Bool, Int, Int8

from tropism.core.adapters.language import Language, normalize, parse_json
from tropism.core.environment import Environment, EnvState, Info, outcome
from tropism.core.params import EnvParams
from tropism.core.spaces import Box, Discrete
from tropism.drawing import canvas as draw
from tropism.errors import ValidationError
from tropism.wire.messages.connect_four import ConnectFourAction, ConnectFourObservation

ROWS, COLUMNS = 6, 7
DIRECTIONS = ((0, 1), (1, 0), (1, 1), (1, -1))
MAX_DEPTH = 5  # plies; a search evaluates 7**depth boards at once
ILLEGAL = -100  # below the score of any move
CELL = 64  # pixels

Board = Int8[Array, "6 7"]  # 1 the first player (X), -1 the second (O), 0 empty; row 0 is the top


class ConnectFourParams(EnvParams):
    """No parameters can be changed."""


class ConnectFourState(EnvState):
    board: Board
    player: Int8[Array, ""]  # the player to move: 1 or -1
    winner: Int8[Array, ""]  # 0 if there is none


class ConnectFour(Environment):
    """The board is observed from the view of the player to move: 1 own disc, −1 opponent's, 0 empty; row 0 is the top.

    Reward: 1 for a win, −1 for a loss or an illegal move (which does not change the board), 0 otherwise.

    Ends: terminated by a win, a loss, a full board or an illegal move.

    The `opponent` moves in the same step: "random" plays any open column; "minimax(3)" searches three plies
    ahead and picks at random among equally good columns. Against both, the agent is X and moves first. With "self" the
    players alternate, and the reward is that of the player who has just moved.
    """

    opponent: str = eqx.field(static=True)

    def __init__(self, opponent: Any = "random"):
        _search_depth(opponent)
        self.opponent = opponent

    def default_params(self) -> ConnectFourParams:
        return ConnectFourParams()

    def reset(self, key: Any, params: Any) -> tuple[Array, ConnectFourState]:
        state = ConnectFourState(
            time=jnp.zeros((), jnp.int32),
            board=jnp.zeros((ROWS, COLUMNS), jnp.int8),
            player=jnp.ones((), jnp.int8),
            winner=jnp.zeros((), jnp.int8),
        )
        return self.observation(state), state

    def step(
        self, key: Any, state: Any, action: Any, params: Any
    ) -> tuple[Array, ConnectFourState, Array, Array, Info]:
        illegal = ~jnp.any(open_columns(state.board) & (jnp.arange(COLUMNS) == action))
        player, board = state.player, drop(state.board, action, state.player)
        won = has_four(board == player)
        lost = jnp.zeros((), bool)
        if self.opponent == "self":
            to_move = -player
        else:
            over = illegal | won
            board = jnp.where(over, board, self._opponent_move(key, board, -player))
            lost = ~over & has_four(board == -player)
            to_move = player
        winner = player * (won.astype(jnp.int8) - lost.astype(jnp.int8))
        state = ConnectFourState(state.time + 1, board, to_move, winner)
        reward = won.astype(jnp.float32) - (illegal | lost).astype(jnp.float32)
        terminated = illegal | won | lost | ~jnp.any(open_columns(board))
        done, info = outcome(terminated, jnp.zeros((), bool), self.info(state, params))
        return self.observation(state), state, reward, done, info

    def _opponent_move(self, key: Any, board: Any, player: Any) -> Array:
        """The board after the opponent's move; unchanged if no column is open."""
        scores = move_scores(board, player, _search_depth(self.opponent))
        # Scores are integers, so a fraction only breaks ties.
        return drop(board, jnp.argmax(scores + random.uniform(key, (COLUMNS,))), player)

    def observation(self, state: Any) -> Board:
        return state.board * state.player

    def info(self, state: Any, params: Any) -> Info:
        return {"legal_actions": open_columns(state.board), "winner": state.winner}

    def observation_space(self, params: Any) -> Box:
        return Box(-1, 1, (ROWS, COLUMNS), jnp.int8)

    def action_space(self, params: Any) -> Discrete:
        return Discrete(COLUMNS)

    def render(self, state: Any, params: Any) -> Array:
        colors = jnp.array([draw.YELLOW, draw.WHITE, draw.RED])[state.board.astype(jnp.int32) + 1]
        canvas = draw.blank(ROWS * CELL, COLUMNS * CELL, draw.BLUE)
        x, y = draw.pixels(canvas)
        from_center = jnp.hypot(x % CELL - CELL / 2, y % CELL - CELL / 2)
        return draw.finish(draw.paint(canvas, from_center - 0.4 * CELL, draw.enlarge(colors, CELL)))

    @property
    def language(self) -> Language:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Language(
            clicks=(tuple(range(COLUMNS)),),
            action_type=ConnectFourAction,
            tool="drop_disc",
            observation_type=ConnectFourObservation,
            message=_message,
        )

    def describe(self, state: Any, obs: Any, params: Any) -> str:
        board, mark = np.asarray(state.board), {1: "X", -1: "O", 0: "."}
        rows = [" ".join(str(column) for column in range(COLUMNS))]
        rows += [" ".join(mark[int(disc)] for disc in row) for row in board]
        legal = ", ".join(str(column) for column in np.flatnonzero(board[0] == 0))
        verdict = f" {mark[int(state.winner)]} has won." if int(state.winner) else ""
        return (
            "Connect Four: drop discs into columns; four of yours in a line (across, down or diagonal) win.\n"
            f"You are {mark[int(state.player)]}, the other player is {mark[-int(state.player)]}.{verdict}\n"
            + "\n".join(rows)
            + f"\nAction: a column, such as 'column 3'. Legal columns: {legal or 'none'}."
        )

    def parse(self, text: str, params: Any) -> Any:
        match = re.fullmatch(r"column\s*(\d+)", normalize(text))
        data = match[1] if match else normalize(text)
        return parse_json(text, data, self.action_space(params), "a column from 0 to 6, such as 'column 3' or '3'")


def _message(obs: Any, info: Info) -> dict[str, Any]:
    """The fields of a ConnectFourObservation."""
    return {
        "board": np.asarray(obs).tolist(),
        "legal_actions": np.flatnonzero(info["legal_actions"]).tolist(),
        "winner": int(info["winner"]),
    }


def open_columns(board: Any) -> Bool[Array, "7"]:
    return board[0] == 0


def drop(board: Any, column: Any, player: Any) -> Board:
    """The board with one more disc; unchanged if the column is full or does not exist."""
    free_row = jnp.sum(board == 0, axis=0) - 1
    cell = (jnp.arange(ROWS)[:, None] == free_row) & (jnp.arange(COLUMNS) == column)
    return jnp.where(cell, player, board).astype(jnp.int8)


def has_four(discs: Any) -> Bool[Array, ""]:
    """Whether four of these discs are in a line."""
    padded = jnp.pad(discs, 3)

    def shift(down: int, right: int) -> Array:
        return padded[3 + down : 3 + down + ROWS, 3 + right : 3 + right + COLUMNS]

    lines = [discs & shift(r, c) & shift(2 * r, 2 * c) & shift(3 * r, 3 * c) for r, c in DIRECTIONS]
    return jnp.any(lines[0] | lines[1] | lines[2] | lines[3])


def move_scores(board: Any, player: Any, depth: int) -> Int[Array, "7"]:
    """The score of each column for `player` by a search of `depth` plies: higher for an earlier win,
    lower for an earlier loss, 0 if neither can be forced."""
    if depth == 0:
        return jnp.where(open_columns(board), 0, ILLEGAL)

    def score(column: Any) -> Any:
        after = drop(board, column, player)
        return jnp.where(has_four(after == player), depth, -_best_score(after, -player, depth - 1))

    return jnp.where(open_columns(board), jax.vmap(score)(jnp.arange(COLUMNS)), ILLEGAL)


def _best_score(board: Any, player: Any, depth: int) -> Any:
    if depth == 0:
        return 0
    return jnp.where(jnp.any(open_columns(board)), jnp.max(move_scores(board, player, depth)), 0)


def _search_depth(opponent: Any) -> int:
    """0 for an opponent that does not search."""
    if opponent in ("self", "random"):
        return 0
    match = re.fullmatch(r"minimax\((\d)\)", opponent) if isinstance(opponent, str) else None
    if match is None or not 1 <= int(match[1]) <= MAX_DEPTH:
        expected = f"'self', 'random' or 'minimax(depth)' with a depth of 1 to {MAX_DEPTH}"
        raise ValidationError("opponent", opponent, expected)
    return int(match[1])
