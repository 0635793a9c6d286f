"""The second backend of the rules: records scalar operations as a graph, which a kernel evaluates for many lanes."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tropism.core.native.builder import INDEX, DType, Origin, Unsupported

MAX_NODES = 8_000
MAX_CELLS = 128  # elements of an array that is indexed at run time: each access reads all of them

# How often the value of a node changes: never, or with the rollout, the step or the environment.
CONSTANT, ROLLOUT, STEP, LANE = range(4)

FOLDED = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
COMPARED = {name: getattr(np, full) for name, full in (("eq", "equal"), ("le", "less_equal"), ("lt", "less"))}
TYPES = {"b1", "i1", "u1", "i2", "u2", "i4", "u4", "f4"}


class Node:
    """One scalar operation; `detail` is a constant's value, an input's position, or an array's number."""

    __slots__ = ("detail", "dtype", "level", "name", "number", "operands")

    def __init__(self, number: int, name: str, dtype: DType, operands: tuple["Node", ...], level: int, detail: Any):
        self.number = number
        self.name = name
        self.dtype = dtype
        self.operands = operands
        self.level = level
        self.detail = detail


class Cells:
    """An array of the program's own: its elements are nodes, and change as the program stores into it."""

    def __init__(self, dtype: DType, items: int):
        self.dtype = dtype
        self.nodes: list[Node | None] = [None] * items


class GraphBuilder:
    """A scalar is a node. Equal operations share one; those of whole-number constants are computed at once."""

    functions = frozenset({"exp", "log", "log1p", "tanh", "erf_inv", "logistic", "expm1"})

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.origins: dict[Any, Origin] = {}
        self.batch_lane: Node | None = None
        self._known: dict[Any, Node] = {}

    def input(self, level: int, position: int, dtype: DType) -> Node:
        return self._node("input", dtype, (), level, position)

    def _node(
        self, name: str, dtype: DType, operands: tuple[Node, ...], level: int = CONSTANT, detail: Any = None
    ) -> Node:
        if f"{dtype.kind}{dtype.itemsize}" not in TYPES:
            raise Unsupported("dtype", f"{dtype.name} is not fused")
        key = name, dtype, level, detail, *(node.number for node in operands)
        if key not in self._known:
            if len(self.nodes) == MAX_NODES:
                raise Unsupported("program", f"it takes more than {MAX_NODES:,} operations")
            level = max([level, *(node.level for node in operands)])
            self._known[key] = Node(len(self.nodes), name, dtype, operands, level, detail)
            self.nodes.append(self._known[key])
        return self._known[key]

    def constant(self, value: Any, dtype: DType) -> Node:
        dtype = _narrow(dtype)
        if dtype.kind == "f":
            bits = np.asarray(value, dtype).view(np.dtype(f"u{dtype.itemsize}"))
            return self._node("constant", dtype, (), CONSTANT, int(bits))  # -0.0 is not 0.0
        wrapped = int(value) if dtype.kind == "b" else int(value) & (2 ** (8 * dtype.itemsize) - 1)
        return self._node("constant", dtype, (), CONSTANT, wrapped)

    def op(self, name: str, dtype: DType, *operands: Node) -> Node:
        dtype = _narrow(dtype)
        if name in ("clz", "popcount") and dtype != np.dtype(np.int32):
            return self._count_bits(name, dtype, *operands)
        if dtype.kind in "iu" and name in FOLDED and _are_constant(operands):
            with np.errstate(over="ignore"):
                return self.constant(FOLDED[name](*map(constant_value, operands)), dtype)
        if dtype.kind != "f" and name in ("add", "or", "xor"):
            for zero, other in (operands, operands[::-1]):
                if zero.name == "constant" and zero.detail == 0:
                    return other
        return self._node(name, dtype, operands)

    def _count_bits(self, name: str, dtype: DType, x: Node) -> Node:
        """Triton counts the bits of int32 only."""
        unsigned, word, wide = np.dtype(f"u{dtype.itemsize}"), np.dtype(np.uint32), np.dtype(np.int32)
        bits = self.convert(self.bitcast(x, dtype, unsigned), unsigned, word)
        extra = self.constant(32 - 8 * dtype.itemsize if name == "clz" else 0, wide)
        return self.convert(
            self.op("sub", wide, self.op(name, wide, self.bitcast(bits, word, wide)), extra), wide, dtype
        )

    def compare(self, direction: str, dtype: DType, x: Node, y: Node) -> Node:
        if dtype.kind in "iu" and direction in COMPARED and _are_constant((x, y)):
            return self.constant(COMPARED[direction](constant_value(x), constant_value(y)), np.dtype(bool))
        return self._node(direction, np.dtype(bool), (x, y))

    def select(self, condition: Node, dtype: DType, x: Node, y: Node) -> Node:
        if x is y or condition.name == "constant":
            return x if x is y or condition.detail else y
        return self._node("select", _narrow(dtype), (condition, x, y))

    def convert(self, x: Node, source: DType, target: DType) -> Node:
        if target == INDEX and source == np.dtype(np.uint32):  # an index of 32 bits keeps its order
            x = self.op("min", source, x, self.constant(np.iinfo(np.int32).max, source))
        target = _narrow(target)
        if target == x.dtype:
            return x
        if x.dtype.kind != "f" and target.kind in "iu" and x.name == "constant":
            return self.constant(constant_value(x), target)
        if target.kind == "b":
            return self.compare("ne", x.dtype, x, self.constant(0, x.dtype))
        if x.dtype.kind == "f" and target.itemsize < 4:
            limits, wide = np.iinfo(target), np.dtype(np.int32)
            x = self.op("max", wide, self.convert(x, x.dtype, wide), self.constant(limits.min, wide))
            x = self.op("min", wide, x, self.constant(limits.max, wide))
        return self._node("convert", target, (x,))

    def bitcast(self, x: Node, source: DType, target: DType) -> Node:
        return x if source == target else self._node("bitcast", _narrow(target), (x,))

    def allocate(self, dtype: DType, items: int) -> Cells:
        return Cells(dtype, items)

    def load(self, pointer: Cells | int, dtype: DType, index: Node) -> Node:
        """An element of an array of the program, or of the params, which have a number."""
        if isinstance(pointer, int):
            return self._node("load", dtype, (index,), ROLLOUT, pointer)
        if index.name == "constant":
            return self._cell(pointer, constant_value(index))
        _check_cells(pointer)
        values = [self._cell(pointer, number) for number in range(len(pointer.nodes))]
        bit = 0
        while len(values) > 1:  # choose between pairs by one bit of the index after another
            mask = self.constant(1 << bit, INDEX)
            is_odd = self.compare("ne", INDEX, self.op("and", INDEX, index, mask), self.constant(0, INDEX))
            pairs = zip(values[::2], values[1::2], strict=False)
            last = values[-1:] if len(values) % 2 else []
            values = [self.select(is_odd, dtype, odd, even) for even, odd in pairs] + last
            bit += 1
        return values[0]

    def store(self, pointer: Cells, dtype: DType, index: Node, value: Node) -> None:
        if index.name == "constant":
            pointer.nodes[int(constant_value(index))] = value
            return
        _check_cells(pointer)
        for number in range(len(pointer.nodes)):
            here = self.compare("eq", INDEX, index, self.constant(number, INDEX))
            pointer.nodes[number] = self.select(here, dtype, value, self._cell(pointer, number))

    def _cell(self, pointer: Cells, number: Any) -> Node:
        node = pointer.nodes[int(number)]
        return self.constant(0, pointer.dtype) if node is None else node


def constant_value(node: Node) -> Any:
    bits = np.array(node.detail, np.dtype(f"u{node.dtype.itemsize}"))
    return bits.astype(bool)[()] if node.dtype.kind == "b" else bits.view(node.dtype)[()]


def sort_nodes(nodes: Iterable[Node]) -> list[Node]:
    """In the order in which they can be computed."""
    return sorted(nodes, key=lambda node: node.number)


def reachable(roots: Iterable[Node]) -> set[Node]:
    """The nodes that these depend on, themselves included."""
    found: set[Node] = set()
    pending = list(roots)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.operands
    return found


def _are_constant(nodes: Sequence[Node]) -> bool:
    return all(node.name == "constant" for node in nodes)


def _narrow(dtype: DType) -> DType:
    """Rules compute indices in 64 bits; in a kernel they have 32."""
    return np.dtype(np.int32) if dtype == INDEX else dtype


def _check_cells(cells: Cells) -> None:
    if len(cells.nodes) > MAX_CELLS:
        raise Unsupported("array", f"{len(cells.nodes):,} elements indexed at run time are more than {MAX_CELLS}")
