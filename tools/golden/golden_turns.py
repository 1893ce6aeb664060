#!/usr/bin/env python3
"""Writes tests/golden/turns: which ids of conversations transformers takes for the assistant's, on the four real templates.

  tools/golden/golden_turns.py

The templates of tests/golden/chat get `generation` marks around what a model says behind the generation prompt, up to its
end-of-turn token (that a marked one renders what the original does is checked), and apply_chat_template of transformers
returns the mask. The tokenizer has the 256 bytes and the special tokens of the four. Needs transformers.
"""
import json
import os
import pathlib
import re

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
from transformers import PreTrainedTokenizerFast  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OUT = ROOT / "tests/golden/turns"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>",
           "<｜Assistant｜>"]
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}}]
END = "{{- '<|im_end|>' }}{%- endgeneration %}{{- '\\n' }}"
MARKS = {
    "qwen2.5": [
        ("{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}",
         "{{- '<|im_start|>' + message.role + '\\n' }}{%- if message.role == 'assistant' %}{%- generation %}"
         "{{- message.content + '<|im_end|>' }}{%- endgeneration %}{%- else %}{{- message.content + '<|im_end|>' }}"
         "{%- endif %}{{- '\\n' }}"),
        ("        {{- '<|im_start|>' + message.role }}\n", "        {{- '<|im_start|>' + message.role + '\\n' }}{%- generation %}\n"),
        ("{{- '\\n' + message.content }}", "{{- message.content }}"),
        ("{{- '\\n<tool_call>\\n{\"name\": \"' }}",
         "{%- if message.content or not loop.first %}{{- '\\n' }}{%- endif %}{{- '<tool_call>\\n{\"name\": \"' }}"),
        ("        {{- '<|im_end|>\\n' }}\n    {%- elif message.role == \"tool\" %}",
         "        " + END + "\n    {%- elif message.role == \"tool\" %}"),
    ],
    "qwen3": [
        ("        {%- if loop.index0 > ns.last_query_index %}",
         "        {{- '<|im_start|>' + message.role + '\\n' }}{%- generation %}\n        {%- if loop.index0 > ns.last_query_index %}"),
        ("{{- '<|im_start|>' + message.role + '\\n<think>", "{{- '<think>"),
        ("{{- '<|im_start|>' + message.role + '\\n' + content }}", "{{- content }}"),
        ("        {{- '<|im_end|>\\n' }}\n    {%- elif message.role == \"tool\" %}",
         "        " + END + "\n    {%- elif message.role == \"tool\" %}"),
    ],
    "minimind": [
        ("        {%- if true %}\n", ""),
        ("        {%- endif %}\n        {%- if message.tool_calls %}", "        {%- if message.tool_calls %}"),
        ("{{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + "
         "content.lstrip('\\n') }}",
         "{{- '<|im_start|>' + message.role + '\\n<think>\\n' }}{%- if not open_thinking %}{{- '\\n</think>\\n\\n' }}{%- endif %}"
         "{%- generation %}{%- if open_thinking %}{{- reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}{%- endif %}"
         "{{- content.lstrip('\\n') }}"),
        ("        {{- '<|im_end|>\\n' }}\n    {%- elif message.role == \"tool\" %}",
         "        " + END + "\n    {%- elif message.role == \"tool\" %}"),
    ],
    "deepseek-v3": [
        ("{{'<｜tool▁outputs▁end｜>' + message['content'] + '<｜end▁of▁sentence｜>'}}",
         "{{'<｜tool▁outputs▁end｜>'}}{% generation %}{{message['content'] + '<｜end▁of▁sentence｜>'}}{% endgeneration %}"),
        ("{{content + '<｜end▁of▁sentence｜>'}}", "{% generation %}{{content + '<｜end▁of▁sentence｜>'}}{% endgeneration %}"),
        ("{%- for tool in message['tool_calls'] %}", "{% generation %}{%- for tool in message['tool_calls'] %}"),
        ("{{'<｜tool▁calls▁end｜><｜end▁of▁sentence｜>'}}", "{{'<｜tool▁calls▁end｜><｜end▁of▁sentence｜>'}}{% endgeneration %}"),
    ],
}


def user(text):
    return {"role": "user", "content": text}


def says(text, reasoning=None):
    said = {"role": "assistant", "content": text}
    return said | ({"reasoning_content": reasoning} if reasoning else {})


def calls(arguments, content="", as_text=False):
    return says(content) | {"tool_calls": [
        {"id": f"call{i}", "type": "function",
         "function": {"name": "add", "arguments": json.dumps(a) if as_text else a}} for i, a in enumerate(arguments)]}


def tool(text):
    return {"role": "tool", "content": text}


def conversations(template):
    text = template == "deepseek-v3"
    talk = [user("2 + 2?"), says("4"), user("And é + ü?\n"), says("  No\nnumbers, 你好."), user("So?"), says("So.")]
    loop = [user("1 + 2, 3 + 4?"), calls([{"a": 1, "b": 2}, {"a": 3, "b": 4}], as_text=text), tool("3"), tool("7"),
            calls([{"a": 3, "b": 7}], "Now both.", as_text=text), tool("10"), says("3, 7, and 10 in all.")]
    rules = [{"role": "system", "content": "Be brief."}]
    two = loop + [user("Thanks."), says("Bye.")]
    cases = [("talk", talk, {}), ("rules", rules + talk, {}), ("one", talk[:2], {}), ("loop", loop, {"tools": TOOLS}),
             ("rules, loop", rules + loop, {"tools": TOOLS}), ("loop, talk", two, {"tools": TOOLS})]
    if template == "minimind":
        thought = [user("2 + 2?"), says("4", "Two and two."), user("Sure?"), says("Yes.", "It is."), user("So?"), says("So.")]
        cases += [("thoughts", thought, {"open_thinking": True})]
    if template == "qwen3":
        called = [m | {"reasoning_content": "Hm."} if m["role"] == "assistant" else m for m in loop]
        cases += [("thoughts", [user("2 + 2?"), says("4", "Two and two.")], {}), ("thoughts, loop", called, {"tools": TOOLS})]
    return cases


def byte_letters():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, more = {b: chr(b) for b in kept}, 256
    for b in range(256):
        if b not in letters:
            letters[b], more = chr(more), more + 1
    return letters


def write_tokenizer():
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    added = [{"id": 256 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, text in enumerate(SPECIAL)]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "vocab": {c: b for b, c in byte_letters().items()}, "merges": []}
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
             "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": model}
    (OUT / "tokenizer.json").write_text(json.dumps(whole, ensure_ascii=False) + "\n")


def spans_of(mask):
    spans = []
    for i, m in enumerate(mask):
        if m and (i == 0 or not mask[i - 1]):
            spans.append([i, i])
        if m:
            spans[-1][1] = i + 1
    return spans


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    write_tokenizer()
    out = []
    for template, marks in MARKS.items():
        original = (ROOT / f"tests/golden/chat/templates/{template}.jinja").read_text()
        marked = original
        for before, after in marks:
            assert before in marked, (template, before)
            marked = marked.replace(before, after)
        deepseek = template == "deepseek-v3"
        names = {"bos_token": SPECIAL[3], "eos_token": SPECIAL[4]} if deepseek else {"eos_token": "<|im_end|>"}
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(OUT / "tokenizer.json"), **names)
        for name, messages, variables in conversations(template):
            plain = tokenizer.apply_chat_template(messages, chat_template=original, tokenize=False, **variables)
            made = tokenizer.apply_chat_template(messages, chat_template=marked, tokenize=True, return_dict=True,
                                                 return_assistant_tokens_mask=True, **variables)
            ids, mask = made["input_ids"], made["assistant_masks"]
            assert tokenizer.decode(ids) == plain, (template, name)
            out.append({"template": template, "name": name, "special": names, "messages": messages, "variables": variables,
                        "text": plain, "ids": len(ids), "spans": spans_of(mask)})
    text = json.dumps(out, ensure_ascii=False, indent=1)
    text = re.sub(r"\[\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2]", text)
    (OUT / "masks.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
