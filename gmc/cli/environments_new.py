"""The package that `gmc environments new` writes: one environment that works as it stands, and its test."""

from string import Template

from gmc.cli.scaffold import Scaffold
from gmc.environments.registry import GROUP, list_environments

ENVIRONMENT = Template('''\
"""$name: one line that says what answers the model."""

from gmc.environments.base import Environment, EnvironmentSettings, Episode
from pydantic import Field


class $cls(Environment):
    """Asks the model to check what it said, a few times, whatever that was. Replace it."""

    name = "$name"
    summary = "asks for a second look, as scaffolded"

    class Settings(EnvironmentSettings):
        """looks: see its description."""

        looks: int = Field(1, ge=1, description="how often the model is asked to look again")

    def reply(self, episode: Episode, text: str) -> str | None:
        """What the world answers to the model's last turn; None ends the episode."""
        if episode.model_turns > self.settings.looks:
            return None
        return "Check this, and answer again. " + episode.question
''')

TEST = Template("""\
from gmc.environments.base import ASSISTANT, Turn
from gmc.problems.base import Problem
from gmc.testing import check_environment

from $package.environment import $cls


def test_the_contract():
    check_environment($cls, {"looks": 2})


def test_one_second_look():
    environment = $cls()
    episode = environment.start(Problem("p", "What is 3 + 4?", "7"))
    episode.turns.append(Turn(ASSISTANT, "8"))
    assert environment.reply(episode, "8") == "Check this, and answer again. What is 3 + 4?"
    episode.turns.append(Turn(ASSISTANT, "7"))
    assert environment.reply(episode, "7") is None
""")

ENVIRONMENT_SCAFFOLD = Scaffold(
    kind="environment",
    group=GROUP,
    installed=list_environments,
    module="environment",
    source=ENVIRONMENT,
    test=TEST,
    title=Template("The environment $name"),
    commands=Template("gmc environments show $name\n    gmc train --environment $name"),
    check="check_environment",
    contract="gmc.environments.base.Environment",
)
