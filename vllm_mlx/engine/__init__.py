"""The model in its own process: it knows tokens, never text."""
