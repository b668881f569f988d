"""Make the built-in model: data, training, export, evaluation.

pip install 'vllm-mlx[train]'
python scripts/train_demo.py             train (or go on), export into vllm_mlx/demo
python scripts/train_demo.py --export    export the latest checkpoint
python scripts/train_demo.py --evaluate  measure the shipped model through the server
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "vllm_mlx" / "demo"
# glibc's defaults give the memory of every step back to the system: half the time goes there.
MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000", "MALLOC_TOP_PAD_": "268435456"}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("build/demo"), help="checkpoints (training resumes there)")
    parser.add_argument("--output", type=Path, default=PACKAGE, help="where the model is exported")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=float, default=30.0, help="millions of tokens to train on")
    parser.add_argument("--workers", type=int, default=2, help="processes, one for each core")
    parser.add_argument("--export", action="store_true", help="only export the latest checkpoint")
    parser.add_argument("--evaluate", action="store_true", help="only measure the shipped model")
    return parser.parse_args()


def train(options: argparse.Namespace) -> None:
    if any(os.environ.get(name) != value for name, value in MALLOC.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **MALLOC})
    from demo.train import train as train_model

    train_model(options.folder, options.seed, int(options.tokens * 1e6), options.workers)


def main() -> None:
    options = arguments()
    if not options.evaluate:
        from demo.export import export

        if not options.export:
            train(options)
        export(options.folder, options.output)
    if not options.export:
        from demo.evaluate import evaluate

        evaluate(options.seed)


if __name__ == "__main__":
    main()
