"""Serve MiniMax models on a Mac through MLX to OpenAI and Anthropic clients."""

__version__ = "0.1.0"
