#!/usr/bin/env bash
# What a GPU has to prove, on a Qwen3 of 1.7B parameters with random weights: scores and gradients on the device, the
# variable-length kernel against padded attention, the memory plan against the measured peak, vLLM with a padded head, its
# proof of weights and a 16-bit policy (benchmarks/device.py); then the paper-like and long updates in bfloat16: seconds, tokens/s,
# share of the matrix-product peak and peak memory, with and without prompt sharing, checkpointing, torch.compile and 8-bit
# AdamW. Meant to take about ten minutes on one GPU with 80 GB; nothing is downloaded. A check that fails ends it.
#
#     benchmarks/gpu.sh [RESULTS_FOLDER]
#
# On a machine without a GPU, `SHAPES=smoke benchmarks/gpu.sh` runs the same steps with a tiny model.
set -euo pipefail
cd "$(dirname "$0")/.."

results=${1:-benchmark-results}
mkdir -p "$results"
IFS='|' read -r -a shapes <<<"${SHAPES:-paper-like, 1.7B|long, 1.7B}"

python -m pytest -q tests/test_scoring_device.py
python -m benchmarks.device --json "$results/device.json" >/dev/null
python -m benchmarks.update --shapes "${shapes[@]}" --bfloat16 --variants --repeats 3 --json "$results/update.json" >/dev/null
python -m benchmarks.generation --json "$results/generation.json" >/dev/null
echo "results: $results"
