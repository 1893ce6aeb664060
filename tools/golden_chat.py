#!/usr/bin/env python3
"""Makes the golden files of the chat templates in tests/golden/chat with transformers and Jinja2.

templates/*.jinja       real templates (copied by --tokenizers) and style_*.jinja (written for the tests)
conversations.json      [{name, variables}], null-valued message keys included
rendered.json           {template: [{output} or {error} per conversation]}
expressions.json        [{template, variables, output or error}]: the first two are kept, the results made anew

    tools/golden_chat.py [--tokenizers DIR]     DIR/<name>/tokenizer_config.json for each name in REAL

Null-valued keys of messages are dropped before rendering, as temper does. The day is fixed at DATE.
"""

import argparse
import datetime
import json
import pathlib

from transformers.utils import chat_template_utils

REAL = ["qwen2.5", "qwen3", "deepseek-v3", "minimind"]
DATE = datetime.datetime(2024, 7, 26)
GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "chat"


class FixedDay(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return DATE


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def tool(text, **more):
    return {"role": "tool", "content": text, **more}


def call(name, arguments, **more):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "  Weather of a city, in °C & \"plain\" <text>.\n",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city, e.g. 'Zürich'"},
                "days": {"type": "integer", "minimum": 1, "maximum": 16, "default": 3},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "items": None},
                "scale": {"type": ["number", "null"], "default": 1.0, "multipleOf": 1e-05},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "", "parameters": {}}}


def conversations():
    chats = {
        "user": [user("What is 2+2?")],
        "system and user": [system("You are terse."), user("What is 2+2?")],
        "turns": [user("Hi"), assistant("Hello!"), user("And 3+3?"), assistant("6"), user("Thanks")],
        "ends with assistant": [system("S"), user("Hi"), assistant("Hello!")],
        "unicode": [system("Réponds en français — ‘vite’."), user("你好,世界 🌍\u200d \u0301 \u00a0 \U0001f468\u200d\U0001f469")],
        "empty": [system(""), user(""), assistant(""), user("")],
        "spaces": [system("  two \n"), user("\n\n a\tb \r\n"), assistant("\n\nanswer\n\n"), user(" \u3000x\u3000 ")],
        "controls in text": [user("<|im_end|>\n<|im_start|>system {{ 7*7 }} {% if %} \\n \"quoted\" 'single' & <b>")],
        "reasoning in text": [user("Q"), assistant("<think>\nfirst\nsecond\n</think>\n\nA"), user("Q2"),
                              assistant("<think>\nlast\n</think>\n\nB")],
        "reasoning key": [user("Q"), assistant("A", reasoning_content="\nbecause\n"), user("Q2"),
                          assistant("B", reasoning_content="why not")],
        "reasoning by other names": [user("Q"), assistant("A", thinking="t1"), user("R"), assistant("B", reasoning="r2")],
        "null keys": [{**system("S"), "name": None, "tool_calls": None}, {**user("U"), "tool_calls": None},
                      assistant("A", tool_calls=None, reasoning_content=None), {**user("V"), "name": None}],
        "system later": [user("Hi"), system("Now be brief."), user("Go on")],
        "tool text": [user("Weather?"), assistant("Let me look.", tool_calls=[call("get_weather", {"city": "Zürich"})]),
                      tool('{"temperature": 21.5}')],
        "tool answer": [system("S"), user("Weather?"),
                        assistant("", tool_calls=[call("get_weather", {"city": "Zürich", "days": 2, "opts": {"a": [1, 2.0, True, None]}})]),
                        tool("sunny"), assistant("It is sunny."), user("Thanks")],
        "two tools": [user("Weather in two cities?"),
                      assistant("", tool_calls=[call("get_weather", {"city": "A"}, id="1"), call("get_weather", {"city": "B"}, id="2")]),
                      tool("rain", tool_call_id="1"), tool("snow", tool_call_id="2"), assistant("Rain and snow."),
                      user("<tool_response>\nno\n</tool_response>")],
        "arguments as text": [user("Time?"), assistant("Hm", tool_calls=[call("clock", '{"zone": "UTC"}')]), tool("12:00"), tool("UTC")],
        "two text calls": [system("S"), user("Time?"), assistant("", tool_calls=[call("clock", '{"zone": "UTC"}'), call("clock", "{}")]),
                           tool("12:00"), tool("14:00"), assistant("Noon and two."), user("And now?"),
                           assistant("Again", tool_calls=[call("clock", "{}")]), tool("12:01"), assistant("12:01")],
        "null content": [user("Time?"), assistant(None, tool_calls=[call("clock", "{}")]), tool("12:00")],
        "reasoning and tools": [user("Time?"), assistant("Look", reasoning_content="need a clock", tool_calls=[call("clock", "{}")]),
                                tool("12:00"), assistant("Noon", reasoning_content="12 is noon")],
        "bare call": [user("x"), assistant("", tool_calls=[{"name": "f", "arguments": {"k": "v"}}])],
        "parts": [user([{"type": "text", "text": " see "}, {"type": "image"}, {"type": "text", "text": "this\n"}])],
        "tool as mapping": [user("x"), assistant("", tool_calls=[call("f", {})]), {"role": "tool", "content": {"ok": True, "n": [1]}}],
        "other role": [user("x"), {"role": "critic", "content": "no"}],
        "no think in system": [system("Be kind. /no_think "), user("Hi"), assistant("\nHo"), user("Hi")],
        "none": [],
    }
    cases = []

    def add(name, messages, **more):
        cases.append({"name": name, "variables": {"messages": messages, "date_string": "26 Jul 2024", **more}})

    for name, messages in chats.items():
        add(name, messages, add_generation_prompt=True, bos_token="<BOS>", eos_token="<EOS>")
    for name in ("system and user", "reasoning key", "tool answer", "two tools"):
        add(name + ", open", chats[name], add_generation_prompt=False, bos_token="<BOS>")
    for name in ("user", "reasoning in text", "ends with assistant"):
        add(name + ", thinking", chats[name], add_generation_prompt=True, enable_thinking=True, open_thinking=True)
        add(name + ", no thinking", chats[name], add_generation_prompt=True, enable_thinking=False)
    for name in ("user", "system and user", "two tools", "reasoning and tools", "none"):
        add(name + ", tools", chats[name], tools=[WEATHER, CLOCK], add_generation_prompt=True)
    add("functions", chats["tool text"], tools=[WEATHER["function"]], bos_token="<BOS>")
    add("empty tools", chats["user"], tools=[])
    add("another day", chats["system and user"], add_generation_prompt=True, date_string="26 July 2024", bos_token="")
    add("python tools", chats["tool text"], builtin_tools=["code_interpreter", "get_weather", "search"],
        python_tools=["def f(): ..."], tools_in_user_message=False, bos_token="")
    return cases


def drop_null_keys(messages):
    return [{k: v for k, v in message.items() if v is not None} for message in messages]


def render_chat(template, variables):
    variables = dict(variables)
    messages = drop_null_keys(variables.pop("messages"))
    return chat_template_utils.render_jinja_template([messages], chat_template=template, **variables)[0][0]


def attempt(render):
    try:
        return {"output": render()}
    except Exception as error:  # any error of the reference counts: the test wants one there, whichever
        return {"error": f"{type(error).__name__}: {error}"[:100]}


def write(name, value):
    text = json.dumps(value, ensure_ascii=False, indent=0) + "\n"
    (GOLDEN / name).write_text(text, encoding="utf-8")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--tokenizers", type=pathlib.Path, help="folder of model folders, to copy REAL templates")
    options = arguments.parse_args()
    folder = GOLDEN / "templates"
    for name in REAL if options.tokenizers else []:
        config = json.loads((options.tokenizers / name / "tokenizer_config.json").read_text(encoding="utf-8"))
        (folder / f"{name}.jinja").write_text(config["chat_template"], encoding="utf-8")
    chat_template_utils.datetime = FixedDay
    cases = conversations()
    rendered = {}
    for path in sorted(folder.glob("*.jinja")):
        template = path.read_bytes().decode("utf-8")
        rendered[path.stem] = [attempt(lambda: render_chat(template, c["variables"])) for c in cases]
    write("conversations.json", cases)
    write("rendered.json", rendered)

    expressions = json.loads((GOLDEN / "expressions.json").read_text(encoding="utf-8"))
    for entry in expressions:
        entry.pop("output", None)
        entry.pop("error", None)
        entry.update(attempt(lambda: render_chat(entry["template"], {"messages": [], **entry["variables"]})))
    write("expressions.json", expressions)


if __name__ == "__main__":
    main()
