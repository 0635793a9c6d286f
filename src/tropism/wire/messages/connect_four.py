"""Messages of ConnectFour-v0."""

from dataclasses import dataclass
from typing import Literal

from tropism.wire.messages import Action, Observation


@dataclass(frozen=True, kw_only=True)
class ConnectFourAction(Action):
    """The column to drop a disc into, from 0."""

    column: int


@dataclass(frozen=True, kw_only=True)
class ConnectFourObservation(Observation, environment="ConnectFour-v0"):
    """`board` from the view of the player to move (1 own disc, -1 opponent's, 0 empty, top row first);
    `legal_actions` are the open columns; `winner` is 1 for X, -1 for O, 0 for none;
    `text` is the board as text."""

    board: list[list[int]]
    legal_actions: list[int]
    winner: Literal[-1, 0, 1] = 0
    text: str = ""
