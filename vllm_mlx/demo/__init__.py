"""The built-in model: a small trained MiniMax-M2 checkpoint, made by scripts/train_demo.py."""

from pathlib import Path


def path() -> Path:
    """The model's folder."""
    return Path(__file__).resolve().parent
