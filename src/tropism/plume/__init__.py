"""Odour plumes and their search: fields, winds, sensors, motions, rewards, strategies."""
