"""Which GPUs sample in processes of their own, and which stay with training."""

from collections.abc import Mapping

from gmc.config.settings import RunSettings
from gmc.delays.registry import delay_class
from gmc.engines.registry import load_engine
from gmc.errors import UsageError

Places = list[list[str]]
"""The devices of each sampling process."""


def sampling_places(settings: RunSettings, *, ranks: int, ranks_here: int, gpus: int) -> Places:
    """The devices of each sampling process, none where sampling happens where training does.

    An engine with processes of its own needs that for several ranks; without `rollout.devices` it then gets the GPUs of this
    machine that have no rank, or one process on a CPU. ranks_here: ranks on this machine, which have its first GPUs; gpus:
    how many torch sees. Raises `UsageError` for a device that is not there, that a rank trains on, and where none is left.
    """
    rollout, delay = settings.rollout, delay_class(settings.delay)
    engine = load_engine(rollout.engine)
    if delay.live or not delay.generates or not (rollout.devices or (ranks > 1 and engine.own_processes)):
        return []
    on_cpu = settings.model.device == "cpu"
    training = set() if on_cpu else _training_devices(settings.model.device, ranks_here)
    devices = list(rollout.devices) or (["cpu"] if on_cpu else [str(gpu) for gpu in range(gpus) if str(gpu) not in training])
    if "cpu" in devices:
        if set(devices) != {"cpu"}:
            raise UsageError(f"rollout.devices = {devices}: CPU and GPUs do not go together; name one kind")
        return [["cpu"] for _ in devices]
    size = rollout.tensor_parallel
    for device in devices:
        if device in training:
            raise UsageError(f"rollout.devices: a rank trains on GPU {device}; name others, or start fewer ranks")
        if int(device) >= gpus:
            raise UsageError(f"rollout.devices: there is no GPU {device}; torch sees {gpus}")
    if len(set(devices)) != len(devices):
        raise UsageError(f"rollout.devices = {devices}: a GPU is named twice")
    if not devices or len(devices) % size:
        raise UsageError(
            f"rollout.engine = {rollout.engine} beside {ranks} ranks: {len(devices)} GPUs are left for sampling, and each copy "
            f"takes rollout.tensor_parallel = {size}; start fewer ranks (--nproc-per-node), name GPUs in rollout.devices, or "
            "let gmc rollout --follow sample for --live"
        )
    return [devices[first : first + size] for first in range(0, len(devices), size)]


def ranks_on_this_machine(environment: Mapping[str, str]) -> int:
    """How many ranks torchrun started here, 1 without torchrun."""
    return int(environment.get("LOCAL_WORLD_SIZE", "1"))


def _training_devices(device: str, ranks_here: int) -> set[str]:
    """Numbers of the GPUs that train: each rank's own, or the one that a single process names."""
    _, _, index = device.partition(":")
    return {index} if index else {str(rank) for rank in range(ranks_here)}
