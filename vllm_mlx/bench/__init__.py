"""Measurements: of the engine beside raw mlx-lm, of any server, of agent sessions."""
