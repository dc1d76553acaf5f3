"""vLLM's NCCL transfer without NCCL or vLLM: tensors go from sender to receiver through a folder, and both wait as NCCL does.

`install` puts modules of vLLM's names in place, with what gmc asks of them; as a program, the trainer's sender with them.
"""

import math
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import load_file, save_file

ROOT = "vllm.distributed.weight_transfer"
WIRE = "GMC_TEST_WIRE"
"""Environment variable: the folder that stands for the network. A file `hang` in it makes every transfer wait for ever."""


def wire() -> Path:
    return Path(os.environ[WIRE])


class Group:
    """One group of NCCL, by the port of its meeting point. Waits end only when they are served, or aborted."""

    def __init__(self, port: int, rank: int) -> None:
        self.folder, self.sent, self.aborted = wire() / f"group-{port}", 0, False
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"here-{rank}").touch()
        self.until((self.folder / f"here-{1 - rank}").exists)

    def until(self, true: Any) -> None:
        while not true() or (wire() / "hang").exists():
            if self.aborted:
                raise RuntimeError("NCCL error: aborted")
            time.sleep(0.005)

    def send(self, tensors: dict[str, torch.Tensor]) -> None:
        file, self.sent = self.folder / f"{self.sent}.safetensors", self.sent + 1
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file.with_suffix(".part"))
        file.with_suffix(".part").rename(file)
        self.until(file.with_suffix(".taken").exists)

    def receive(self) -> dict[str, torch.Tensor]:
        file, self.sent = self.folder / f"{self.sent}.safetensors", self.sent + 1
        self.until(file.exists)
        tensors = load_file(file)
        file.with_suffix(".taken").touch()
        return tensors


@dataclass
class ParamMeta:
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


@dataclass
class TrainerInfo:
    master_address: str
    master_port: int
    world_size: int
    rank: int


class TrainerFactory:
    """What vLLM's sender does, step by step."""

    @classmethod
    def trainer_init(cls, info: TrainerInfo, *, client: Any, source: Any) -> "TrainerFactory":
        from concurrent.futures import ThreadPoolExecutor

        self = cls()
        self.client, self.source, self.pool = client, source, ThreadPoolExecutor(1)
        told = {"master_address": info.master_address, "master_port": info.master_port, "rank_offset": 1}
        ready = self.pool.submit(client.init_weight_transfer_engine, told | {"world_size": info.world_size, "packed": True})
        self.group = Group(info.master_port, 0)
        ready.result()
        return self

    def send_weights(self) -> None:
        about = self.source.metadata()
        told = {"names": [each.name for each in about], "shapes": [list(each.shape) for each in about]}
        told["dtype_names"] = [str(each.dtype).removeprefix("torch.") for each in about]
        self.client.start_weight_update()
        taken = self.pool.submit(self.client.update_weights, told)
        self.group.send(dict(self.source))
        taken.result()
        self.client.finish_weight_update()

    def shutdown(self) -> None:
        self.group.aborted = True


class ReceivingEngine:
    """What vLLM's receiving engine does."""

    def __init__(self, config: Any, vllm_config: Any, device: torch.device, model: Any) -> None:
        self.place, self.model, self.group = vllm_config.parallel_config, model, None

    def parse_init_info(self, told: dict[str, Any]) -> dict[str, Any]:
        return told

    def init_transfer_engine(self, told: dict[str, Any]) -> None:
        rank = self.place.data_parallel_index * self.place.world_size + self.place.rank + told["rank_offset"]
        self.group = Group(told["master_port"], rank)

    def update_weights(self, told: dict[str, Any]) -> None:
        came = self.group.receive()
        pairs = [
            (name, came[name].view(getattr(torch, dtype)))
            for name, dtype in zip(told["names"], told["dtype_names"], strict=True)
        ]
        half = math.ceil(len(pairs) / 2)
        for part in (pairs[:half], pairs[half:]):
            self.model.load_weights(part)

    def shutdown(self) -> None:
        self.group.aborted = True


@dataclass
class TransferConfig:
    backend: str


def install(setitem: Any) -> None:
    """setitem: as `monkeypatch.setitem`, for `sys.modules`."""
    modules = {
        "vllm": {},
        "vllm.config": {"WeightTransferConfig": TransferConfig},
        "vllm.distributed": {},
        ROOT: {},
        f"{ROOT}.base": {"ParamMeta": ParamMeta, "WeightSource": object},
        f"{ROOT}.factory": {"WeightTransferTrainerFactory": TrainerFactory},
        f"{ROOT}.nccl_engine": {"NCCLTrainerInitInfo": TrainerInfo, "NCCLWeightTransferEngine": ReceivingEngine},
    }
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        setitem(sys.modules, name, module)


def main() -> None:
    import gmc.engines.nccl
    from gmc.live.weight_sender import main as serve

    install(dict.__setitem__)
    gmc.engines.nccl.require_nccl = lambda where: None
    serve()


if __name__ == "__main__":
    main()
