"""Real clients against `temper serve`: openai, anthropic and litellm, whole and streamed, alone and many at once.

usage: serve_clients.py TEMPER MODEL_DIR      exit 0: all held; each check prints a line
"""
import concurrent.futures
import json
import subprocess
import sys
import tempfile

import anthropic
import litellm
import openai

from support import check, finish, server

temper, model = sys.argv[1:3]
PROMPTS = [f"Tell me about the number {i}." for i in range(8)]


def generated():
    """What `temper generate` says to the same messages, greedily."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as prompts:
        for text in PROMPTS:
            prompts.write(json.dumps({"messages": [{"role": "user", "content": text}]}) + "\n")
        prompts.flush()
        out = subprocess.run(
            [temper, "generate", "--model", model, "--chat", "--prompts", prompts.name, "rollout.temperature=0",
             "rollout.max_new_tokens=12"], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def evaluated():
    """What `temper eval` samples for the same messages, greedily."""
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/lines.jsonl", "w") as lines:
            for text in PROMPTS:
                lines.write(json.dumps({"prompt": text, "answer": "1"}) + "\n")
        with open(folder + "/run.toml", "w") as config:
            config.write('run.name = "eval"\n')
        subprocess.run(
            [temper, "eval", folder + "/run.toml", "run.dir=" + folder, "run.steps=1", "model.path=" + model,
             f"data.train={folder}/lines.jsonl", f"validation.data={folder}/lines.jsonl", "data.chat=true",
             'reward.functions=["arithmetic"]', "validation.rollout.temperature=0", "rollout.max_new_tokens=12",
             f"rollout.prompts_per_step={len(PROMPTS)}", "rollout.samples_per_prompt=2", "optimizer.lr=0",
             "--out", folder + "/said.jsonl"], check=True, capture_output=True)
        with open(folder + "/said.jsonl") as said:
            return [json.loads(line) for line in said]


def ask(client, text, **more):
    return client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": text}], temperature=0, max_tokens=12,
        extra_body={"return_token_ids": True}, logprobs=True, **more)


def run(url):
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    expected = generated()
    answers = [ask(client, text) for text in PROMPTS]
    check("greedy answers are those of `temper generate`, ids and log-probs",
          all(a.choices[0].token_ids == e["tokens"] and
              [t.logprob for t in a.choices[0].logprobs.content] == e["logprobs"] and
              a.choices[0].message.content == e["text"]
              for a, e in zip(answers, expected)))
    samples = evaluated()
    check("`temper eval` samples the same ids with the same log-probs",
          len(samples) == len(answers) and
          all(a.choices[0].token_ids == e["response_tokens"] and
              [t.logprob for t in a.choices[0].logprobs.content] == e["logprobs"]
              for a, e in zip(answers, samples)))
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        many = list(pool.map(lambda i: ask(client, PROMPTS[i % len(PROMPTS)]), range(64)))
    check("the same among 64 clients",
          all(many[i].choices[0].token_ids == expected[i % len(PROMPTS)]["tokens"] for i in range(64)))
    chunks = list(ask(client, PROMPTS[0], stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    ids = [i for c in chunks if c.choices for i in getattr(c.choices[0], "token_ids", None) or []]
    check("a stream says the same text and ids",
          text == answers[0].choices[0].message.content and ids == expected[0]["tokens"])
    check("a stream ends with usage", chunks[-1].usage.completion_tokens == len(ids))
    with client.chat.completions.stream(model="any", messages=[{"role": "user", "content": PROMPTS[1]}],
                                        temperature=0, max_tokens=12) as stream:
        helped = "".join(event.delta for event in stream if event.type == "content.delta")
    check("openai's stream helper", helped == answers[1].choices[0].message.content)
    seeded = [client.chat.completions.create(model="any", messages=[{"role": "user", "content": "x"}], seed=s,
                                             max_tokens=12).choices[0].message.content for s in (1, 1, 2)]
    check("a seed repeats", seeded[0] == seeded[1] != seeded[2])
    lite = litellm.completion(model="openai/any", api_base=url + "/v1", api_key="none", temperature=0,
                              max_tokens=12, messages=[{"role": "user", "content": PROMPTS[2]}])
    check("litellm", lite.choices[0].message.content == answers[2].choices[0].message.content)
    streamed = litellm.completion(model="openai/any", api_base=url + "/v1", api_key="none", temperature=0,
                                  max_tokens=12, stream=True, messages=[{"role": "user", "content": PROMPTS[2]}])
    check("litellm's stream", "".join(c.choices[0].delta.content or "" for c in streamed) ==
          answers[2].choices[0].message.content)
    try:
        litellm.completion(model="openai/any", api_base=url + "/v1", api_key="none", num_retries=0,
                           messages=[{"role": "user", "content": "word " * 100000}])
        check("a prompt that is too long is refused", False)
    except litellm.ContextWindowExceededError:
        check("a prompt that is too long is refused", True)
    try:
        client.chat.completions.create(model="any", messages=[{"role": "user", "content": "x"}],
                                       response_format={"type": "json_object"})
        check("what cannot be obeyed is refused by name", False)
    except openai.BadRequestError as error:
        check("what cannot be obeyed is refused by name", error.param == "response_format")
    claude = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    asked = dict(model="any", max_tokens=12, extra_body={"temperature": 0}, messages=[{"role": "user", "content": PROMPTS[3]}])
    check("anthropic", claude.messages.create(**asked).content[0].text == answers[3].choices[0].message.content)
    with claude.messages.stream(**asked) as stream:
        said = "".join(stream.text_stream)
        check("anthropic's stream helper", said == answers[3].choices[0].message.content and
              stream.get_final_message().stop_reason == "max_tokens")
    counted = claude.messages.count_tokens(model="any", messages=asked["messages"]).input_tokens
    check("anthropic counts tokens", counted == answers[3].usage.prompt_tokens)
    try:
        claude.messages.create(**{**asked, "messages": [{"role": "user", "content": "word " * 100000}]})
        check("anthropic hears that a prompt is too long", False)
    except anthropic.BadRequestError as error:
        check("anthropic hears that a prompt is too long", "prompt is too long" in str(error))
    check("models", [m.id for m in client.models.list()] != [])


with server(temper, model) as url:
    run(url)
finish()
