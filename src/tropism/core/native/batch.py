"""The native form of a batch program: loops over its environments, on the same packed buffer."""

import jax
import jax.numpy as jnp

from tropism.core.compiled.batch import BatchProgram, BatchStep, Carry
from tropism.core.compiled.cost import member_shape
from tropism.core.native.jit import Library
from tropism.core.native.lanes import LaneLoop, number_leaves
from tropism.core.native.llvm import assemble_loops
from tropism.core.native.program import action_struct, digest
from tropism.core.spaces import Space

BOOL, KEY = jax.ShapeDtypeStruct((), bool), jax.ShapeDtypeStruct((2,), jnp.uint32)


class NativeBatchProgram:
    """`step` and `reset` of lanes, for any number of environments. Arrays are found through a table of pointers.

    `buffer` has the positions of the packed buffer's leaves in the table; then follow the actions, whether a lane
    restarts, the arguments of a reset, the params of the running episodes and those of the next ones.
    """

    def __init__(self, program: BatchProgram, space: Space):
        lane = jax.tree.map(member_shape, program.example)
        words = jax.ShapeDtypeStruct((program.params_layout.size,), jnp.uint32)
        params = jax.eval_shape(program.params_layout.unpack, words)
        self.action, reset = action_struct(space), (KEY, BOOL, BOOL)
        positions = number_leaves(lane, self.action, BOOL, reset, params, params)
        self.buffer, self.actions, self.restarts, self.reset_arguments, self.params, self.next_params = positions
        self.size = len(jax.tree.leaves(positions))
        carry: Carry = self.buffer[0]
        out: BatchStep = self.buffer[1]
        shared = jax.tree.leaves((self.params, self.next_params))
        arguments = (lane[0], self.action, params), (carry, self.actions, self.params)
        loops = {"advance": LaneLoop(program.advance, *arguments, (carry, out, self.restarts), shared)}
        if program.mode != "disabled":
            arguments = (lane[0].episode, params), (carry.episode, self.next_params)
            targets = out.obs, carry.episode, out.info
            loops["restart"] = LaneLoop(program.restart, *arguments, targets, shared, self.restarts)
        key, seeded, mask = self.reset_arguments
        arguments = (KEY, KEY, BOOL, params), (carry.episode.key, key, seeded, self.params)
        loops["begin"] = LaneLoop(program.begin, *arguments, (carry, BatchStep(*out[:5])), shared, mask)
        steps = [name for name in loops if name != "begin"]
        assembly = assemble_loops(
            {name: (loop.builder, loop.mask) for name, loop in loops.items()}, {"step": steps, "reset": ["begin"]}
        )
        self.reset_reason = ""
        self.cost = loops["advance"].builder.instructions
        library = Library(assembly, vectorize=True)
        self.step, self.reset = library.loop("step"), library.loop("reset")
        self.digest = digest(*(loop.text for loop in loops.values()), assembly)
