"""The model that ships in the package: it loads like any other, is small, and its script makes a model from a seed."""

import random
import re
from pathlib import Path

import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase, Qwen3ForCausalLM

from gmc.embedded.corpus import Habits, habitual_solution, training_text
from gmc.embedded.pretrain import Schedule, pretrain
from gmc.models import embedded_model_path
from gmc.problems.arithmetic import PROMPT, arithmetic_problems, draw_chain, split_of, worked_problems, worked_solution


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(embedded_model_path())


@pytest.fixture(scope="module")
def network() -> Qwen3ForCausalLM:
    return AutoModelForCausalLM.from_pretrained(embedded_model_path(), dtype=torch.float32)


@pytest.mark.unit
def test_model_is_qwen3_and_at_most_four_megabytes(network: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerBase) -> None:
    assert isinstance(network, Qwen3ForCausalLM)
    assert sum(path.stat().st_size for path in embedded_model_path().glob("*.safetensors")) <= 4_000_000
    assert network.config.vocab_size == len(tokenizer)
    assert network.config.eos_token_id == network.generation_config.eos_token_id == tokenizer.eos_token_id
    assert tokenizer.pad_token_id is not None
    assert tokenizer.pad_token_id != tokenizer.eos_token_id


@pytest.mark.unit
def test_folder_holds_no_pickle_and_has_a_card() -> None:
    suffixes = {path.suffix for path in embedded_model_path().iterdir()}
    assert suffixes <= {".json", ".safetensors", ".md", ".jinja"}
    assert (embedded_model_path() / "README.md").is_file()


@pytest.mark.unit
def test_tokenizer_round_trips_problems_and_solutions(tokenizer: PreTrainedTokenizerBase) -> None:
    for worked in worked_problems("eval", 300):
        text = PROMPT.format(question=worked.problem.question) + worked.solution
        ids = tokenizer(text).input_ids
        assert tokenizer.decode(ids) == text
        assert max(ids) < len(tokenizer)


@pytest.mark.unit
@examples(200)
@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=60))
def test_tokenizer_round_trips_any_text(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    assert tokenizer.decode(tokenizer(text).input_ids) == text


@pytest.mark.unit
def test_prompt_and_solution_encode_apart_as_together(tokenizer: PreTrainedTokenizerBase) -> None:
    for worked in worked_problems("eval", 100):
        prompt = PROMPT.format(question=worked.problem.question)
        apart = tokenizer(prompt).input_ids + tokenizer(worked.solution).input_ids
        assert apart == tokenizer(prompt + worked.solution).input_ids


@pytest.mark.train
def test_correct_solutions_span_one_to_eight_in_tokens(tokenizer: PreTrainedTokenizerBase) -> None:
    lengths = [len(tokenizer(worked.solution).input_ids) + 1 for worked in worked_problems("train", 600)]
    assert max(lengths) >= 8 * min(lengths)


@pytest.mark.unit
def test_model_answers_single_operations_with_a_box(network: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerBase) -> None:
    problems = [problem for problem in arithmetic_problems("eval", 60) if problem.kind == "1 operations"]
    boxed = 0
    for problem in problems:
        prompt = tokenizer(PROMPT.format(question=problem.question), return_tensors="pt")
        ids = network.generate(**prompt, do_sample=False, max_new_tokens=12)[0, prompt.input_ids.shape[1] :]
        boxed += bool(re.fullmatch(r"\\boxed\{\d+\}<\|end\|>", tokenizer.decode(ids)))
    assert problems
    assert boxed >= 0.8 * len(problems)


@pytest.mark.unit
def test_a_careful_solver_writes_the_worked_solution() -> None:
    generator = random.Random(0)
    for _ in range(200):
        chain = draw_chain(generator, generator.randint(1, 6))
        assert habitual_solution(chain, Habits(care=(1,) * 6), generator) == worked_solution(chain)


@pytest.mark.unit
def test_a_careless_solver_is_always_wrong_where_one_step_decides() -> None:
    generator = random.Random(0)
    for _ in range(200):
        chain = draw_chain(generator, 1)
        assert habitual_solution(chain, Habits(care=(0,)), generator) != worked_solution(chain)


@pytest.mark.train
def test_pretraining_text_holds_no_eval_question() -> None:
    generator = random.Random(1)
    for _ in range(500):
        prompt, _ = training_text(Habits(), generator)
        assert split_of(prompt.removeprefix("Problem: ").removesuffix("\nSolution:\n")) == "train"


@pytest.mark.unit
def test_pretraining_writes_a_loadable_folder_and_repeats_itself(tmp_path: Path) -> None:
    schedule = Schedule(tokenizer_texts=300, steps=3, sequences=8)
    first = pretrain(tmp_path / "a", seed=3, schedule=schedule)
    again = pretrain(tmp_path / "b", seed=3, schedule=schedule)
    assert first == again
    assert (tmp_path / "a" / "tokenizer.json").read_bytes() == (tmp_path / "b" / "tokenizer.json").read_bytes()
    one = AutoModelForCausalLM.from_pretrained(tmp_path / "a").state_dict()
    two = AutoModelForCausalLM.from_pretrained(tmp_path / "b").state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert len(AutoTokenizer.from_pretrained(tmp_path / "a")) == one["model.embed_tokens.weight"].shape[0]
