#!/usr/bin/env python3
"""Makes data/gsm8k/train.jsonl and test.jsonl, which the configs of conf/ name, from the downloaded data set:

    hf download openai/gsm8k --repo-type dataset --local-dir downloads/gsm8k
    python3 tools/gsm8k_data.py downloads/gsm8k            # [OUT], data/gsm8k without it

Takes the folder of openai/gsm8k (main/train-*.parquet, read with pyarrow), or one with train.jsonl and test.jsonl.
Each line is {"question": ..., "answer": "... #### 42"}; a file is written whole or not at all.
"""
import json
import os
import pathlib
import re
import sys

FINAL = re.compile(r"####\s*\S*\d")


def stop(message):
    sys.exit("gsm8k_data: " + message)


def read_jsonl(path):
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield f"{path}:{number}", json.loads(line)
            except ValueError as error:
                stop(f"{path}:{number} is no JSON: {error}")


def read_parquet(path):
    try:
        import pyarrow.parquet
    except ImportError:
        stop(f"{path} is Parquet, which needs pyarrow: pip install pyarrow, or give a folder with train.jsonl and test.jsonl")
    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except Exception as error:  # of pyarrow or the file
        stop(f"{path} cannot be read: {error}")
    for number, row in enumerate(rows):
        yield f"{path}, row {number}", row


def files_of(folder, split):
    """The files of a split, nearest first: never both configurations of the data set ("socratic" has other answers)."""
    for place in (folder, folder / "main", folder / "data"):
        for pattern in (f"{split}.jsonl", f"{split}-*.parquet", f"{split}.parquet"):
            found = sorted(place.glob(pattern))
            if found:
                return found
    stop(f"{folder} has no {split}.jsonl and no main/{split}-*.parquet: give the folder that openai/gsm8k was downloaded to")


def rows_of(folder, split):
    for path in files_of(folder, split):
        for place, row in (read_parquet if path.suffix == ".parquet" else read_jsonl)(path):
            if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in ("question", "answer")):
                stop(f"{place} has no texts \"question\" and \"answer\"")
            if not FINAL.search(row["answer"]):
                stop(f"{place}: its answer does not end with #### and a number")
            yield {"question": row["question"], "answer": row["answer"]}


def write(path, rows):
    half = path.with_name(path.name + f".tmp.{os.getpid()}")
    with open(half, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
    os.replace(half, path)
    print(f"{path}: {len(rows)} lines")


def main(arguments):
    if len(arguments) not in (1, 2) or arguments[0] in ("-h", "--help"):
        stop("usage: tools/gsm8k_data.py DOWNLOADED [OUT]\n\n" + __doc__)
    folder, out = pathlib.Path(arguments[0]), pathlib.Path(arguments[1] if len(arguments) > 1 else "data/gsm8k")
    if not folder.is_dir():
        stop(f"{folder} is no folder: give the one that openai/gsm8k was downloaded to")
    splits = {split: list(rows_of(folder, split)) for split in ("train", "test")}
    for split, rows in splits.items():
        if not rows:
            stop(f"{folder} has no lines of {split}")
    out.mkdir(parents=True, exist_ok=True)
    for split, rows in splits.items():
        write(out / f"{split}.jsonl", rows)


if __name__ == "__main__":
    main(sys.argv[1:])
