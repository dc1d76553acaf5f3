"""One question, one response: the default."""

from gmc.environments.base import Environment, Episode


class Single(Environment):
    """One turn of the model to each problem; nothing ever answers it."""

    name = "single"
    summary = "one response to a problem, which nothing answers"
    replies = False

    def reply(self, episode: Episode, text: str) -> str | None:
        return None
