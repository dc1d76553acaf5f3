"""A few lines of Python that load an exported policy with transformers alone and ask it as it was asked in training."""

from gmc.problems.templates import Template

QUESTION = "What is $37+5$?"
"""Asked in the example: nobody's data."""

PLACE = "{question}"

HEAD = """from transformers import AutoModelForCausalLM, AutoTokenizer

name = "{name}"{remark}
model = AutoModelForCausalLM.from_pretrained(name{trust})
tokenizer = AutoTokenizer.from_pretrained(name{trust})

PROMPT = {prompt}
question = {question}
"""
PLAIN = """inputs = tokenizer(PROMPT.replace("{question}", question), return_tensors="pt")
"""
CHAT = """messages = [{"role": "user", "content": PROMPT.replace("{question}", question)}]
inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
"""
TAIL = """output = model.generate(
    inputs["input_ids"],
    attention_mask=inputs["attention_mask"],
    max_new_tokens={max_tokens},
    do_sample=False,  # in training: do_sample=True, temperature={temperature:g}, top_k=0, top_p=1.0{stop}
)
print(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))
"""


def snippet(
    template: Template, *, name: str, remark: str, max_tokens: int, temperature: float, trust_remote_code: bool = False
) -> str:
    """The code. name: what is loaded, "." for the folder that the code runs in; remark: a comment behind it."""
    head = HEAD.format(
        name=name,
        remark=f"  # {remark}" if remark else "",
        trust=", trust_remote_code=True" if trust_remote_code else "",
        prompt=literal(template.write(PLACE)),
        question=literal(QUESTION),
    )
    stop = f"\n    stop_strings={list(template.stop)!r},\n    tokenizer=tokenizer," if template.stop else ""
    tail = TAIL.format(max_tokens=max_tokens, temperature=temperature, stop=stop)
    return head + (CHAT if template.chat else PLAIN) + tail


def literal(text: str) -> str:
    """A text as Python writes it, over several lines where it has several and that is possible as it stands."""
    plain = "\n" in text and '"""' not in text and not text.endswith(('"', "\\")) and text.replace("\n", "").isprintable()
    return f'r"""{text}"""' if plain else repr(text)
