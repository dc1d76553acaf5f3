"""Servers at rollout.servers that are none, that hang, and that are waited for: one line each, and signals end a wait."""

import os
import signal
import threading
import time

import pytest
from server_double import Double, doubles, served_model

from gmc.engines import vllm_server
from gmc.engines.base import Sampling
from gmc.engines.server_client import ServerClient, ServerLostError, ServerSlowError
from gmc.engines.server_waiting import Signals, side_by_side
from gmc.engines.vllm_server import VllmServerEngine
from gmc.errors import GmcError, UsageError
from gmc.training.signals import stop_on_signals

pytestmark = pytest.mark.unit

ARGUMENTS = {"group_size": 2, "sampling": Sampling(max_tokens=6), "seeds": [1, 2]}
PROMPTS = [[10, 11, 12], [20, 21]]
NOWHERE = "http://127.0.0.1:1"


model = pytest.fixture(served_model, scope="module")


@pytest.fixture
def double(model, monkeypatch):
    monkeypatch.setattr(vllm_server, "POLL_SECONDS", 0.01)
    with doubles(model.vocabulary_size, 1) as (started,):
        yield started


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1",
        "http://[zz::1]:80",
        "http://127.0.0.1:abc",
        "http://127.0.0.1:99999",
        "http://xn--.:80",
        "http://a..b:80",
        "http://a b:80",
        "http://a\n:80",
        "http://h:80/\u00e9",
        "ftp://h:80",
        "http://",
    ],
)
def test_what_is_no_address_is_one_line_that_names_the_setting(model, tmp_path, url):
    with pytest.raises(UsageError, match=r"^rollout\.servers: .* is no address .*; write it like http://node7:8000$") as error:
        VllmServerEngine(model, [url], tmp_path)
    assert error.value.exit_code == 2
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "url", ["http://node_7:8000", "https://a-b.example.", "http://[::1]:80/v", "http://b\u00fccher.example:80"]
)
def test_what_is_an_address_is_taken(url):
    assert ServerClient(url).url == url


HTML, NOT_UTF8, MOVED = (200, b"<html>\n<p>hello"), (200, b"\xff\xfe{}"), (301, b"")


@pytest.mark.parametrize(
    ("path", "says", "message"),
    [
        ("/health", HTML, "/health: its answer is no JSON: <html>"),
        ("/health", NOT_UTF8, "/health: its answer is not in UTF-8"),
        ("/health", MOVED, "/health: status 301, it sends on to http://elsewhere/; name the server itself"),
        ("/health", (200, b"[" * 100_000), "/health: its answer is no JSON"),
        ("/version", {"v": 1}, "its answer to /version lacks 'version'"),
        ("/version", [3], "its answer to /version has another form"),
        ("/v1/models", {"data": []}, "its answer to /v1/models has another form"),
        ("/v1/models", {"data": [{"id": None}]}, "its answer to /v1/models has another form"),
        ("/collective_rpc", HTML, "/collective_rpc: its answer is no JSON"),
        ("gmc_about", {"results": [{}]}, "its answer to gmc_about lacks 'logprobs_mode'"),
        ("gmc_about", {"results": [None]}, "its answer to gmc_about has another form"),
        ("gmc_about", {"results": []}, "its answer to gmc_about has another form"),
        ("gmc_about", {"r": []}, "its answer to gmc_about lacks 'results'"),
        ("/reset_prefix_cache", {"ok": 1}, "its answer to /reset_prefix_cache lacks 'success'"),
        ("gmc_differing_weights", {"results": [{}]}, "its answer to gmc_differing_weights lacks 'wrong'"),
        ("gmc_differing_weights", {"results": [None]}, "its answer to gmc_differing_weights has another form"),
        ("gmc_differing_weights", {"results": []}, "its answer to gmc_differing_weights has another form"),
    ],
)
def test_what_is_no_vllm_server_is_one_line_that_names_it(model, tmp_path, double, path, says, message):
    double.says[path] = says
    with pytest.raises(GmcError) as error:
        VllmServerEngine(model, [double.url], tmp_path, patience_seconds=5)
    assert str(error.value).startswith(double.url)
    assert message in str(error.value)
    assert error.value.exit_code == 1
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "says",
    [HTML, {"c": 1}, [1], {"choices": [None] * 2}, {"choices": [{"index": 0, "token_ids": [1], "finish_reason": "stop"}] * 2}],
)
def test_completions_of_another_form_are_one_line_that_names_the_server(model, tmp_path, double, says):
    engine = VllmServerEngine(model, [double.url], tmp_path, patience_seconds=5)
    double.says["/v1/completions"] = says
    with pytest.raises(GmcError, match=f"^{double.url}.* its answer ") as error:
        engine.generate(PROMPTS, **ARGUMENTS)
    assert error.value.exit_code == 1
    assert "\n" not in str(error.value)


def test_a_server_without_marks_is_not_taken_for_one_that_holds_the_weights(model, tmp_path, double):
    engine = VllmServerEngine(model, [double.url], tmp_path, patience_seconds=5)
    assert engine._holds(engine._servers[0])
    double.says["gmc_mark"] = {"results": []}
    assert not engine._holds(engine._servers[0])


def test_a_server_that_answers_health_and_then_nothing_is_given_up(model, tmp_path, double, caplog):
    free = threading.Event()
    double.says["/collective_rpc"] = lambda: free.wait(20) and {}
    began = time.monotonic()
    with pytest.raises(GmcError, match=f"no vLLM server answers for 1 s: {double.url}/collective_rpc: no answer for 1 s"):
        VllmServerEngine(model, [double.url], tmp_path, patience_seconds=1.2)
    assert time.monotonic() - began < 15
    assert f"waiting for {double.url}, up to 1 s" in caplog.text
    free.set()


def test_a_server_that_gives_no_group_is_given_up_for_another_or_named(model, tmp_path, double):
    other, free = Double(model.vocabulary_size), threading.Event()
    engine = VllmServerEngine(model, [double.url, other.url], tmp_path, patience_seconds=0.5)
    double.says["/v1/completions"] = lambda: free.wait(20) and {}
    assert len(engine.generate(PROMPTS, **ARGUMENTS)) == 2
    assert len(other.served) == 2
    other.die_in = 0
    with pytest.raises(GmcError, match=f"{double.url}: answers, but gave no group of responses for 0 s"):
        engine.generate(PROMPTS, **ARGUMENTS)
    free.set()
    other.server.shutdown()
    other.server.server_close()


def test_requests_that_queue_behind_answered_ones_are_not_given_up(double):
    turn = threading.Lock()

    def in_turn():
        with turn:
            time.sleep(0.3)
        return {"ok": 1}

    double.says["/v1/completions"] = in_turn
    client = ServerClient(double.url, 1.0)
    answers = side_by_side({index: lambda: client.post("/v1/completions", {}) for index in range(6)})
    assert answers == {key: {"ok": 1} for key in range(6)}
    with pytest.raises(ServerSlowError, match="no answer for 0 s"):
        client.post("/v1/completions", {}, seconds=0.1)
    assert issubclass(ServerSlowError, ServerLostError)


def test_waiting_for_a_dead_server_is_said_at_once_and_once(model, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(vllm_server, "POLL_SECONDS", 0.01)
    with pytest.raises(GmcError, match="no vLLM server answers"):
        VllmServerEngine(model, [NOWHERE], tmp_path, patience_seconds=0.3)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"waiting for {NOWHERE}, up to 0 s ({NOWHERE}/health: ConnectionRefusedError")


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, GmcError)])
@pytest.mark.parametrize("hangs", [False, True])
def test_the_first_signal_ends_a_wait_also_where_training_only_notes_it(model, tmp_path, double, number, error, hangs):
    free = threading.Event()
    double.says["/collective_rpc"] = lambda: free.wait(20) and {}
    began = time.monotonic()
    with stop_on_signals() as stop:
        handler = signal.getsignal(number)
        threading.Timer(0.4, os.kill, (os.getpid(), number)).start()
        with pytest.raises(error):
            VllmServerEngine(model, [double.url if hangs else NOWHERE], tmp_path, patience_seconds=30)
        assert stop.signal_name == signal.Signals(number).name
        assert signal.getsignal(number) is handler
    assert time.monotonic() - began < 15
    free.set()


def test_a_signal_that_came_before_the_wait_ends_it_too():
    signals = Signals()
    with stop_on_signals() as stop, signals.watched():
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop
        with pytest.raises(GmcError, match="stopped by SIGTERM while vLLM servers were waited for"), signals.waiting():
            pytest.fail("waited")
    with signals.waiting():
        pass


def test_an_interrupt_does_not_wait_for_the_threads():
    free = threading.Event()
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        side_by_side({0: lambda: free.wait(20)})
    assert time.monotonic() - began < 15
    free.set()
