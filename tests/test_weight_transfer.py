"""Weights over NCCL to vLLM servers: refused where it cannot be, and elsewhere what vLLM's sender says reaches every server.

No GPU is needed: vLLM's side is a double of its sender, and where vLLM is installed its own sender with the functions
replaced that touch NCCL.
"""

import sys
import time
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar

import pytest
import torch
from server_double import served_model, two_doubles
from training_runs import small_settings

from gmc.engines import nccl, vllm_server
from gmc.engines.vllm_server import VllmServerEngine
from gmc.errors import GmcError, UsageError
from gmc.resolving.checks import check_settings

pytestmark = pytest.mark.unit

ROOT = "vllm.distributed.weight_transfer"


model = pytest.fixture(served_model, scope="module")
servers = pytest.fixture(two_doubles)


@dataclass
class ParamMeta:
    name: str
    dtype: torch.dtype
    shape: tuple


@dataclass
class InitInfo:
    master_address: str
    master_port: int
    world_size: int
    rank: int


class Sender:
    """Says to the servers what vLLM's NCCL sender says, and keeps what it would broadcast."""

    seconds = 0.0
    sent: ClassVar[list] = []

    @classmethod
    def trainer_init(cls, info, *, client, source):
        client.init_weight_transfer_engine(
            {"master_address": info.master_address, "rank_offset": 1, "world_size": info.world_size}
        )
        sender = cls()
        sender.client, sender.source = client, source
        return sender

    def send_weights(self):
        time.sleep(self.seconds)
        self.client.start_weight_update()
        self.client.update_weights({"names": [each.name for each in self.source.metadata()]})
        Sender.sent.append(dict(self.source))
        self.client.finish_weight_update()

    def shutdown(self):
        pass


@pytest.fixture
def double_of_vllm(monkeypatch):
    """A machine with a GPU and vLLM, for what this code asks of them."""
    modules = {
        "vllm": {},
        "vllm.distributed": {},
        ROOT: {},
        f"{ROOT}.base": {"ParamMeta": ParamMeta, "WeightSource": object},
        f"{ROOT}.factory": {"WeightTransferTrainerFactory": Sender},
        f"{ROOT}.nccl_engine": {"NCCLTrainerInitInfo": InitInfo},
    }
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(nccl, "vllm_version", lambda: "0.32.0")
    monkeypatch.setattr(vllm_server, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(Sender, "sent", [])
    monkeypatch.setattr(Sender, "seconds", 0.0)


def open_engine(model, servers, folder, seconds=10):
    return VllmServerEngine(model, [each.url for each in servers], folder, patience_seconds=seconds, transfer="nccl")


def said(server, path):
    return [content for heard, content in server.heard if heard == path]


def test_one_broadcast_reaches_all_servers_and_none_of_them_reads_the_file(model, servers, tmp_path, double_of_vllm):
    engine = open_engine(model, servers, tmp_path)
    infos = [said(server, "/init_weight_transfer_engine")[0]["init_info"] for server in servers]
    assert [info["rank_offset"] for info in infos] == [1, 2]
    assert {info["world_size"] for info in infos} == {3}
    changed = {name: tensor + 1 for name, tensor in model.weights().items()}
    engine.load_weights(changed)
    assert [len(said(server, "/init_weight_transfer_engine")) for server in servers] == [1, 1]
    assert [len(said(server, "/finish_weight_update")) for server in servers] == [2, 2]
    assert said(servers[0], "/update_weights")[-1]["update_info"]["names"] == list(changed)
    assert len(Sender.sent) == 2
    assert all(torch.equal(Sender.sent[-1][name], tensor) for name, tensor in changed.items())
    assert [server.taken for server in servers] == [[], []]
    assert servers[0].mark == servers[1].mark != ""
    engine.close()
    assert [len(said(server, "/shutdown_weight_transfer_engine")) for server in servers] == [1, 1]
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_was_started_anew_reads_the_file_and_takes_part_again(model, servers, tmp_path, double_of_vllm):
    engine = open_engine(model, servers, tmp_path)
    servers[1].mark = ""
    engine.load_weights(model.weights())
    assert [len(server.taken) for server in servers] == [0, 1]
    assert said(servers[0], "/init_weight_transfer_engine")[-1]["init_info"]["world_size"] == 2
    engine.load_weights(model.weights())
    assert [len(server.taken) for server in servers] == [0, 1]
    assert [said(server, "/init_weight_transfer_engine")[-1]["init_info"]["rank_offset"] for server in servers] == [1, 2]
    engine.close()


def test_workers_are_compared_with_the_file_after_a_broadcast_too(model, servers, tmp_path, double_of_vllm):
    engine = open_engine(model, servers, tmp_path)
    servers[1].wrong = [["layers.0", 0.5]]
    with pytest.raises(GmcError, match=r"does not hold the weights that it was given: layers layers\.0"):
        engine.load_weights(model.weights())
    engine.close()


@pytest.mark.parametrize("fault", ["slow", "refused"])
def test_a_broadcast_that_fails_ends_in_one_line(model, servers, tmp_path, double_of_vllm, monkeypatch, fault):
    engine = open_engine(model, servers, tmp_path, seconds=0.5)
    if fault == "slow":
        monkeypatch.setattr(Sender, "seconds", 5.0)
    else:
        servers[0].says["/start_weight_update"] = (400, b"weight transfer not configured")
    with pytest.raises(GmcError, match=r"rollout\.weight_transfer = nccl: weights did not reach") as caught:
        engine.load_weights(model.weights())
    assert "\n" not in str(caught.value)
    assert ("not done after" in str(caught.value)) == (fault == "slow")
    engine.close()
    assert list(tmp_path.iterdir()) == []


def test_without_a_gpu_it_is_refused_with_the_reason(model, tmp_path):
    with pytest.raises(UsageError, match="NCCL needs a GPU in this process and in every server, and there is none here"):
        VllmServerEngine(model, ["http://127.0.0.1:1"], tmp_path, transfer="nccl")


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_engines_of_this_process_have_nothing_to_send(engine):
    with pytest.raises(UsageError, match=f"engine {engine} takes weights within its own process"):
        check_settings(small_settings(f"rollout.engine={engine}", "rollout.weight_transfer=nccl"))


def test_vllms_own_sender_takes_what_it_is_given(model, servers, tmp_path, monkeypatch):
    nccl_engine = pytest.importorskip(f"{ROOT}.nccl_engine", reason="needs vLLM")
    broadcast = []
    monkeypatch.setattr(nccl_engine, "open_trainer_endpoint", lambda info: info)
    monkeypatch.setattr(
        nccl_engine, "packed_nccl_broadcast_producer", lambda iterator, **keywords: broadcast.append(dict(iterator))
    )
    monkeypatch.setattr(nccl_engine.NCCLTrainerWeightTransferEngine, "_post_send_sync", lambda self: None)
    monkeypatch.setattr(nccl_engine.NCCLTrainerWeightTransferEngine, "shutdown", lambda self: None)
    monkeypatch.setattr(nccl.torch.cuda, "is_available", lambda: True)
    engine = open_engine(model, servers, tmp_path)
    weights = model.weights()
    assert broadcast[0].keys() == weights.keys()
    assert all(torch.equal(broadcast[0][name].cpu(), tensor) for name, tensor in weights.items())
    info = said(servers[1], "/init_weight_transfer_engine")[0]["init_info"]
    assert (info["rank_offset"], info["world_size"], info["packed"]) == (2, 3, True)
    update = said(servers[0], "/update_weights")[0]["update_info"]
    assert update["names"] == list(weights)
    assert update["shapes"] == [list(tensor.shape) for tensor in weights.values()]
    engine.close()
