"""Spaces of every kind."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from tropism.core.spaces import (
    Box,
    Dict,
    Discrete,
    Image,
    MultiBinary,
    MultiDiscrete,
    Record,
    Space,
    Text,
    Tuple,
)


@dataclass(frozen=True)
class Order:
    dish: Literal["soup", "bread"]
    count: int
    table: Annotated[int, Discrete(4)] = 0
    note: str | None = None
    extras: tuple[str, ...] = field(default=())
    price: float = 1.0


SPACES: list[Space] = [
    Discrete(3, start=-1),
    MultiDiscrete([2, 3]),
    MultiBinary(2),
    Box(-1.0, 1.0, (2,)),
    Box(0, 9, (), np.int32),
    Image(2, 2),
    Text(5),
    Record(Order),
    Dict(a=Discrete(2), b=Box(0.0, 1.0)),
    Tuple((Discrete(2), Text(3))),
]


@dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0


@dataclass(frozen=True)
class Everything:
    flag: bool
    text: str
    whole: int
    real: float
    choice: Literal["a", "b", 3]
    maybe: int | None
    point: Point
    pair: tuple[int, str]
    anything: Any
    array: Annotated[Any, Box(0.0, 1.0, (2,))]
    points: tuple[Point, ...] = (Point(1.0),)
    names: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


EVERY = [
    *SPACES,
    Record(Everything),
    Box(-np.inf, np.inf, (2, 3)),
    Box(0.0, np.inf),
    Box([0.0, 1.0], [1.0, 2.0]),
    Box(0, 255, (2,), np.uint8),
    MultiDiscrete([[2, 3], [4, 5]], [[1, 1], [1, 1]]),
    MultiBinary((2, 2)),
    Text(4, 2),
    Dict(inner=Dict(record=Record(Everything))),
    Tuple(()),
]
