"""Looking at sessions: timelines, pictures and replays for the page."""
