#!/usr/bin/env python3
"""Makes the golden files of the chat templates in tests/golden/chat with transformers and Jinja2.

templates/*.jinja       real templates (copied by --tokenizers) and style_*.jinja (written for the tests)
conversations.json      [{name, variables}], null-valued message keys included: kept as they are
rendered.json           {template: [{output} or {error} per conversation]}
expressions.json        [{template, variables, output or error}]: only the results are made anew

    tools/golden/golden_chat.py [--tokenizers DIR]     DIR/<name>/tokenizer_config.json for each name in REAL

Null-valued keys of messages are dropped before rendering, as apply_chat_template does. The day is fixed at DATE.
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
    arguments.add_argument("--tokenizers", type=pathlib.Path)
    options = arguments.parse_args()
    folder = GOLDEN / "templates"
    for name in REAL if options.tokenizers else []:
        config = json.loads((options.tokenizers / name / "tokenizer_config.json").read_text(encoding="utf-8"))
        (folder / f"{name}.jinja").write_text(config["chat_template"], encoding="utf-8")
    chat_template_utils.datetime = FixedDay
    cases = json.loads((GOLDEN / "conversations.json").read_text(encoding="utf-8"))
    rendered = {}
    for path in sorted(folder.glob("*.jinja")):
        template = path.read_bytes().decode("utf-8")
        rendered[path.stem] = [attempt(lambda: render_chat(template, c["variables"])) for c in cases]
    write("rendered.json", rendered)

    expressions = json.loads((GOLDEN / "expressions.json").read_text(encoding="utf-8"))
    for entry in expressions:
        entry.pop("output", None)
        entry.pop("error", None)
        entry.update(attempt(lambda: render_chat(entry["template"], {"messages": [], **entry["variables"]})))
    write("expressions.json", expressions)


if __name__ == "__main__":
    main()
