"""Which GPUs sample, and what each sampling process sees of them."""

import pytest
import torch
from training_runs import small_settings

from gmc.engines.vllm_start import _device_ids
from gmc.errors import UsageError
from gmc.resolving.devices import ranks_on_this_machine, sampling_places
from gmc.training.sampler_process import sampler_environment

pytestmark = pytest.mark.unit


def places(*assignments, ranks=1, here=None, gpus=8):
    settings = small_settings(*assignments, "train.tokens_per_micro_batch=64", "train.activation_checkpointing=false")
    return sampling_places(settings, ranks=ranks, ranks_here=here or ranks, gpus=gpus)


def test_one_process_samples_where_it_trains():
    assert places("rollout.engine=vllm", "model.device=cuda") == []
    assert places("model.device=cuda", ranks=4) == []  # each rank samples with its own network
    assert places("rollout.engine=vllm", "delay=live", "model.device=cuda", ranks=4) == []


def test_vllm_beside_ranks_gets_the_gpus_that_are_left():
    assert places("rollout.engine=vllm", "model.device=cuda", ranks=4) == [["4"], ["5"], ["6"], ["7"]]
    assert places("rollout.engine=vllm", "model.device=cuda", "rollout.tensor_parallel=2", ranks=4) == [["4", "5"], ["6", "7"]]
    assert places("rollout.engine=vllm", "model.device=cuda", ranks=8, here=4) == [["4"], ["5"], ["6"], ["7"]]
    assert places("rollout.engine=vllm", "model.device=cpu", ranks=2, gpus=0) == [["cpu"]]


def test_named_devices_are_used_whatever_the_engine():
    assert places('rollout.devices=["1","3"]', "model.device=cuda") == [["1"], ["3"]]
    assert places('rollout.devices=["0","2"]', "model.device=cuda:1") == [["0"], ["2"]]
    assert places('rollout.devices=["cpu","cpu"]', "model.device=cpu", gpus=0) == [["cpu"], ["cpu"]]


@pytest.mark.parametrize(
    ("assignments", "ranks", "message"),
    [
        (['rollout.devices=["0"]'], 1, "a rank trains on GPU 0"),
        (['rollout.devices=["9"]'], 1, "there is no GPU 9; torch sees 8"),
        (['rollout.devices=["3","3"]'], 1, "named twice"),
        (['rollout.devices=["cpu","3"]'], 1, "do not go together"),
        (["rollout.engine=vllm"], 8, "0 GPUs are left for sampling.*--nproc-per-node"),
        (["rollout.engine=vllm", "rollout.tensor_parallel=2"], 5, "3 GPUs are left for sampling"),
    ],
)
def test_what_cannot_be_is_refused_with_the_cure(assignments, ranks, message):
    with pytest.raises(UsageError, match=message):
        places("model.device=cuda", *assignments, ranks=ranks)


def test_a_device_is_a_number_or_cpu():
    with pytest.raises(UsageError, match=r"rollout\.devices"):
        small_settings('rollout.devices=["cuda:4"]')


def test_ranks_of_this_machine_are_those_that_torchrun_says():
    assert ranks_on_this_machine({"LOCAL_WORLD_SIZE": "4", "WORLD_SIZE": "8"}) == 4
    assert ranks_on_this_machine({}) == 1


def test_a_sampling_process_sees_its_own_gpus_and_nothing_of_torchrun():
    torchrun = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    torchrun |= {"TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "ROLE_RANK": "0"}
    assert sampler_environment(["4", "5"], {"PATH": "/bin", **torchrun}) == {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "4,5"}
    assert sampler_environment(["1"], {"CUDA_VISIBLE_DEVICES": "6,7"}) == {"CUDA_VISIBLE_DEVICES": "7"}
    assert sampler_environment(["1"], {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}) == {"CUDA_VISIBLE_DEVICES": "GPU-b"}
    assert sampler_environment(["cpu"], {"CUDA_VISIBLE_DEVICES": "6,7"}) == {"CUDA_VISIBLE_DEVICES": ""}


def test_vllm_in_process_takes_the_gpu_of_the_model():
    assert _device_ids(torch.device("cuda:3"), 1) == [3]
    assert _device_ids(torch.device("cuda:2"), 2) == [2, 3]
    assert _device_ids(torch.device("cuda:0"), 2) is None
    assert _device_ids(torch.device("cuda"), 1) is None
    assert _device_ids(torch.device("cpu"), 1) is None
