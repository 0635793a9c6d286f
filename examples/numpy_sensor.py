"""A custom sensor in NumPy with state: it observes the change of concentration since the last step."""

import numpy as np
from gymnasium.spaces import Box

from tropism.gym import PlumeEnv


class Trend:
    observation_space = Box(-1.0, 1.0, (1,))

    def get_observation(self, env_state):
        concentration = env_state["concentration_field"].sample(*env_state["agent_state"].position)
        change = 0.0 if env_state["step_count"] == 0 else concentration - self.last
        self.last = concentration
        return np.array([change])


if __name__ == "__main__":
    env = PlumeEnv(sensor_model=Trend(), source_location=(40, 80), start_location=(60, 70))
    obs, info = env.reset(seed=0)
    action, done = 0, False
    while not done:
        action = action if obs[0] > 0 else (action + 1) % 4
        obs, reward, terminated, truncated, info = env.step(action)
        done = terminated or truncated
    print(f"reward {reward} after {info['step_count']} steps at {info['agent_xy']}")
