"""The physics and biology of smell: fields, winds, sensors, motions, rewards, strategies."""
