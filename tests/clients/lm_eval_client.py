"""lm-eval: a task of chats and one of log-likelihoods, whose sums are those of `temper score`.

usage: lm_eval_client.py TEMPER MODEL_DIR
"""
import json
import os
import subprocess
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HOME=tempfile.mkdtemp(), OPENAI_API_KEY="none")
import lm_eval
from lm_eval.tasks import TaskManager

from support import check, finish, server

temper, model = sys.argv[1:3]
here = os.path.dirname(os.path.abspath(__file__))


def said_to(verb, folder, line):
    """What a verb of temper makes of a line."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        out = subprocess.run([temper, verb, folder, model, "--input", file.name], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def tokens_of(text):
    return said_to("tokenize", "--tokenizer", {"text": text})["tokens"]


def likelihood(context, continuation):
    """By `temper score`."""
    whole, first = tokens_of(context + continuation), len(tokens_of(context))
    return sum(said_to("score", "--model", {"tokens": whole})["logprobs"][first - 1:])


with tempfile.TemporaryDirectory() as folder:
    with open(folder + "/sums.json", "w") as file:
        for i in range(8):
            file.write(json.dumps({"question": f"{i} + {3 * i}", "answer": str(4 * i), "wrong": str(4 * i + 1)}) + "\n")
    for name in os.listdir(here + "/lm_eval_tasks"):
        with open(f"{here}/lm_eval_tasks/{name}") as source, open(f"{folder}/{name}", "w") as file:
            file.write(source.read().replace("SUMS", folder + "/sums.json"))
    tasks = TaskManager(include_path=folder, include_defaults=False)
    with server(temper, model) as url:
        chat = lm_eval.simple_evaluate(model="local-chat-completions", tasks=["sums_chat"], task_manager=tasks,
                                       model_args=f"model=model,base_url={url}/v1/chat/completions,num_concurrent=4",
                                       apply_chat_template=True, log_samples=True, bootstrap_iters=0)
        check("lm-eval's chats", len(chat["samples"]["sums_chat"]) == 8 and
              all(s["resps"][0][0] for s in chat["samples"]["sums_chat"]))
        for backend in ("tokenizer_backend=remote", f"tokenizer_backend=huggingface,tokenizer={model}"):
            scores = lm_eval.simple_evaluate(
                model="local-completions", tasks=["sums_likelihood"], task_manager=tasks, batch_size=4,
                model_args=f"model=model,base_url={url}/v1/completions,{backend}", log_samples=True, bootstrap_iters=0)
            samples = scores["samples"]["sums_likelihood"]
            pairs = [(likelihood(*sample["arguments"][k]), float(sample["resps"][k][0][0]))
                     for sample in samples[:3] for k in range(3)]
            check("lm-eval's log-likelihoods, " + backend.split(",")[0], len(samples) == 8 and
                  all(abs(a - b) < 1e-9 * max(1, abs(a)) for a, b in pairs))
            print(pairs[:3])
finish()
