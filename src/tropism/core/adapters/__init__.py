"""Other ways to write an environment, and its words for language models."""
