"""An agent with a calculator, over HTTP: the policy is asked for a product, may call the tool, and says the number.

python3 calculator.py                a service, for rollout.harness; --shuffled: the tool computes other products
python3 calculator.py data FOLDER    answers of a careless teacher for SFT (teacher.jsonl), products.jsonl, heldout.jsonl
"""
import json
import os
import random
import re
import sys
import threading
import urllib.request

TOOLS = [{"type": "function", "function": {"name": "calculator", "parameters": {
    "type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}]
LOCK = threading.Lock()


def compute(call, random_product):
    try:
        expression = json.loads(call["function"]["arguments"])["expression"]
        a, b = re.fullmatch(r"(\d{1,6})\*(\d{1,6})", expression).groups()
    except (ValueError, KeyError, TypeError, AttributeError):
        return "error"
    return str(random_product() if random_product else int(a) * int(b))


def ask(start, messages):
    body = json.dumps({"model": start["model"], "messages": messages, "tools": TOOLS}).encode()
    request = urllib.request.Request(start["base_url"] + "/chat/completions", body, {
        "Content-Type": "application/json", "Authorization": "Bearer " + start["api_key"]})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]


def session(id, start, shuffled):
    rng = random.Random(start["seed"])
    other = (lambda: rng.randint(10, 99) * rng.randint(10, 99)) if shuffled else None
    messages = [{"role": "user", "content": start["record"]["prompt"]}]
    for _ in range(3):
        said = ask(start, messages)
        messages.append(said)
        if not said.get("tool_calls"):
            break
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": compute(call, other)}
                     for call in said["tool_calls"]]
    reward = float((said["content"] or "").strip() == start["record"]["answer"])
    with LOCK:
        print(json.dumps({"id": id, "reward": reward, "parts": {"calls": len(messages) // 2 - 1}, "done": True}), flush=True)


def serve(shuffled):
    for line in sys.stdin:
        told = json.loads(line)
        if "start" in told:
            threading.Thread(target=session, args=(told["id"], told["start"], shuffled), daemon=True).start()


def write_data(folder):
    """Two in five times the teacher calls the tool; else he guesses."""
    os.makedirs(folder, exist_ok=True)
    rng = random.Random(1)
    problems = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    rng.shuffle(problems)
    files = {name: open(os.path.join(folder, name + ".jsonl"), "w") for name in ("heldout", "products", "teacher")}
    for i, (a, b) in enumerate(problems):
        question, product = f"{a}*{b}", str(a * b)
        line = {"prompt": question, "answer": product}
        files["heldout" if i < 256 else "products"].write(json.dumps(line) + "\n")
        for k in range(5 if i >= 256 else 0):
            messages = [{"role": "user", "content": question}]
            if k < 2:
                messages += [{"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": "c", "function": {
                    "name": "calculator", "arguments": {"expression": question}}}]},
                             {"role": "tool", "content": product, "tool_call_id": "c"},
                             {"role": "assistant", "content": product}]
            else:
                messages += [{"role": "assistant", "content": str(rng.randint(10, 99) * rng.randint(10, 99))}]
            files["teacher"].write(json.dumps({"messages": messages, "tools": TOOLS}) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["data"]:
        write_data(sys.argv[2])
    else:
        serve("--shuffled" in sys.argv)
