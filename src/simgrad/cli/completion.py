"""`simgrad --completion`: what a shell offers at Tab. It is written once; nothing is run later."""

import importlib
import shlex
import typing
from collections.abc import Mapping

from simgrad.cli.options import JSON, answers, options_of

_SCRIPT = """\
# Completion of simgrad for bash. Files are completed where nothing of simgrad fits.
_simgrad() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command= options=
    local each
    for each in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case $each in
            {commands}) command=$each; break ;;
        esac
    done
    case $command in
        "") options={every} ;;
{cases}
    esac
    case "$command $before" in
{values}
    esac
    COMPREPLY=($(compgen -W "$options" -- "$word"))
}}
complete -o default -F _simgrad simgrad
"""


def script(commands: Mapping[str, tuple[str, str, str]]) -> str:
    """Commands, their options, and the values of options that take one of a few."""
    cases, values = [], []
    for name, (module, function, _) in commands.items():
        command = getattr(importlib.import_module(f"simgrad.cli.{module}"), function)
        options = options_of(command)
        words = [*options, *([JSON] if answers(command) else []), "--help"]
        cases.append(f"        {name}) options={shlex.quote(' '.join(words))} ;;")
        for option, kind in options.items():
            if typing.get_origin(kind) is typing.Literal:
                choices = " ".join(map(str, typing.get_args(kind)))
                values.append(f'        "{name} {option}") options={shlex.quote(choices)} ;;')
    return _SCRIPT.format(
        commands="|".join(commands),
        every=shlex.quote(" ".join([*commands, "--with", "--help", "--version"])),
        cases="\n".join(cases),
        values="\n".join(values),
    )
