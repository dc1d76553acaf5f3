"""Options that several commands share, declared once."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gmc.config.flags import SETTING_OF

RUN_PANEL = "Run"
SETTINGS_PANEL = "Settings"

RunOption = Annotated[Path, typer.Option("--run", help="Run directory.", rich_help_panel=RUN_PANEL)]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with what the run holds.", rich_help_panel=RUN_PANEL)]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Delete the run directory and start anew.", rich_help_panel=RUN_PANEL)
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object on stdout and everything else on stderr.", rich_help_panel=RUN_PANEL),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print the resolved settings as TOML and exit.", rich_help_panel=RUN_PANEL)
]
RecipeOption = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        help="Recipe name or TOML file; an unknown name lists all.",
        show_default=False,
        rich_help_panel=SETTINGS_PANEL,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting by its dotted key, such as estimator.epsilon=0.4. May be repeated.",
        show_default=False,
        rich_help_panel=SETTINGS_PANEL,
    ),
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", help="Seed of problem order and sampling. (default: 0)", show_default=False)
]
ModelOption = Annotated[
    str | None, typer.Option("--model", help="'embedded', a folder or a hub id. (default: embedded)", show_default=False)
]
ProblemsOption = Annotated[
    str | None,
    typer.Option("--problems", help="'arithmetic', a file or a hub id. (default: arithmetic)", show_default=False),
]
QuestionFieldOption = Annotated[
    str | None, typer.Option("--question-field", help="Field of the question, if its name is unusual.", show_default=False)
]
AnswerFieldOption = Annotated[
    str | None, typer.Option("--answer-field", help="Field of the gold answer, if its name is unusual.", show_default=False)
]
EngineOption = Annotated[
    str | None, typer.Option("--engine", help="transformers or vllm. (default: transformers)", show_default=False)
]
PromptsOption = Annotated[int | None, typer.Option("--prompts", help="P, prompts a batch. (default: 8)", show_default=False)]
GroupSizeOption = Annotated[
    int | None, typer.Option("--group-size", help="G, responses a prompt. (default: 8)", show_default=False)
]
TemperatureOption = Annotated[
    float | None, typer.Option("--temperature", help="Sampling temperature. (default: 1.0)", show_default=False)
]
MaxTokensOption = Annotated[
    int | None,
    typer.Option("--max-tokens", help="Longest response. (default: 64 embedded, else 4096)", show_default=False),
]
LogprobsOption = Annotated[
    str | None,
    typer.Option("--logprobs", help="Behavior log-probs in ratios: trainer or engine. (default: trainer)", show_default=False),
]


def flags(context: typer.Context) -> dict[str, Any]:
    """The settings that a command's flags name, None where a flag was not given."""
    return {SETTING_OF[name]: value for name, value in context.params.items() if name in SETTING_OF}
