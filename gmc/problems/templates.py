"""Prompt templates, versioned by id: how a question is put to a model, and where its answer ends.

A template never changes once published; a better one gets a new id. Its stop strings belong to it, because a base model that
has seen examples goes on to write the next problem. The id stands in every shard and every result.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gmc.config.fields import EMBEDDED
from gmc.errors import UsageError, did_you_mean
from gmc.problems.arithmetic import PROMPT
from gmc.problems.chat import render_chat, render_reply
from gmc.problems.checks import normalize_question
from gmc.problems.shots import BOXED_SHOTS, MINERVA_SHOTS, Shot
from gmc.problems.tokens import chat_ids, plain_ids, text_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

INSTRUCTION = "Solve the problem step by step, and put the final answer in \\boxed{}."


@dataclass(frozen=True)
class Template:
    """A way to write the prompt for a question.

    template_id: its versioned name; stop: strings that end a response; write: question to text; chat: whether the model's own
    chat template is applied to that text. follow: what an environment answers to text, behind the response that it answers
    (a chat template writes its own turn).
    """

    template_id: str
    stop: tuple[str, ...]
    write: Callable[[str], str]
    chat: bool = False
    follow: Callable[[str], str] = lambda reply: f"\n\nProblem:\n{reply}\n\nSolution:\n"

    def render(self, question: str, tokenizer: "PreTrainedTokenizerBase") -> str:
        """The prompt as text. Raises `UsageError` when a chat template is wanted and the tokenizer has none that works."""
        text = self.write(question)
        if not self.chat:
            return text
        with self._named():
            return render_chat(text, question, tokenizer)

    def messages(self, question: str) -> list[dict[str, str]]:
        """The prompt as a conversation, before a chat template writes it."""
        return [{"role": "user", "content": self.write(question)}]

    def encode(self, prompt: str, tokenizer: "PreTrainedTokenizerBase", question: str = "") -> list[int]:
        """A rendered prompt as token ids, with the special tokens that the tokenizer puts before plain text.

        A chat template writes its own. Control tokens that the question spells are plain characters. Raises `UsageError` when
        the tokenizer cannot express a character of the prompt.
        """
        with self._named():
            return chat_ids(prompt, question, tokenizer) if self.chat else plain_ids(prompt, tokenizer)

    def reply_ids(
        self, reply: str, said: Sequence[int], tokenizer: "PreTrainedTokenizerBase", *, role: str, inline: bool
    ) -> list[int]:
        """What an environment answers as the token ids that follow the response `said`: never those of the response itself.

        role: of the turn under a chat template; inline: whether the reply stands right behind the response, as it is. Control
        tokens that a reply spells are plain characters. Raises `UsageError` as `encode`.
        """
        with self._named():
            if inline:
                return text_ids(reply, tokenizer)
            if not self.chat:
                return text_ids(self.follow(reply), tokenizer)
            ids = chat_ids(render_reply(reply, role, tokenizer), reply, tokenizer)
            # The end of the model's turn is there already where the model has sampled it.
            return ids[1:] if said and ids and ids[0] == said[-1] else ids

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except UsageError as error:
            raise UsageError(f"template {self.template_id}: {error}") from error.__cause__


def _with_shots(shots: tuple[Shot, ...], question: str) -> str:
    """Worked examples, then the question. An example that is the question itself is left out: it would show the answer."""
    asked = normalize_question(question)
    blocks = [
        f"Problem:\n{shot.problem}\n\nSolution:\n{shot.solution}" for shot in shots if normalize_question(shot.problem) != asked
    ]
    return "\n\n".join([*blocks, f"Problem:\n{question}\n\nSolution:\n"])


TEMPLATES = {
    template.template_id: template
    for template in (
        Template(
            "arithmetic-v1",
            (),
            lambda question: PROMPT.format(question=question),
            follow=lambda reply: "\n" + PROMPT.format(question=reply),
        ),
        Template("boxed-v1", ("\nProblem:",), lambda question: f"{INSTRUCTION}\n\nProblem:\n{question}\n\nSolution:\n"),
        Template("math-two-shot-v1", ("\nProblem:",), lambda question: _with_shots(BOXED_SHOTS, question)),
        Template(
            "minerva-four-shot-v1",
            ("I hope it is correct.", "\nProblem:"),
            lambda question: _with_shots(MINERVA_SHOTS, question),
        ),
        Template("chat-v1", (), lambda question: f"{question}\n\n{INSTRUCTION}", chat=True),
    )
}


def get_template(template_id: str) -> Template:
    """The template of this id; raises `UsageError` listing the ids when there is none."""
    template = TEMPLATES.get(template_id)
    if template is None:
        near = did_you_mean(template_id, TEMPLATES)
        raise UsageError(f"template {template_id!r}: no such template{near or ';'} there are {', '.join(TEMPLATES)}")
    return template


def default_template(source: str, model: str = "") -> str:
    """Id of the template used for a source of problems (as `load_problems` takes it) when no other is named.

    model: the model's source; the embedded one knows no other prompt than that of its arithmetic, and has no room for shots.
    """
    return "arithmetic-v1" if source.partition(":")[0] == "arithmetic" or model == EMBEDDED else "math-two-shot-v1"
