#!/usr/bin/env python3
"""Makes tests/golden/tokenizer/settings.json: tokens that only the files beside tokenizer.json know, with transformers.

  golden_tokens.py tests/golden/tokenizer/settings.json

The file has "base", a tokenizer.json of the 256 bytes and <end>, and "cases": files beside it and, under "added",
more entries of its added_tokens; ids of "text", what they decode to without special tokens, names of special tokens
as a chat template sees them. "refused": what transformers reads in its own way and the program refuses, by this word.
"""
import json
import pathlib
import sys
import tempfile

from transformers import PreTrainedTokenizerFast

END = {"id": 256, "content": "<end>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
       "special": True}


def base():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, more = {b: chr(b) for b in kept}, 256
    for b in range(256):
        if b not in letters:
            letters[b], more = chr(more), more + 1
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [END], "normalizer": None,
            "post_processor": None, "pre_tokenizer": level, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "vocab": {letter: b for b, letter in letters.items()}, "merges": []}}


def token(content, **flags):
    return {"content": content, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False,
            "special": True, **flags}


def case(name, config=None, token_map=None, legacy=None, added=(), text=" a <tool> b", refused=None):
    files = {"tokenizer_config.json": {"eos_token": "<end>", **(config or {})}}
    if token_map is not None:
        files["special_tokens_map.json"] = token_map
    if legacy is not None:
        files["added_tokens.json"] = legacy
    row = {"name": name, "files": files, "added": list(added), "text": text}
    return {**row, "refused": refused} if refused else row


def written(content, **flags):
    return {"__type": "AddedToken", **token(content, **flags)}


def cases():
    listed = [{"id": 257, **token("<tool>")}]
    yield case("nothing")
    yield case("decoder", {"added_tokens_decoder": {"257": token("<tool>")}})
    yield case("decoder, two", {"added_tokens_decoder": {"258": token("<tool>"), "257": token("<b>")}})
    yield case("decoder, another id", {"added_tokens_decoder": {"300": token("<tool>")}}, refused="has to be 257")
    yield case("decoder, flags", {"added_tokens_decoder": {"257": token("<tool>", lstrip=True)}}, added=listed)
    yield case("decoder, stays special", {"added_tokens_decoder": {"257": token("<tool>", special=False)}},
               added=listed)
    yield case("decoder, becomes special", {"added_tokens_decoder": {"257": token("<tool>")}},
               added=[{"id": 257, **token("<tool>", special=False)}])
    yield case("decoder, few flags", {"added_tokens_decoder": {"257": {"content": "<tool>", "rstrip": True}}})
    yield case("decoder, of the vocabulary", {"added_tokens_decoder": {"97": token("a")}}, text="banana")
    yield case("pad", {"pad_token": "<tool>"})
    yield case("pad, written out", {"pad_token": written("<tool>", lstrip=True, special=False)})
    yield case("pad, of the vocabulary", {"pad_token": "a"}, text="banana")
    yield case("own name", {"tool_token": "<tool>", "other_token": written("<o>")}, text="<o><tool>")
    yield case("extra", {"extra_special_tokens": ["<tool>", "<x>"]}, text="<x><tool>")
    yield case("extra, written out", {"extra_special_tokens": [written("<tool>", rstrip=True)]})
    yield case("extra, named", {"extra_special_tokens": {"x_token": "<tool>", "y": "<y>"}}, text="<y><tool>")
    yield case("additional", {"additional_special_tokens": ["<tool>"]})
    yield case("additional and named", {"extra_special_tokens": {"x_token": "<b>"},
                                        "additional_special_tokens": ["<tool>"]})
    yield case("additional and extra", {"extra_special_tokens": ["<b>"], "additional_special_tokens": ["<tool>"]})
    yield case("legacy", legacy={"<tool>": 257})
    yield case("legacy, special", {"pad_token": "<tool>"}, legacy={"<tool>": 257})
    yield case("legacy, another id", legacy={"<tool>": 300}, refused="has to be 257")
    yield case("legacy beside decoder", {"added_tokens_decoder": {}}, legacy={"<tool>": 257})
    yield case("legacy, listed", legacy={"<tool>": 257, "<end>": 256}, added=listed)
    yield case("map", token_map={"pad_token": "<tool>", "additional_special_tokens": ["<x>"]}, text="<x><tool>")
    yield case("map wins", {"pad_token": "<b>"}, token_map={"pad_token": "<tool>"})
    yield case("map beside decoder", {"added_tokens_decoder": {}}, token_map={"pad_token": "<tool>"})
    yield case("map, written out", token_map={"pad_token": {"content": "<tool>", "lstrip": True}})
    yield case("map, own names", token_map={"x_token": "<tool>", "y_token": token("<y>")}, text="<y><tool>")
    yield case("order", {"unk_token": "<u>", "pad_token": "<p>", "bos_token": "<b>", "x_token": "<x>",
                         "extra_special_tokens": ["<tool>"]}, text="<b><u><p><x><tool>")
    yield case("split", {"split_special_tokens": True}, added=listed, refused="split_special_tokens")
    yield case("no split", {"split_special_tokens": False}, added=listed)
    yield case("a blank first", {"add_prefix_space": True}, refused="add_prefix_space")
    yield case("no blank first", {"add_prefix_space": False})


def measure(row, tree, folder):
    folder.mkdir()
    for name, content in row["files"].items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    tree = {**tree, "added_tokens": tree["added_tokens"] + row["added"]}
    (folder / "tokenizer.json").write_text(json.dumps(tree), encoding="utf-8")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    ids = tokenizer.encode(row["text"], add_special_tokens=False)
    return {**row, "ids": ids, "plain": tokenizer.decode(ids, skip_special_tokens=True),
            "names": tokenizer.special_tokens_map}


def main():
    with tempfile.TemporaryDirectory() as scratch:
        rows = [measure(row, base(), pathlib.Path(scratch) / str(i)) for i, row in enumerate(cases())]
    text = json.dumps({"base": base(), "cases": rows}, ensure_ascii=False, indent=0)
    pathlib.Path(sys.argv[1]).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
