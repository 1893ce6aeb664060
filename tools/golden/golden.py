#!/usr/bin/env python3
"""Golden files of whole models, made with transformers (tests/golden/models) and with torch in fp64
(tests/golden/replay). Both are pure functions of the seeds here.

models/<name>/: config.json, random weights without a trivial parameter, and golden.safetensors with
  tokens, cu_seqlens      packed input sequences
  logprobs, weights       fp64 log-softmax of the fp32 logits for every next token; weights of the loss below
  grad/<tensor>           gradient of sum weights * logprobs for every tensor of the folder
  greedy_prompt, greedy   64 tokens of arg-max decoding, without a stop
replay/: a tiny Qwen3 folder, rollouts.jsonl, cases.json (settings and loss) and the gradient of every case;
  adapters/ (PEFT) and their gradient where they are trained beside the model, with the settings of kl-in-loss;
  rollouts-forks.jsonl (sessions whose histories forked) and gradient-forks-*

Needs torch, transformers 5, safetensors, numpy:  tools/golden/golden.py [name ...]
"""
import json
import os
import sys
import zlib

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden")
LENGTHS = (11, 23, 16)
GREEDY_PROMPT, GREEDY_TOKENS = 9, 64
MIN_GREEDY_MARGIN = 2e-3  # between the two best logits: far above fp32 noise
PAD = 5

BASE = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=2048, rms_norm_eps=1e-5, hidden_act="silu",
            tie_word_embeddings=False, bos_token_id=0, eos_token_id=1)
CLASSES = dict(llama="LlamaForCausalLM", qwen2="Qwen2ForCausalLM", qwen3="Qwen3ForCausalLM",
               qwen2_moe="Qwen2MoeForCausalLM", qwen3_moe="Qwen3MoeForCausalLM", mixtral="MixtralForCausalLM")


def config(family, rope=None, theta=10000.0, spelling=5, **keys):
    """config.json in the spelling of transformers 4 or 5."""
    out = dict(BASE, architectures=[CLASSES[family]], model_type=family) | keys
    if spelling == 4:
        out.update(rope_theta=theta, rope_scaling=rope, torch_dtype="float32")
    else:
        out.update(rope_parameters=dict(rope or dict(rope_type="default"), rope_theta=theta), dtype="float32")
    return out


LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=512)
YARN_FULL = dict(YARN, beta_fast=8.0, beta_slow=2.0, mscale=1.0, mscale_all_dim=0.7, truncate=False)


def longrope(context):
    return dict(rope_type="longrope", factor=4.0, original_max_position_embeddings=context,
                short_factor=[1.0, 1.1, 1.3, 1.6], long_factor=[1.0, 1.7, 2.9, 4.3])


# name: (config, file options)
MODELS = {
    "llama-default": (config("llama"), {}),
    "llama-tied": (config("llama", tie_word_embeddings=True), {}),
    "llama-linear": (config("llama", dict(rope_type="linear", factor=2.5)), {}),
    "llama-llama3-v4": (config("llama", LLAMA3, 500000.0, 4, head_dim=16), {}),
    "llama-llama3-v5": (config("llama", LLAMA3, 500000.0, 5, head_dim=16), {}),
    "llama-yarn": (config("llama", YARN, head_dim=16), {}),
    "llama-yarn-mscale": (config("llama", YARN_FULL, head_dim=16), {}),
    "llama-dynamic": (config("llama", dict(rope_type="dynamic", factor=2.0)), {}),
    "llama-longrope-short": (config("llama", longrope(1024)), {}),
    "llama-longrope-long": (config("llama", longrope(8)), {}),
    "llama-attention-bias": (config("llama", attention_bias=True), {}),
    "llama-mlp-bias": (config("llama", mlp_bias=True), {}),
    "llama-mha-v4": (config("llama", spelling=4, num_key_value_heads=4), {}),
    "llama-mqa-ratio4": (config("llama", num_key_value_heads=1), {}),
    "llama-ratio7": (config("llama", hidden_size=56, num_attention_heads=7, num_key_value_heads=1), {}),
    "llama-sharded": (config("llama"), dict(shards=3)),
    "qwen2-default": (config("qwen2", theta=1e6), {}),
    "qwen2-ratio7-tied-v4": (config("qwen2", None, 1e6, 4, hidden_size=56, num_attention_heads=14, head_dim=8,
                                    tie_word_embeddings=True, rms_norm_eps=1e-6), {}),
    "qwen2-fp16": (config("qwen2", theta=1e6), dict(dtype=torch.float16)),
    "qwen3-default": (config("qwen3", theta=1e6, head_dim=16), {}),
    "qwen3-tied-pad-v4": (config("qwen3", None, 1e6, 4, head_dim=16, tie_word_embeddings=True,
                                 pad_token_id=PAD), {}),
    "qwen3-attention-bias": (config("qwen3", theta=1e6, head_dim=16, attention_bias=True), {}),
    "qwen3-bf16": (config("qwen3", theta=1e6, head_dim=16), dict(dtype=torch.bfloat16)),
    "qwen3-yarn-sharded-bf16": (config("qwen3", YARN, 1e6, 4, head_dim=16),
                                dict(dtype=torch.bfloat16, shards=2)),
}


def random_weight(name, shape, rng):
    """Nothing trivial: norms away from one, biases away from zero."""
    x = torch.from_numpy(rng.standard_normal(shape))
    if "norm" in name:
        return 1.0 + 0.3 * x
    if name.endswith("bias"):
        return 0.3 * x
    if "embed_tokens" in name or "lm_head" in name:
        return 0.5 * x
    return 1.2 * x / shape[1] ** 0.5


def write_weights(folder, tensors, shards=1):
    names = sorted(tensors)
    if shards == 1:
        save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        return
    weight_map = {}
    for k in range(shards):
        file = f"model-{k + 1:05d}-of-{shards:05d}.safetensors"
        part = {n: tensors[n] for n in names[k::shards]}
        save_file(part, os.path.join(folder, file), metadata={"format": "pt"})
        weight_map.update({n: file for n in part})
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    write_json(os.path.join(folder, "model.safetensors.index.json"),
               {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))})


def write_json(path, value):
    with open(path, "w") as f:
        json.dump(value, f, indent=1)
        f.write("\n")


def fresh_folder(path):
    os.makedirs(path, exist_ok=True)
    for name in os.listdir(path):
        os.remove(os.path.join(path, name))


def load(folder, **options):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                output_loading_info=True, **options)


def meta_parameters(folder):
    """Names and shapes of the parameters that the config asks for, without their values."""
    with torch.device("meta"):
        return dict(AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).named_parameters())


def logits_of(model, tokens):
    return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


def greedy(model, prompt):
    """Arg-max decoding by full forwards; the smallest margin between the two best logits comes with it."""
    tokens, margin = list(prompt), float("inf")
    with torch.no_grad():
        for _ in range(GREEDY_TOKENS):
            best = torch.topk(logits_of(model, tokens)[-1], 2)
            margin = min(margin, (best.values[0] - best.values[1]).item())
            tokens.append(best.indices[0].item())
    return tokens[len(prompt):], margin


def random_sequences(vocab, rng):
    sequences = [rng.integers(0, vocab, n).tolist() for n in LENGTHS]
    for s in sequences:
        s[3] = PAD
    return sequences


def golden_tensors(name, model, sequences, rng, accept=lambda tokens: True):
    """The tensors of golden.safetensors; `accept` may refuse a prompt with its greedy answer."""
    vocab = model.config.vocab_size
    logprobs = []
    for s in sequences:
        lp = torch.log_softmax(logits_of(model, s).double(), -1)
        logprobs.append(lp[torch.arange(len(s) - 1), torch.tensor(s[1:])])
    logprobs = torch.cat(logprobs)
    weights = torch.from_numpy(rng.standard_normal(len(logprobs)))
    (weights * logprobs).sum().backward()

    for _ in range(1000):
        prompt = rng.integers(0, vocab, GREEDY_PROMPT).tolist()
        answer, margin = greedy(model, prompt)
        if margin >= MIN_GREEDY_MARGIN and len(set(answer)) >= 8 and accept(prompt + answer):
            break
    else:
        raise SystemExit(f"{name}: no prompt with a clear greedy path")
    out = {"grad/" + n: p.grad.float() for n, p in model.named_parameters()}
    out.update(tokens=torch.tensor(sum(sequences, []), dtype=torch.int32),
               cu_seqlens=torch.tensor(np.cumsum([0, *LENGTHS]), dtype=torch.int32),
               logprobs=logprobs.detach(), weights=weights,
               greedy_prompt=torch.tensor(prompt, dtype=torch.int32),
               greedy=torch.tensor(answer, dtype=torch.int32))
    print(f"{name}: {len(out) - 6} tensors, mean log-prob {logprobs.mean():.3f}, greedy margin {margin:.4f}, "
          f"{len(set(answer))} different tokens")
    return out


def make_model(name):
    settings, files = MODELS[name]
    folder = os.path.join(ROOT, "models", name)
    fresh_folder(folder)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    write_json(os.path.join(folder, "config.json"), settings)
    shapes = {n: tuple(p.shape) for n, p in meta_parameters(folder).items()}
    dtype = files.get("dtype", torch.float32)
    write_weights(folder, {n: random_weight(n, s, rng).to(dtype) for n, s in sorted(shapes.items())},
                  files.get("shards", 1))
    model, report = load(folder)
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    model.eval()
    sequences = random_sequences(settings["vocab_size"], rng)
    save_file(golden_tensors(name, model, sequences, rng), os.path.join(folder, "golden.safetensors"))


# ---- replay: fp64 throughout, but for the rope table and angle, which are fp32-rounded ----

REPLAY = config("qwen3", theta=1e6, head_dim=8, vocab_size=64, hidden_size=24, intermediate_size=40,
                tie_word_embeddings=True, rms_norm_eps=1e-6)
CASES = {
    "token-mean": dict(name="grpo", aggregation="token-mean", kl_coef=0.0, entropy_coef=0.0),
    "seq-mean-token-mean": dict(name="grpo", aggregation="seq-mean-token-mean", kl_coef=0.0,
                                entropy_coef=0.01),
    "kl-in-loss": dict(name="grpo", aggregation="token-mean", kl_coef=0.05, entropy_coef=0.01),
    "kl-seq-mean-token-mean": dict(name="grpo", aggregation="seq-mean-token-mean", kl_coef=0.05,
                                   entropy_coef=0.01),
    "sft": dict(name="sft", aggregation="token-mean", kl_coef=0.0, entropy_coef=0.0),
}
CLIP, ADVANTAGE_EPS = 0.2, 1e-6


def rope(settings, positions):
    d, theta = settings["head_dim"], np.float32(settings["rope_parameters"]["rope_theta"])
    exponent = (np.arange(0, d, 2).astype(np.float32) / np.float32(d)).astype(np.float32)
    p = np.power(np.float64(theta), exponent.astype(np.float64)).astype(np.float32)
    f = (np.float32(1) / p).astype(np.float32)
    angle = (np.arange(positions).astype(np.float32)[:, None] * f[None, :]).astype(np.float64)
    return torch.from_numpy(np.cos(angle)), torch.from_numpy(np.sin(angle))


def norm(x, w, eps):
    return w * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps))


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def qwen3_logits(w, c, tokens):
    n, d, heads, kv = len(tokens), c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
    eps = c["rms_norm_eps"]
    cos, sin = rope(c, n)
    mask = torch.full((n, n), float("-inf"), dtype=torch.float64).triu(1)
    h = w["model.embed_tokens.weight"][tokens]
    for i in range(c["num_hidden_layers"]):
        at = lambda name: w[f"model.layers.{i}.{name}.weight"]
        x = norm(h, at("input_layernorm"), eps)
        q, k, v = ((x @ at(f"self_attn.{name}_proj").T).view(n, -1, d).transpose(0, 1) for name in "qkv")
        q, k = norm(q, at("self_attn.q_norm"), eps), norm(k, at("self_attn.k_norm"), eps)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (t.repeat_interleave(heads // kv, 0) for t in (k, v))
        p = torch.softmax(q @ k.transpose(1, 2) * d ** -0.5 + mask, -1)
        h = h + (p @ v).transpose(0, 1).reshape(n, heads * d) @ at("self_attn.o_proj").T
        x = norm(h, at("post_attention_layernorm"), eps)
        gate = x @ at("mlp.gate_proj").T
        h = h + (gate * torch.sigmoid(gate) * (x @ at("mlp.up_proj").T)) @ at("mlp.down_proj").T
    return norm(h, w["model.norm.weight"], eps) @ w["model.embed_tokens.weight"].T


def adapted(weights, adapters, folder):
    """Weights with what these tensors of adapters of a PEFT folder add to them."""
    with open(os.path.join(folder, "adapter_config.json")) as f:
        config = json.load(f)
    scale = config["lora_alpha"] / (config["r"] ** 0.5 if config["use_rslora"] else config["r"])
    of = lambda n, part: adapters.get(n.removesuffix("weight") + f"lora_{part}.weight")
    return {n: t if of(n, "A") is None else t + scale * of(n, "B") @ of(n, "A") for n, t in weights.items()}


def response_stats(w, line):
    """Log-probs and entropies of the response tokens."""
    prompt, response = line["prompt_tokens"], line["response_tokens"]
    if not response:
        return torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
    tokens = prompt + response
    lp = torch.log_softmax(qwen3_logits(w, REPLAY, tokens), -1)[len(prompt) - 1:-1]
    return lp[torch.arange(len(response)), torch.tensor(response)], -(lp.exp() * lp).sum(-1)


def advantages(lines):
    out = []
    for g in sorted({line["group"] for line in lines}):
        r = np.array([line["reward"] for line in lines if line["group"] == g])
        same = r.max() == r.min()
        out += [0.0] * len(r) if same else ((r - r.mean()) / (r.std(ddof=1) + ADVANTAGE_EPS)).tolist()
    return out


def replay_loss(w, lines, case):
    counted = [sum(line["response_mask"]) for line in lines]
    tokens, sequences = sum(counted), sum(n > 0 for n in counted)
    total, clipped = torch.zeros((), dtype=torch.float64), 0
    for line, n, a in zip(lines, counted, advantages(lines)):
        if n == 0:
            continue
        lp, entropy = response_stats(w, line)
        m = torch.tensor(line["response_mask"], dtype=torch.bool)
        lp, entropy = lp[m], entropy[m]
        omega = 1.0 / tokens if case["aggregation"] == "token-mean" else 1.0 / (sequences * n)
        if case["name"] == "sft":
            total = total - omega * lp.sum()
            continue
        old, ref = (torch.tensor(line[k], dtype=torch.float64)[m] for k in ("logprobs", "ref_logprobs"))
        ratio = torch.exp(lp - old)
        free, held = -a * ratio, -a * ratio.clamp(1 - CLIP, 1 + CLIP)
        clipped += int((held > free).sum())
        d = lp - ref
        kl = torch.exp(-d) - 1 + d
        term = torch.maximum(free, held) + case["kl_coef"] * kl - case["entropy_coef"] * entropy
        total = total + omega * term.sum()
    return total, clipped


def fork_loss(w, lines, case):
    """Sessions with forks: statistics and sequence means count sessions, a session's tokens are those of all its forks."""
    sessions = {}
    for line in lines:
        sessions.setdefault((line["group"], line["sample"]), []).append(line)
    firsts = [forks[0] for forks in sessions.values()]
    counted = {key: sum(sum(f["response_mask"]) for f in forks) for key, forks in sessions.items()}
    tokens, total = sum(counted.values()), torch.zeros((), dtype=torch.float64)
    for (key, forks), a in zip(sessions.items(), advantages(firsts)):
        omega = 1.0 / tokens if case["aggregation"] == "token-mean" else 1.0 / (len(sessions) * counted[key])
        for line in forks:
            m = torch.tensor(line["response_mask"], dtype=torch.bool)
            lp, entropy = (x[m] for x in response_stats(w, line))
            old, ref = (torch.tensor(line[k], dtype=torch.float64)[m] for k in ("logprobs", "ref_logprobs"))
            ratio, d = torch.exp(lp - old), lp - ref
            term = torch.maximum(-a * ratio, -a * ratio.clamp(1 - CLIP, 1 + CLIP)) + case["kl_coef"] * (torch.exp(-d) - 1 + d)
            total = total + omega * (term - case["entropy_coef"] * entropy).sum()
    return total


def make_replay_forks():
    """Sessions of several turns, some with forks, which share the beginning of their session's first prompt."""
    folder = os.path.join(ROOT, "replay")
    w = {n: t.double().requires_grad_() for n, t in load_file(os.path.join(folder, "model", "model.safetensors")).items()}
    rng, ids, lines = np.random.default_rng(2026), lambda n: rng.integers(0, REPLAY["vocab_size"], n).tolist(), []
    rewards, forks = [[1.0, 0.0, 0.5], [0.0, 1.0, 0.25, 0.25]], {(0, 0): 3, (0, 2): 2, (1, 1): 2}
    for g, of_group in enumerate(rewards):
        prompt = ids(5)
        for s, reward in enumerate(of_group):
            for fork in range(forks.get((g, s), 1)):
                turns = [(int(rng.integers(1, 5)), int(rng.integers(1, 6))) for _ in range(int(rng.integers(1, 4)))]
                mask = sum(([1] * said + [0] * heard for said, heard in turns), [])[:-turns[-1][1]]
                line = dict(step=1, group=g, sample=s, fork=fork, turns=len(turns), prompt_tokens=prompt + ids(3 * fork),
                            response_tokens=ids(len(mask)), response_mask=mask)
                with torch.no_grad():
                    own = response_stats(w, line)[0].numpy()
                line.update(logprobs=(own + 0.2 * rng.standard_normal(len(mask))).tolist(),
                            ref_logprobs=(own + 0.3 * rng.standard_normal(len(mask))).tolist(), reward=reward,
                            raw_reward=reward, finish_reason="stop", end_reason="done")
                lines.append(line)
    with open(os.path.join(folder, "rollouts-forks.jsonl"), "w") as f:
        f.writelines(json.dumps(line) + "\n" for line in lines)
    with open(os.path.join(folder, "cases.json")) as f:
        cases = json.load(f)
    for name in ("token-mean", "kl-seq-mean-token-mean"):
        for t in w.values():
            t.grad = None
        loss = fork_loss(w, lines, CASES[name])
        loss.backward()
        cases["forks-" + name] = dict(CASES[name], loss=loss.item())
        save_file({n: t.grad for n, t in w.items()}, os.path.join(folder, f"gradient-forks-{name}.safetensors"))
        print(f"replay with forks, {name}: loss {loss.item():.15f}")
    write_json(os.path.join(folder, "cases.json"), cases)


def make_rollouts(w, rng):
    rewards = [[1.0, 0.0, 0.25, 1.0], [0.5, 0.5, 0.5, 0.5], [0.0, 1.0, 0.0, -0.75]]
    lengths = [[9, 14, 3, 1], [6, 8, 11, 5], [17, 0, 12, 7]]
    lines = []
    for g in range(3):
        prompt = rng.integers(0, REPLAY["vocab_size"], (6, 1, 10)[g]).tolist()
        for s in range(4):
            n = lengths[g][s]
            mask = (rng.random(n) > 0.2).astype(int).tolist()
            if (g, s) == (1, 2):
                mask = [0] * n
            line = dict(step=1, group=g, sample=s, prompt_tokens=prompt,
                        response_tokens=rng.integers(0, REPLAY["vocab_size"], n).tolist(), response_mask=mask)
            with torch.no_grad():
                own = response_stats(w, line)[0].numpy()
            line.update(logprobs=(own + 0.2 * rng.standard_normal(n)).tolist(),
                        ref_logprobs=(own + 0.3 * rng.standard_normal(n)).tolist(),
                        reward=rewards[g][s], raw_reward=rewards[g][s], finish_reason="length")
            lines.append(line)
    return lines


def make_replay():
    folder = os.path.join(ROOT, "replay")
    model_folder = os.path.join(folder, "model")
    os.makedirs(folder, exist_ok=True)
    fresh_folder(model_folder)
    rng = np.random.default_rng(2024)
    write_json(os.path.join(model_folder, "config.json"), REPLAY)
    shapes = {n: tuple(p.shape) for n, p in meta_parameters(model_folder).items()}
    weights = {n: random_weight(n, s, rng).float() for n, s in sorted(shapes.items())}
    write_weights(model_folder, weights)
    check, _ = load(model_folder)
    w = {n: t.double().requires_grad_() for n, t in weights.items()}
    sample = list(range(3, 40))
    with torch.no_grad():
        gap = (logits_of(check, sample).double() - qwen3_logits(w, REPLAY, sample)).abs().max().item()
    assert gap < 5e-5, gap

    lines = make_rollouts(w, rng)
    with open(os.path.join(folder, "rollouts.jsonl"), "w") as f:
        f.writelines(json.dumps(line) + "\n" for line in lines)
    cases = {}
    for name, case in CASES.items():
        for t in w.values():
            t.grad = None
        loss, clipped = replay_loss(w, lines, case)
        loss.backward()
        cases[name] = dict(case, loss=loss.item(), clipped=clipped)
        save_file({n: t.grad for n, t in w.items()}, os.path.join(folder, f"gradient-{name}.safetensors"))
        print(f"replay {name}: loss {loss.item():.6f}, {clipped} clipped")
    write_json(os.path.join(folder, "cases.json"), cases)
    print(f"replay: fp32 transformers differ from the fp64 forward by {gap:.2e}")


def make_replay_adapters():
    """The same rollouts once more, where adapters of two layers' modules are trained beside the model."""
    folder = os.path.join(ROOT, "replay")
    peft = os.path.join(folder, "adapters")
    os.makedirs(peft, exist_ok=True)
    with open(os.path.join(folder, "cases.json")) as f:
        case = json.load(f)["kl-in-loss"]
    with open(os.path.join(folder, "rollouts.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    base = {n: t.double() for n, t in load_file(os.path.join(folder, "model", "model.safetensors")).items()}
    rng, rank, modules = np.random.default_rng(2025), 3, ["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"]
    write_json(os.path.join(peft, "adapter_config.json"), {"peft_type": "LORA", "r": rank, "lora_alpha": 0.2,
                                                           "target_modules": modules, "use_rslora": True})
    adapters = {}
    for n, t in sorted(base.items()):
        if n.split(".")[-2] in modules:
            for part, shape in (("A", (rank, t.shape[1])), ("B", (t.shape[0], rank))):
                adapters[n.removesuffix("weight") + f"lora_{part}.weight"] = random_weight(n, shape, rng).float()
    save_file({"base_model.model." + n: t for n, t in adapters.items()}, os.path.join(peft, "adapter_model.safetensors"))
    low = {n: t.double().requires_grad_() for n, t in adapters.items()}
    loss, clipped = replay_loss(adapted(base, low, peft), lines, case)
    loss.backward()
    save_file({n: t.grad for n, t in low.items()}, os.path.join(folder, "gradient-adapters.safetensors"))
    print(f"replay with adapters: loss {loss.item():.15f}, {clipped} clipped")


def main():
    torch.set_num_threads(1)
    others = {"replay": make_replay, "replay-adapters": make_replay_adapters, "replay-forks": make_replay_forks}
    for name in sys.argv[1:] or [*MODELS, *others]:
        others[name]() if name in others else make_model(name)


if __name__ == "__main__":
    main()
