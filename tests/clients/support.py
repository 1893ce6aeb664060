"""What the tests with real clients share: a server, checks that print a line each, a policy that follows a script."""
import contextlib
import http.server
import json
import os
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request

FAILED = []


def check(name, holds):
    print(("ok    " if holds else "WRONG ") + name, flush=True)
    if not holds:
        FAILED.append(name)


def finish():
    sys.exit(bool(FAILED))


def recorder(url, path, client):
    """The URL of a server that hands requests on to `url` and writes what was posted to the end of a file: with
    RECORD=FILE the checks make tests/golden/clients/requests.jsonl so (prune_requests.py)."""
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def hand_on(self, body=None):
            request = urllib.request.Request(url + self.path, body, {
                k: v for k, v in self.headers.items() if k.lower() in ("content-type", "authorization", "x-api-key")})
            try:
                answer = urllib.request.urlopen(request)
            except urllib.error.HTTPError as error:
                answer = error
            said = answer.read()
            if body is not None:
                with open(path, "a") as file:
                    file.write(json.dumps({"client": client, "path": self.path, "body": json.loads(body),
                                           "status": answer.status}) + "\n")
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["Content-Type"])
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def do_GET(self):
            self.hand_on()

        def do_POST(self):
            self.hand_on(self.rfile.read(int(self.headers["Content-Length"])))

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{made.server_port}"


@contextlib.contextmanager
def server(temper, model, *more):
    """The URL of `temper serve`, without /v1."""
    process = subprocess.Popen([temper, "serve", "--model", model, "--port", "0", *more], stdout=subprocess.PIPE, text=True)
    try:
        url, record = process.stdout.readline().split()[2], os.environ.get("RECORD")
        yield recorder(url, record, os.path.basename(sys.argv[0]).removesuffix(".py").removesuffix("_client")) if record else url
    finally:
        process.terminate()
        check("SIGTERM ends the server with 0", process.wait(30) == 0)


CONTEXT = 131072
WIDTH = 32
TEMPLATE = """{%- if tools %}<|im_start|>system
# Tools

<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools><|im_end|>
{% endif %}{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% if messages %}{% set heard = messages[-1].content or '' %}STATES{% endif %}{% endif %}"""


def scripted_model(folder, tokenizer, script, otherwise):
    """A model folder whose policy says, for each (words, answer) of `script`, the answer where the last message has the
    words, and else `otherwise`: its weights know of a token alone which one follows, and the template ends a prompt with a
    token of what was heard."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(tokenizer, "tokenizer.json")) as file:
        tokens = json.load(file)
    with open(os.path.join(tokenizer, "tokenizer_config.json")) as file:
        settings = json.load(file)
    answers = [answer for _, answer in script] + [otherwise]
    first = len(tokens["model"]["vocab"])
    added = lambda id, text, special: tokens["added_tokens"].append(
        {"id": id, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special})
    follows = {}  # token -> the one behind it
    for i, answer in enumerate(answers):
        state, said = first + 2 * i, first + 2 * i + 1
        added(state, f"<|heard_{i}|>", True)
        added(said, answer, False)
        follows[state], follows[said] = said, 2  # <|im_end|>
    branches = "".join("{%% %s %s in heard %%}<|heard_%d|>" % ("if" if i == 0 else "elif", json.dumps(words), i)
                       for i, (words, _) in enumerate(script))
    settings["chat_template"] = TEMPLATE.replace(
        "STATES", branches + "{% else %}" + f"<|heard_{len(script)}|>" + "{% endif %}" if script else f"<|heard_0|>")
    vocabulary = first + 2 * len(answers)
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": WIDTH, "intermediate_size": 8,
              "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8,
              "vocab_size": vocabulary, "max_position_embeddings": CONTEXT, "tie_word_embeddings": False,
              "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "eos_token_id": 2, "torch_dtype": "float32"}
    rows = lambda count: [[0.0] * WIDTH for _ in range(count)]
    embedding, head = rows(vocabulary), rows(vocabulary)
    for place, (token, next_one) in enumerate(follows.items()):
        embedding[token][place] = 1.0
        head[next_one][place] = 20.0
    layer = "model.layers.0."
    tensors = {"model.embed_tokens.weight": embedding, "lm_head.weight": head, "model.norm.weight": [1.0] * WIDTH,
               layer + "input_layernorm.weight": [1.0] * WIDTH, layer + "post_attention_layernorm.weight": [1.0] * WIDTH,
               layer + "self_attn.q_norm.weight": [1.0] * 8, layer + "self_attn.k_norm.weight": [1.0] * 8,
               layer + "self_attn.q_proj.weight": rows(8), layer + "self_attn.k_proj.weight": rows(8),
               layer + "self_attn.v_proj.weight": rows(8), layer + "self_attn.o_proj.weight": [[0.0] * 8] * WIDTH,
               layer + "mlp.gate_proj.weight": rows(8), layer + "mlp.up_proj.weight": rows(8),
               layer + "mlp.down_proj.weight": [[0.0] * 8] * WIDTH}
    header, body = {}, b""
    for name, values in tensors.items():
        shape = [len(values), len(values[0])] if isinstance(values[0], list) else [len(values)]
        flat = [x for row in values for x in row] if len(shape) == 2 else values
        data = struct.pack(f"<{len(flat)}f", *flat)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + body)
    for name, value in (("config.json", config), ("tokenizer.json", tokens), ("tokenizer_config.json", settings)):
        with open(os.path.join(folder, name), "w") as file:
            json.dump(value, file)
    return folder


def call(name, **arguments):
    """A call as the policy writes it."""
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


def readme_program(folder, name):
    """The README's example of that name, written into a folder."""
    readme = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "README.md")
    with open(readme) as file:
        lines = file.read().split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith("    ") and line.endswith("# " + name))
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        for line in lines[first:]:
            if not line.startswith("    "):
                break
            file.write(line[4:] + "\n")
    return path


def train(temper, folder, model, program, lines, env):
    """The samples of a run of one step, in which the program plays two sessions of each line."""
    with open(folder + "/lines.jsonl", "w") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")
    with open(folder + "/run.toml", "w") as file:
        file.write('run.name = "run"\n')
    variables = ", ".join(f"{name} = {json.dumps(value)}" for name, value in env.items())
    done = subprocess.run([
        temper, "train", folder + "/run.toml", "run.dir=" + folder, "run.steps=1", "model.path=" + model,
        "rollout.harness={argv = [%s, %s], env = {%s}, retries = 2}" % (json.dumps(sys.executable), json.dumps(program), variables),
        f"rollout.prompts_per_step={len(lines)}", "rollout.samples_per_prompt=2", f"rollout.max_new_tokens={CONTEXT // 2}",
        "rollout.max_turn_tokens=512", "optimizer.lr=1e-6", f"data.train={folder}/lines.jsonl", "data.chat=true"])
    check("the run ends with 0", done.returncode == 0)
    with open(folder + "/run/rollouts/step-000001.jsonl") as file:
        return [json.loads(line) for line in file]
