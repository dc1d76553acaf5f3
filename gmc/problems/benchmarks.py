"""The benchmarks gmc knows: where each comes from, how many problems it has, and how it is asked.

A content hash is `ProblemSet.content_hash` (ids, questions and gold answers as gmc reads them) of one public copy.
Copies differ in wording and ids, so another hash is reported in the result and not refused; another number of problems is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gmc.errors import UsageError, did_you_mean
from gmc.problems.base import ProblemSet
from gmc.problems.checks import deduplicate
from gmc.problems.load import Prepare, load_problems, mathematical
from gmc.problems.readers import READERS
from gmc.problems.templates import default_template

DATA_VARIABLE = "GMC_BENCH_DATA"
DEFAULT_SAMPLES = 4
"""n of avg@n for a problem file."""


@dataclass(frozen=True)
class Benchmark:
    """One benchmark.

    source: what `load_problems` takes when there is no file (a hub name, with its configuration after a colon); None: by file
    only. files: names (without ending) looked for in a data folder. count: problems it must have (None: whatever the file
    holds). other_counts: sizes of other copies in circulation, accepted and reported. samples: default n of avg@n.
    """

    name: str
    source: str | None
    split: str | None
    files: tuple[str, ...]
    count: int | None
    content_hash: str | None
    template_id: str
    samples: int
    other_counts: tuple[int, ...] = ()
    question_field: str | None = None
    answer_field: str | None = None


CONTENT_HASHES = {
    "math500": "735db0f505b4a619c15df59325d0132862b149a6eab7ee9adc4dc847ad7d3b99",
    "aime24": "a27e95e5326680e2544e1d7d0cb3bb4df8fea6690e2601b2a9f5eb44f625828e",
    "aime25": "37bc138b6e900cb9b64877e93510913c9c4f308b23fc3bb94463e2452d745cda",
    "amc23": "48b04d0e436d3aa65ccb42e3dc61abdd3a86aa33a2155763e92194f369745437",
    "minerva": "4079dcbc92608930d72981ae191c87905e31ffc9f2f499b860efdae06f077723",
    "olympiadbench": "10450e620f79cd9bcf9058ee8e642047216183d6cdfc3d9e40cefe52a5d2c95e",
    "gsm8k": "54c391448acbb78b943c73812a189e2cb821f937ba6866d4db625fa44a654a76",
    "arithmetic": "f9b8037cd46c8a361d54c1879d8151152f011a50bb2f6e3c15b7bdec94412c50",
}
"""`content_hash` of one public copy of each benchmark, as this version of gmc reads it (the arithmetic: as generated)."""

_MATH = "math-two-shot-v1"

BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "math500", "HuggingFaceH4/MATH-500", "test", ("math500", "math_500"), 500, CONTENT_HASHES["math500"], _MATH, 4
        ),
        Benchmark("aime24", "math-ai/aime24", "test", ("aime24", "aime_2024"), 30, CONTENT_HASHES["aime24"], _MATH, 64),
        Benchmark("aime25", "math-ai/aime25", "test", ("aime25", "aime_2025"), 30, CONTENT_HASHES["aime25"], _MATH, 64),
        Benchmark("amc23", "math-ai/amc23", "test", ("amc23", "amc_2023"), 40, CONTENT_HASHES["amc23"], _MATH, 16),
        Benchmark("amc24", None, None, ("amc24", "amc_2024"), None, None, _MATH, 16),
        Benchmark(
            "minerva", "math-ai/minervamath", "test", ("minerva_math", "minerva"), 272, CONTENT_HASHES["minerva"], _MATH, 4
        ),
        Benchmark(
            "olympiadbench",
            "Hothan/OlympiadBench:OE_TO_maths_en_COMP",
            None,
            ("olympiadbench",),
            675,
            CONTENT_HASHES["olympiadbench"],
            _MATH,
            4,
            other_counts=(674,),
        ),
        Benchmark("gsm8k", "openai/gsm8k:main", "test", ("gsm8k",), 1319, CONTENT_HASHES["gsm8k"], _MATH, 4),
        Benchmark("arithmetic", "arithmetic:eval", None, (), 500, CONTENT_HASHES["arithmetic"], "arithmetic-v1", 4),
    )
}

_SIX = ("math500", "aime24", "aime25", "amc23", "minerva", "olympiadbench")


@dataclass(frozen=True)
class Suite:
    """Benchmarks that are run together; note: what must be said about the choice."""

    name: str
    benchmarks: tuple[str, ...]
    note: str


SUITES = {
    suite.name: suite
    for suite in (
        Suite("paper-six", _SIX, "a reconstruction: arXiv 2610.01896 averages over six benchmarks that we could not see named"),
        Suite("gac-seven", (*_SIX[:4], "amc24", *_SIX[4:]), "every competition benchmark gmc knows; amc24 by file only"),
    )
}


def select_benchmarks(names: Sequence[str]) -> list[Benchmark]:
    """The benchmarks of these names and suites, in order and each once. Raises `UsageError` listing what there is."""
    selected: dict[str, Benchmark] = {}
    for name in names:
        if name in SUITES:
            members = SUITES[name].benchmarks
        elif name in BENCHMARKS:
            members = (name,)
        else:
            raise UsageError(
                f"--bench {name}: unknown{did_you_mean(name, [*BENCHMARKS, *SUITES]) or '.'} "
                f"Benchmarks are {', '.join(BENCHMARKS)}; suites are {', '.join(SUITES)} "
                "(--problems takes any file)"
            )
        selected |= {member: BENCHMARKS[member] for member in members}
    return list(selected.values())


def file_benchmark(source: str, question_field: str | None = None, answer_field: str | None = None) -> Benchmark:
    """A benchmark made of any source that `load_problems` takes; its size is whatever it is."""
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in Path(source).stem)
    template = default_template(source)
    return Benchmark(name, source, None, (), None, None, template, DEFAULT_SAMPLES, (), question_field, answer_field)


def load_benchmark(
    benchmark: Benchmark, data_directory: Path | None, *, prepare: Prepare = mathematical, needs_answer: bool = True
) -> ProblemSet:
    """The benchmark's problems, each once, from a file in `data_directory` when that is given, else from its source.

    prepare, needs_answer: the reward's own, as for `load_problems`.

    Raises `UsageError` when the file is missing, the benchmark is by file only, or the number of problems is wrong.
    """
    source, split = source_of(benchmark, data_directory)
    problems = load_problems(
        source,
        split=split,
        question_field=benchmark.question_field,
        answer_field=benchmark.answer_field,
        prepare=prepare,
        needs_answer=needs_answer,
    )
    if benchmark.count is None or len(problems) not in (benchmark.count, *benchmark.other_counts):
        problems = deduplicate(problems)
    if benchmark.count is not None and len(problems) not in (benchmark.count, *benchmark.other_counts):
        raise UsageError(
            f"{benchmark.name} has {benchmark.count} problems, but {source} gives {len(problems)}; "
            "to evaluate on part of it, name the file with --problems"
        )
    return problems


def source_of(benchmark: Benchmark, data_directory: Path | None) -> tuple[str, str | None]:
    """What `load_problems` takes for a benchmark, and its split. Raises `UsageError` where there is no such file."""
    if data_directory is not None and benchmark.files:
        return str(_find_file(benchmark, data_directory)), None
    if benchmark.source is None:
        raise UsageError(
            f"{benchmark.name} is on no hub that we know; put {benchmark.files[0]}.jsonl into a folder and name it "
            f"with --bench-data (or {DATA_VARIABLE})"
        )
    return benchmark.source, benchmark.split


def _find_file(benchmark: Benchmark, directory: Path) -> Path:
    for stem in benchmark.files:
        for ending in READERS:
            path = directory / f"{stem}{ending}"
            if path.is_file():
                return path
    raise UsageError(
        f"{directory}: no file for {benchmark.name} ({benchmark.files[0]}.jsonl or another of {', '.join(READERS)})"
    )
