"""The worker pool: limits, kills, retries, storms, threads, and no process where none is needed."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gmc.errors import GmcError
from gmc.grading import Grader
from gmc.grading.pool import Pool

EQUAL = ("\\sqrt{8}", "2\\sqrt{2}")
DIFFERENT = ("\\sqrt{8}", "2\\sqrt{3}")
# Far more terms than any limit allows, but short of what the guards refuse outright.
SLOW = ("\\sqrt{2}", "\\sum_{k=1}^{20000}\\sqrt{k}\\cdot\\sin(k^{k})")


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    shared = Pool(2)
    yield shared
    shared.close()


@pytest.mark.unit
def test_plain_numbers_and_words_start_no_process() -> None:
    with Grader() as grader:
        grader.grade_many(
            [
                ("4", "\\boxed{4}"),
                ("4", "\\boxed{5}"),
                ("\\frac12", "\\boxed{0.5}"),
                ("Yes", "\\boxed{No}"),
                ("1,2", "\\boxed{2,1}"),
            ]
        )
        assert grader.pool.counts["started"] == 0
        assert grader.pool.pids() == []


@pytest.mark.process
def test_outcomes_keep_their_order(pool: Pool) -> None:
    assert pool.run([EQUAL, DIFFERENT] * 6) == ["equal", "different"] * 6
    assert len(pool.pids()) == 2


@pytest.mark.process
def test_workers_run_without_torch(pool: Pool) -> None:
    pool.run([EQUAL])
    for pid in pool.pids():
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            assert "torch" not in maps.read()


@pytest.mark.process
@pytest.mark.parametrize(
    "bomb",
    [
        "9^{9^{9^9}}",
        "10000!",
        "\\sqrt{9^{9^{9^9}}}",
        "x^{x^{x^{x^{x}}}}",
        "(" * 500 + "x" + ")" * 500,
        "\\sum_{k=1}^{10^{9}} \\frac{1}{k}",
    ],
)
def test_bombs_are_never_right_and_end_in_time(bomb: str, pool: Pool) -> None:
    grader = Grader(pool=pool)
    verdict = grader.grade_many([("\\sqrt{2}", f"\\boxed{{{bomb}}}")])[0]
    assert not verdict.correct
    assert verdict.status in ("incorrect", "timeout")


@pytest.mark.process
def test_a_task_beyond_its_cpu_limit_is_a_timeout_and_the_rest_goes_on() -> None:
    pool = Pool(1, cpu_seconds=0.5)
    try:
        assert pool.run([EQUAL, SLOW, DIFFERENT]) == ["equal", "timeout", "different"]
        assert pool.counts["cpu kills"] == 1
        assert pool.counts["deaths"] == 0
    finally:
        pool.close()


@pytest.mark.process
def test_the_wall_clock_limit_kills_and_retries_once(pool: Pool) -> None:
    slow = Pool(1, cpu_seconds=60, wall_seconds=1.0)
    try:
        assert slow.run([SLOW]) == ["timeout"]
        assert slow.counts["wall kills"] == 2
    finally:
        slow.close()


@pytest.mark.process
def test_a_killed_worker_is_replaced_and_its_task_retried(pool: Pool) -> None:
    pool.run([EQUAL, EQUAL])
    before = pool.pids()
    deaths = pool.counts["deaths"]
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    assert pool.run([EQUAL, DIFFERENT, EQUAL]) == ["equal", "different", "equal"]
    assert pool.counts["deaths"] == deaths + len(before)
    assert not set(before) & set(pool.pids())


@pytest.mark.process
def test_kill_in_the_middle_of_a_batch() -> None:
    pool = Pool(1)
    pool.run([EQUAL])
    victim = pool.pids()[0]
    outcome: list[list[str]] = []
    tasks = [(f"\\sqrt{{{n}}}\\cdot\\sqrt{{2}}", f"\\sqrt{{{2 * n}}}") for n in range(3, 40, 2)]
    thread = threading.Thread(target=lambda: outcome.append(list(pool.run(tasks))))
    thread.start()
    time.sleep(0.05)
    os.kill(victim, signal.SIGKILL)
    thread.join()
    pool.close()
    assert outcome == [["equal"] * len(tasks)]


@pytest.mark.process
def test_running_out_of_memory_is_counted_apart_from_a_wrong_answer() -> None:
    # Less address space than the interpreter holds already, so every allocation of a task fails.
    pool = Pool(1, memory_bytes=32 << 20)
    with Grader(pool=pool) as grader:
        verdict = grader.grade_many([(EQUAL[0], f"\\boxed{{{EQUAL[1]}}}")])[0]
        assert not verdict.correct
        assert verdict.status in ("timeout", "crash")
        assert grader.counts["incorrect"] == 0


@pytest.fixture
def fake_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that kills itself at tasks that say so, and finds everything else equal."""
    script = tmp_path / "worker"
    script.write_text(
        "#!/bin/sh\n"
        "echo '{\"ready\": 1}'\n"
        'while read line; do case "$line" in *suicide*) kill -9 $$;; *) echo \'{"correct": true}\';; esac; done\n'
    )
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


@pytest.mark.process
@pytest.mark.usefixtures("fake_worker")
def test_a_task_that_always_kills_its_worker_is_a_crash() -> None:
    pool = Pool(1)
    with Grader(pool=pool) as grader:
        assert grader.grade_many([("\\sqrt{2}", "\\boxed{\\sqrt{3}}")])[0].status == "correct"
    assert pool.run([EQUAL, ("suicide", "x"), EQUAL]) == ["equal", "crash", "equal"]
    assert pool.counts["deaths"] == 2
    pool.close()


@pytest.mark.process
@pytest.mark.usefixtures("fake_worker")
def test_a_crash_storm_is_an_error_that_names_the_cause() -> None:
    pool = Pool(2)
    with pytest.raises(GmcError, match=r"grading workers keep dying \(8 in a row, the last by signal 9\)"):
        pool.run([("suicide", str(number)) for number in range(20)])
    assert pool.pids() == []


@pytest.mark.process
def test_workers_that_cannot_start_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    pool = Pool(2)
    with pytest.raises(GmcError, match="grading workers keep dying"):
        pool.run([EQUAL])
    assert pool.pids() == []


@pytest.mark.process
def test_workers_are_recycled() -> None:
    pool = Pool(1, recycle_after=1)
    try:
        assert pool.run([EQUAL] * 3) == ["equal"] * 3
        assert pool.counts["recycled"] == 3
    finally:
        pool.close()


@pytest.mark.process
def test_grading_from_threads(pool: Pool) -> None:
    grader = Grader(pool=pool)
    results: dict[int, list[bool]] = {}

    def work(number: int) -> None:
        pairs = [(EQUAL[0], f"\\boxed{{{EQUAL[1]}+{number}-{number}}}"), ("\\sqrt{3}", f"\\boxed{{\\sqrt{{{number + 4}}}}}")]
        results[number] = [verdict.correct for verdict in grader.grade_many(pairs)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [True, False] for number in range(4)}


@pytest.mark.process
def test_the_same_pair_is_compared_once(pool: Pool) -> None:
    grader = Grader(pool=pool)
    pair = ("\\sqrt{18}", "\\boxed{3\\sqrt{2}}")
    assert all(verdict.correct for verdict in grader.grade_many([pair] * 8))
    assert grader.counts["symbolic"] == 1


@pytest.mark.process
def test_close_ends_the_workers() -> None:
    pool = Pool(1)
    pool.run([EQUAL])
    (pid,) = pool.pids()
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert pool.run([EQUAL]) == ["equal"]
    pool.close()


@pytest.mark.process
@pytest.mark.parametrize("end", ["interrupt", "kill"])
def test_workers_end_with_their_parent(end: str) -> None:
    program = textwrap.dedent(
        """
        import signal
        from gmc.grading.pool import Pool
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        pool = Pool(1)
        pool.run([("\\\\sqrt{8}", "2\\\\sqrt{2}")])
        print(pool.pids()[0], flush=True)
        while True:
            pool.run([("\\\\sqrt{8}", "2\\\\sqrt{2}")])
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGINT if end == "interrupt" else signal.SIGKILL)
    try:
        _, errors = parent.communicate(timeout=60)
    finally:
        parent.kill()
    # Only the parent speaks: one KeyboardInterrupt traceback of its own, nothing from the worker.
    assert errors.count("Traceback") == (1 if end == "interrupt" else 0)
    for _ in range(600):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{worker}/stat").read_text().split()[2] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the worker outlived its parent")
