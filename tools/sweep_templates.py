#!/usr/bin/env python3
"""Renders all chat templates of a folder with `temper tokenize --chat` and as apply_chat_template of transformers does,
and compares the texts byte for byte.

  tools/sweep_templates.py FOLDER [--temper build/temper] [--cases FILE.jsonl] [--show N] [--jobs N]

Templates are FOLDER/**/*.jinja and the chat_template of FOLDER/**/tokenizer_config.json. Each is rendered with every
conversation of the file of cases, one object of template variables a line (those of tests/golden/chat unless given),
and with the special tokens of a tokenizer_config.json that lies beside it. Each rendering is one of
  equal     the same text, or both refuse
  refused   transformers renders, temper refuses: said with its reason
  accepted  temper renders, transformers refuses
  DIFFERS   two texts: the exit code is 1
Needs transformers and jinja2 (pip install transformers), which temper itself does not.
"""
import argparse
import collections
import concurrent.futures
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
from transformers.utils import chat_template_utils  # noqa: E402

DATE = datetime.datetime(2024, 7, 26)
TODAY = {"date_string": DATE.strftime("%d %b %Y")}  # what strftime_now of temper tells, and templates read by itself
ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]


class FixedDay(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return DATE


def bytes_tokenizer():
    """A tokenizer.json of the 256 bytes: only the text matters here."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, more = {b: chr(b) for b in kept}, 256
    for b in range(256):
        if b not in letters:
            letters[b], more = chr(more), more + 1
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "post_processor": None, "pre_tokenizer": level, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "vocab": {letter: b for b, letter in letters.items()}, "merges": []}}


def special_tokens(config):
    tokens = {}
    for name in NAMES:
        value = config.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            tokens[name] = value
    return tokens


def find_templates(folder):
    """(name, text, special tokens) of each template."""
    for path in sorted(folder.rglob("*.jinja")):
        config = path.with_name("tokenizer_config.json")
        tokens = special_tokens(json.loads(config.read_text(encoding="utf-8"))) if config.exists() else {}
        yield str(path.relative_to(folder)), path.read_bytes().decode("utf-8"), tokens
    for path in sorted(folder.rglob("tokenizer_config.json")):
        config = json.loads(path.read_text(encoding="utf-8"))
        found = config.get("chat_template")
        texts = {"": found} if isinstance(found, str) else {t["name"]: t["template"] for t in found or []}
        for name, text in texts.items():
            yield f"{path.relative_to(folder)}{':' if name else ''}{name}", text, special_tokens(config)


def default_cases():
    golden = json.loads((ROOT / "tests/golden/chat/conversations.json").read_text(encoding="utf-8"))
    return [case["variables"] for case in golden]


def prepared(message):
    """Without null keys, as apply_chat_template; its reasoning is found under both names that templates read."""
    found = {key: value for key, value in message.items() if value is not None}
    names = [name for name in ("reasoning_content", "thinking", "reasoning") if name in found]
    if not names:
        return found
    reasoning = found[names[0]]
    return {"thinking": found.get("thinking", reasoning),
            **{key: value for key, value in found.items() if key != "thinking"}, "reasoning_content": reasoning}


def expected(text, tokens, case):
    """As apply_chat_template of transformers, or None where it refuses."""
    variables = {**tokens, "add_generation_prompt": True, **case, **TODAY}
    messages = [prepared(message) for message in variables.pop("messages")]
    try:
        return chat_template_utils.render_jinja_template([messages], chat_template=text, **variables)[0][0], ""
    except Exception as error:  # whichever: the reference refuses
        return None, f"{type(error).__name__}: {error}".splitlines()[0][:160]


def temper_lines(temper, folder, cases, first):
    """Texts of the cases from `first` on until one is refused, and the reason of that one."""
    lines = folder / "in.jsonl"
    with open(lines, "w", encoding="utf-8") as out:
        for case in cases[first:]:
            out.write(json.dumps({**case, **TODAY}) + "\n")
    run = subprocess.run([temper, "tokenize", "--tokenizer", folder, "--input", lines, "--chat"], capture_output=True,
                         text=True, encoding="utf-8")
    why = [line.strip() for line in run.stderr.splitlines() if line.strip().startswith(("why:", "where:"))]
    return [json.loads(line)["text"] for line in run.stdout.split("\n") if line], run.returncode, " ".join(why)[:300]


def got(temper, text, tokens, cases):
    texts = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "tokenizer.json").write_text(json.dumps(bytes_tokenizer()), encoding="utf-8")
        added = {str(256 + i): {"content": t, "special": True} for i, t in enumerate(dict.fromkeys(tokens.values()))}
        (folder / "tokenizer_config.json").write_text(json.dumps({**tokens, "added_tokens_decoder": added}),
                                                      encoding="utf-8")
        (folder / "chat_template.jinja").write_bytes(text.encode("utf-8"))
        while len(texts) < len(cases):
            more, code, why = temper_lines(temper, folder, cases, len(texts))
            texts += [(one, "") for one in more]
            if len(texts) == len(cases):
                break
            if code != 65:
                raise SystemExit(f"temper ended with {code}: {why}")
            texts.append((None, why))
    return texts


def judge(want, have):
    if want == have:
        return "equal"
    return "accepted" if want is None else "refused" if have is None else "DIFFERS"


def sweep(temper, entry, cases):
    name, text, tokens = entry
    rows = []
    for i, (have, why) in enumerate(got(temper, text, tokens, cases)):
        want, reason = expected(text, tokens, cases[i])
        rows.append((judge(want, have), name, i, want, have, why or reason))
    return rows


def report(rows, show):
    counts = collections.Counter(row[0] for row in rows)
    for kind in ("DIFFERS", "refused", "accepted"):
        reasons = collections.defaultdict(list)
        for row in rows:
            if row[0] == kind:
                reasons[(row[1], row[5])].append(row)
        for (name, why), found in list(reasons.items())[:show]:
            print(f"{kind} {name}, {len(found)} cases, the first is {found[0][2]}: {why}")
            if kind == "DIFFERS":
                print(f"  transformers {found[0][3]!r}\n  temper       {found[0][4]!r}")
    templates = len({row[1] for row in rows})
    print(f"{len(rows)} renderings of {templates} templates: " +
          ", ".join(f"{counts[kind]} {kind}" for kind in ("equal", "refused", "accepted", "DIFFERS")))
    return counts["DIFFERS"] > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--temper", default=str(ROOT / "build/temper"))
    parser.add_argument("--cases", type=pathlib.Path)
    parser.add_argument("--show", type=int, default=40, help="lines of each kind")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    chat_template_utils.datetime = FixedDay
    cases = default_cases()
    if options.cases:
        cases = [json.loads(line) for line in options.cases.read_text(encoding="utf-8").splitlines() if line.strip()]
    entries = list(find_templates(options.folder))
    if not entries:
        raise SystemExit(f"no templates in {options.folder}")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        parts = pool.map(lambda entry: sweep(options.temper, entry, cases), entries)
        rows = [row for part in parts for row in part]
    sys.exit(report(rows, options.show))


if __name__ == "__main__":
    main()
