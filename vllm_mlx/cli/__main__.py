"""`python -m vllm_mlx.cli`."""

from vllm_mlx.cli import main

main(prog_name="vllm-mlx")
