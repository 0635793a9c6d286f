"""The traits of host environments."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Host:
    """Marks a host environment: Python state, plain calls, never compiled."""

    replayable: bool = True  # the same seed, options and actions give the same episode
    copyable: bool = False  # `save_state` and `load_state` copy a state that cannot be replayed
    seedable: bool = True  # a reset takes a seed
    reseedable: bool = True  # a fork can continue with another seed, from which the rest of the episode follows
    uses_keys: bool = True  # steps use their key; else they get 0
    complete_info: bool = False  # the info of a step is a new dict that includes the info of the state
    takes_episode_id: bool = False  # a reset takes the option "episode_id"
    blocking: bool = True  # a step may be slow, so a server runs it in a thread
    isolated: bool = False  # each episode has its own process already
    session_memory: int = 0  # bytes that an idle session takes in other processes; a server limits their sum
    interruptible: bool = False  # a state may be closed during a step


PURE = Host(blocking=False)  # what holds for every pure environment
