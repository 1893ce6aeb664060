"""Makes tests/golden/clients/requests.jsonl of what RECORD=FILE tests/clients/run.sh wrote: of each client the requests that
differ in their fields or go on with a dialogue, the first tools alone, and of long texts, which are the clients' own, how
long they are.

usage: prune_requests.py FILE > tests/golden/clients/requests.jsonl
"""
import json
import re
import sys

LONGEST, TOOLS = 59, 3


def cut(value):
    if isinstance(value, str):
        text = re.sub(r"/tmp/tmp\w+", "/folder", value)
        return text if len(text) <= LONGEST else f"A text of {len(text)} characters."
    if isinstance(value, list):
        return [cut(x) for x in value[:2000]]
    if isinstance(value, dict):
        return {k: "someone" if k == "user_id" else cut(v[:TOOLS] if k == "tools" else v) for k, v in value.items()}
    return value


seen = set()
for line in open(sys.argv[1]):
    request = json.loads(line)
    body = request["body"]
    shape = (request["client"], request["path"], tuple(sorted(body)), str(type(body.get("prompt"))), request["status"],
             tuple(m["role"] for m in body.get("messages", [])))
    if len(line) > 200000 or shape in seen:
        continue
    seen.add(shape)
    print(json.dumps(cut(request)))
