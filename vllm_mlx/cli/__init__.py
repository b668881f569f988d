"""The command line. A module here that has a `command` is the subcommand of its name; nothing else registers it.

Modules whose names begin with `_` are shared by commands. At import a command loads only click and light
modules: `--help` must answer at once, so MLX, FastAPI and the hub are imported inside the functions that need them.
"""

from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules

import click

from vllm_mlx import __version__


class Commands(click.Group):
    """Subcommands found by file name: `my_tool.py` is `my-tool`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, sorted."""
        return sorted(module.name.replace("_", "-") for module in iter_modules(__path__) if module.name[0] != "_")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Loads the one module that is asked for."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command = import_module(f"{__name__}.{cmd_name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command; an unknown one fails with what there is."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            close = get_close_matches(args[0], names, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            ctx.fail(f"no command {args[0]!r}; {hint}there are: {', '.join(names)}")
        return super().resolve_command(ctx, args)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, package_name="vllm-mlx")
def main() -> None:
    """Serve MiniMax models on a Mac through MLX to OpenAI and Anthropic clients."""
