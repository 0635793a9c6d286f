"""Inspection of sessions and recordings: timelines, pictures and replays for the page."""
