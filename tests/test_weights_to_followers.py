"""Policies go to followers over NCCL, and by the folder whenever that fails; whoever dies meanwhile, nobody waits for long.

No GPU is needed: vLLM's transfer is a double that waits as NCCL does, for ever, and where vLLM is installed its own engines
with the functions replaced that touch NCCL. Sender and follower are the real ones, over a real connection.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import nccl_double
import pytest
import torch
from killed_launcher import alive, wait_until
from nccl_double import WIRE
from training_runs import small_settings, train_run

from gmc.engines import nccl
from gmc.errors import GmcError, UsageError
from gmc.generation.following import follow_run
from gmc.generation.published_weights import PublishedWeights
from gmc.live import receiving as receiving_module
from gmc.live import sending
from gmc.live.receiving import Receiving
from gmc.live.sending import Sender
from gmc.models import load_model, weights_hash
from gmc.resolving.checks import sends_to_followers
from gmc.store.policies import publish_policy, read_policy_info
from gmc.store.run_directory import RunDirectory
from gmc.training import weight_sender
from gmc.training.weight_sender import WeightSender


class FailedError(Exception):
    """What ends the sender's process."""


@pytest.fixture
def policies(tmp_path):
    """A run with two policies."""
    directory = RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
    model = load_model("embedded")
    for version in (0, 1):
        with torch.no_grad():
            for tensor in model.weights().values():
                tensor.add_(version)
        publish_policy(model, directory.policies, version, directory.run_id)
    return directory


@pytest.fixture
def run(policies, tmp_path, monkeypatch):
    """The run, on a machine whose vLLM is a double."""
    (tmp_path / "wire").mkdir()
    monkeypatch.setenv(WIRE, str(tmp_path / "wire"))
    nccl_double.install(monkeypatch.setitem)
    return policies


@pytest.fixture
def served(run):
    """The run, with a sender that serves it from a thread. What fails is kept."""
    with serving(run) as failed:
        yield run, failed


@contextlib.contextmanager
def serving(run):
    failed = []

    def fail(reason):
        failed.append(reason)
        raise FailedError(reason)

    sender, ended = Sender(run, fail), threading.Event()
    sender.announce()

    def serve():
        try:
            while not ended.is_set():
                sender.step(0.02)
        except FailedError:
            sender.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield failed
    ended.set()
    thread.join(10)
    sender.close()


class Follower:
    """What a follower does with a policy."""

    def __init__(self, run, seconds=20.0):
        self.run, self.model = run, load_model("embedded")
        self.receiving = Receiving(run, "someone", self.model.weights(), seconds=seconds)
        self.weights = PublishedWeights(self.model)

    def take(self, version):
        """Take a policy, which must be the published one; whether it came without the folder."""
        folder = self.run.policies / f"v{version:06d}"
        info = read_policy_info(folder)
        self.weights.take(folder, info.files, sent=lambda: self.receiving.take(version))
        assert weights_hash(self.model.weights()) == info.weights_hash
        return not self.weights.read


@pytest.mark.unit
def test_a_policy_comes_whole_and_is_the_published_one(served):
    run, failed = served
    one, late = Follower(run), Follower(run)
    assert one.take(0)
    assert one.take(1)
    assert late.take(1), "one that comes late, and never held an earlier policy"
    assert one.take(0), "the group is used again"
    assert sorted(path.name for path in nccl_double.wire().glob("group-*/*.taken")) == [
        "0.taken",
        "0.taken",
        "1.taken",
        "2.taken",
    ]
    one.receiving.close()
    assert one.take(1), "a follower that was started anew"
    assert failed == []


@pytest.mark.unit
def test_without_a_sender_or_its_token_the_folder_is_read(run):
    follower = Follower(run)
    assert not follower.take(0)
    sender = Sender(run)
    sender.announce()
    run.transfer.write_text(run.transfer.read_text().replace(sender._token, "f" * 32))
    stepping = threading.Thread(target=lambda: [sender.step(0.5) for _ in range(2)])
    stepping.start()
    assert not follower.take(1)
    stepping.join()
    sender.close()
    assert not follower.take(0), "nobody listens there any more"


@pytest.mark.unit
def test_a_policy_that_the_sender_cannot_read_is_refused_and_the_next_one_comes(served, monkeypatch):
    run, failed = served
    follower = Follower(run)
    with monkeypatch.context() as patch:
        patch.setattr(sending, "is_ready", lambda folder: False)
        assert not follower.take(0)
    assert follower.take(1)
    assert failed == []


@pytest.mark.unit
def test_other_tensors_than_the_models_are_not_taken(served):
    run, failed = served
    follower = Follower(run)
    names = list(follower.model.weights())
    follower.receiving = Receiving(run, "x", {name: follower.model.weights()[name] for name in names[1:]}, seconds=5)
    assert not follower.take(1)
    wait_until(lambda: bool(failed), seconds=5)
    assert failed[0].startswith("x: ")


@pytest.mark.unit
def test_a_sender_that_is_gone_amid_a_transfer_is_not_waited_for(served, caplog):
    run, _ = served
    follower = Follower(run)
    assert follower.take(0)
    (nccl_double.wire() / "hang").touch()
    line = follower.receiving._line
    threading.Timer(0.5, lambda: line._connection.shutdown(2)).start()
    started = time.monotonic()
    assert not follower.take(1)
    assert time.monotonic() - started < 10
    assert "policy 1 did not come over NCCL (the sender has gone) and is read from the folder" in caplog.text


@pytest.mark.unit
def test_a_transfer_that_does_not_end_is_given_up_and_after_three_the_folder_is_kept_to(served, caplog, monkeypatch):
    run, _ = served
    follower = Follower(run, seconds=0.3)
    (nccl_double.wire() / "hang").touch()
    assert not follower.take(1)
    assert "took more than 0 s" in caplog.text or "nothing was said" in caplog.text
    follower.receiving._failures = 3
    (nccl_double.wire() / "hang").unlink()
    assert not follower.take(0)


@pytest.mark.unit
def test_what_may_still_write_into_the_weights_ends_the_follower(served, monkeypatch):
    run, _ = served
    monkeypatch.setattr(receiving_module, "LEAVE_SECONDS", 0.2)
    monkeypatch.setattr(nccl_double.ReceivingEngine, "shutdown", lambda self: None)
    follower = Follower(run, seconds=0.5)
    assert follower.take(0)
    (nccl_double.wire() / "hang").touch()
    with pytest.raises(GmcError, match="NCCL does not end a transfer whose sender is gone; start the follower again"):
        follower.take(1)
    (nccl_double.wire() / "hang").unlink()


FOLLOWER = """
import sys
sys.path.insert(0, {tests!r})
import nccl_double
nccl_double.install(dict.__setitem__)
from pathlib import Path
from gmc.live.receiving import Receiving
from gmc.models import load_model
from gmc.store.run_directory import RunDirectory
receiving = Receiving(RunDirectory.open(Path(sys.argv[1])), "victim", load_model("embedded").weights(), seconds=60)
print("asks", flush=True)
receiving.take(1)
"""


@pytest.mark.process  # vLLM starts some when it is imported
def test_vllms_own_engines_take_what_they_are_given(policies, monkeypatch):
    nccl_engine = pytest.importorskip(f"{nccl_double.ROOT}.nccl_engine", reason="needs vLLM")
    from vllm.distributed.weight_transfer import nccl_common

    places, network = [], queue.Queue()

    def consume(iterator, *, group, post_unpack_func, **_):
        told, came = list(iterator), network.get(timeout=10)
        assert [name for name, _ in told] == list(came)
        assert [(tuple(shape), dtype) for _, (shape, dtype) in told] == [(each.shape, each.dtype) for each in came.values()]
        for name, tensor in came.items():
            post_unpack_func([(name, tensor)])

    monkeypatch.setattr(nccl_common, "stateless_init_process_group", lambda *place, **named: places.append((*place, named)))
    monkeypatch.setattr(nccl_engine, "packed_nccl_broadcast_producer", lambda iterator, **_: network.put(dict(iterator)))
    monkeypatch.setattr(nccl_engine, "packed_nccl_broadcast_consumer", consume)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    groups = [SimpleNamespace(destroy=lambda: None)] * 2
    monkeypatch.setattr(nccl_engine, "open_trainer_endpoint", lambda info: places.append(info) or groups[0])
    joined = nccl_engine.worker_init_process_group
    monkeypatch.setattr(nccl_engine, "worker_init_process_group", lambda *about: joined(*about) or groups[1])
    with serving(policies) as failed:
        follower = Follower(policies)
        assert follower.take(0)
        assert follower.take(1)
        assert failed == []
    (sender,) = [place for place in places if not isinstance(place, tuple)]
    (worker,) = [place for place in places if isinstance(place, tuple)]
    assert (sender.rank, sender.world_size) == (0, 2)
    assert worker[:4] == (sender.master_address, sender.master_port, 1, 2)


LIVE = ("delay=live", "rollout.weight_transfer=nccl")


@pytest.mark.unit
def test_where_it_cannot_be_it_is_refused_before_anything_starts(policies, tmp_path, monkeypatch):
    with pytest.raises(
        UsageError, match="a follower with engine transformers reads policies from the folder; set it to folder"
    ):
        train_run(tmp_path / "new", small_settings(*LIVE))
    with pytest.raises(UsageError, match="NCCL needs a GPU in trainer and followers, and there is none here; use folder"):
        train_run(tmp_path / "new", small_settings(*LIVE, "rollout.engine=vllm"))
    assert not (tmp_path / "new").exists()
    with pytest.raises(UsageError, match="NCCL needs a GPU in trainer and followers, and there is none here; use folder"):
        follow_run(policies, small_settings(*LIVE, "rollout.engine=vllm"))
    assert not policies.followers.exists()
    here, engine = small_settings(*LIVE, "rollout.engine=vllm"), "rollout.engine=vllm"
    there = [
        small_settings(*case, "model.device=cuda") for case in ((*LIVE, engine), (*LIVE, f"{engine}-server"), (LIVE[0], engine))
    ]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(nccl, "vllm_version", lambda: "0.32.0")
    with pytest.raises(UsageError, match=r"with model\.device = cpu: NCCL needs a GPU"):
        follow_run(policies, here)
    assert [sends_to_followers(settings) for settings in there] == [True, False, False]


@pytest.mark.process
@pytest.mark.slow
def test_whoever_is_killed_amid_a_transfer_the_trainer_and_the_others_go_on(run, monkeypatch):
    tests = str(Path(__file__).parent)
    monkeypatch.setattr(weight_sender, "PROGRAM", (str(Path(tests) / "nccl_double.py"),))
    hang = nccl_double.wire() / "hang"
    with WeightSender(run, 0) as sender:
        wait_until(run.transfer.exists, seconds=60)
        follower = Follower(run)
        assert follower.take(0)
        first = sender.process.pid
        hang.touch()
        with subprocess.Popen(
            [sys.executable, "-c", FOLLOWER.format(tests=tests), str(run.path)], stdout=subprocess.PIPE
        ) as victim:
            assert victim.stdout.readline() == b"asks\n"
            wait_until(lambda: len(list(nccl_double.wire().glob("group-*"))) == 2, seconds=30)
            victim.kill()
        wait_until(lambda: sender.process.pid != first and run.transfer.exists(), seconds=60)
        assert not alive(first)
        hang.unlink()
        assert follower.take(1), "a new sender serves the others"
        last = sender.process.pid
        os.kill(last, signal.SIGKILL)
        assert not follower.take(0)
    assert not alive(sender.process.pid)
    assert not run.transfer.exists()
    assert "victim: the other end has gone" in sender.log_file.read_text()
