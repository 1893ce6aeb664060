"""What the program says of the table of mathematical answers (tools/golden/golden_math.py), beside math-verify.
    python3 tools/math_sweep.py [TEMPER]    # default build/temper
tools/answers_model.py writes a model whose greedy answer to prompt K is response K, so that `eval` scores the pairs as it
scores a model. math-verify is asked where it can be imported (pip install math-verify[antlr4_13_2] into a venv of
one's own). Exit 1 when a pair is judged wrong, or math-verify is right more often."""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden"))
import answers_model
from golden_math import PAIRS


def program_verdicts(program, folder):
    pairs = os.path.join(folder, "pairs.jsonl")
    with open(pairs, "w", encoding="utf-8") as file:
        for gold, text, want in PAIRS:
            file.write(json.dumps({"gold": gold, "response": text, "want": want}) + "\n")
    answers_model.main(pairs, folder)
    result = os.path.join(folder, "result.jsonl")
    subprocess.run([program, "eval", os.path.join(folder, "eval.toml"), "--out", result, "--threads", "1"], check=True,
                   stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in open(result, encoding="utf-8")]
    if len(rows) != len(PAIRS) or not all(row["response"].endswith(pair[1]) for row, pair in zip(rows, PAIRS)):
        sys.exit("the responses of the model are not those of the table")
    return [int(row["reward"]) for row in rows]


def math_verify_verdicts():
    try:
        from math_verify import parse, verify
    except ImportError:
        return None
    return [int(bool(verify(parse("\\boxed{" + gold + "}"), parse(text)))) for gold, text, _ in PAIRS]


def report(name, verdicts):
    equal = sum(want for _, _, want in PAIRS)
    accepted = sum(v and want for v, (_, _, want) in zip(verdicts, PAIRS))
    refused = sum(not v and not want for v, (_, _, want) in zip(verdicts, PAIRS))
    print(f"{name}: {accepted} of {equal} equal pairs accepted, {refused} of {len(PAIRS) - equal} unequal ones refused")
    return accepted + refused


def main(program="build/temper"):
    with tempfile.TemporaryDirectory() as folder:
        ours = program_verdicts(os.path.abspath(program), folder)
    for verdict, (gold, text, want) in zip(ours, PAIRS):
        if verdict != want:
            print(f"reward {verdict}, right {want}: gold {gold!r}, response {text!r}")
    right, theirs = report("temper", ours), math_verify_verdicts()
    behind = theirs is not None and report("math-verify", theirs) > right
    return behind or right < len(PAIRS)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
