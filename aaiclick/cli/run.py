"""`aaiclick run`; the help of the command imports nothing that a job needs."""

from __future__ import annotations

import click

from aaiclick.cli.output_option import output_option


class RunCommand(click.Command):
    """Command with help that lists the parameters of the entry point as options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["aaiclick.args"] = list(args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        parsed, _, _ = self.make_parser(ctx).parse_args(list(ctx.meta.get("aaiclick.args", [])))
        entrypoint = parsed.get("entrypoint")
        if not isinstance(entrypoint, str) or entrypoint.startswith("-"):
            return
        from aaiclick.cli.job_arguments import write_parameters  # slow import

        write_parameters(formatter, entrypoint, self._own_names())

    def _own_names(self) -> set[str]:
        return {option for parameter in self.params for option in parameter.opts} | {"--help"}


@click.command(cls=RunCommand, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("entrypoint", metavar="ENTRYPOINT [--PARAMETER VALUE]...")
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="An argument; VALUE is JSON or plain text.")
@click.option("--name", default=None, help="Name of the job [default: the function's].")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the job has finished.")
@click.option("--debug", is_flag=True, help="Run the tasks in this process, one at a time: breakpoint() works.")
@output_option
@click.pass_context
def run(
    context: click.Context, entrypoint: str, pairs: tuple[str, ...], name: str | None, wait: bool, debug: bool,
    output: str,
) -> int:  # fmt: skip
    """Run a job: ENTRYPOINT is package.module.function, a @job, a @task or a plain function.

    Its parameters are options: --day 2026-01-01. 'aaiclick run ENTRYPOINT --help' lists them. Exit code 1 if the job
    fails.

    \b
    aaiclick run shop.revenue
    aaiclick run shop.nightly --day 2026-01-01 -o json
    """
    if entrypoint.startswith("-"):
        raise click.UsageError(f"No such option: {entrypoint}. Parameters of the job follow its entry point.")
    from aaiclick.cli.run_job import run_job  # slow import

    return run_job(entrypoint, pairs, context.args, name, wait, debug, output)
