#!/usr/bin/env python3
"""Golden files of models with experts, made with transformers (tests/golden/moe). A pure function of the seeds here.

models/<name>/: config.json, random weights with a tensor per expert as published, golden.safetensors as golden.py
  writes it (an expert without tokens has gradient zero), and routes.safetensors with, for each layer that has experts,
  logits/<layer>          of the router, before the softmax; a row for each token of `tokens`
  ids/<layer>             the chosen experts, the heaviest first; weights/<layer>: theirs, as used
  greedy_ids/<layer>      the chosen experts for greedy_prompt and greedy, the last token left out
  For AUX also aux.safetensors: auxiliary losses over these tokens without a coefficient, in fp64,
  sequence, global, z     a value for each layer that has experts (`layers`): the Switch loss E sum_e f_e P_e of each
                          sequence (mean over sequences), that of all tokens at once, and mean logsumexp(logits)^2
  <loss>_grad/<layer>     the gradient of that value at the router's logits of the layer
  grad/<tensor>           the gradient of sum over layers of AUX_COEF (sequence + global) + Z_COEF z, also through the
                          layers below: of every tensor that has one
fused/<name>/: the model of that name once more as transformers writes it with save_original_format=False: all experts
  of a layer in two tensors; its config.json and generation_config.json are transformers' own.
router/<family>.safetensors: a wide router (`weight`, exact in bf16), the chosen `ids` and `weights` for 1,000 `rows`.
  Row r has x[i] = ((h >> 24) - 128) 2^-(5 + (h >> 22 & 3)) with h = mix(32 r + i), exact in bf16 and fp16:
  mix(h): h ^= h >> 16; h *= 0x7feb352d; h ^= h >> 15; h *= 0x846ca68b; h ^= h >> 16, all mod 2^32.
aux.json: for given logits (a list per layer of a list per token) and a mask of tokens that count, or null:
  joint      load_balancing_loss_func of transformers in fp32: one loss of all layers, K times the Switch loss
  switch, z  the losses of each layer by formula in fp64; all with their gradients at the logits

No two logits that decide a choice or its order are closer than MIN_GAP. Experts run one by one ("eager").
Made with transformers 5.24.0, torch 2.15.0, safetensors 0.8.0, numpy 2.4.6:  tools/golden/golden_moe.py [name ...]
"""
import json
import os
import sys
import tempfile
import zlib
from types import SimpleNamespace

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter, load_balancing_loss_func
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeTopKRouter
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter

import golden

ROOT = os.path.join(golden.ROOT, "moe")
MIN_GAP, MIN_ROW_GAP = 1e-3, 1e-4
AUX_COEF, Z_COEF = 0.3, 0.05

SMALL = dict(vocab_size=48, hidden_size=16, intermediate_size=24)
NARROW = dict(SMALL, moe_intermediate_size=8, num_experts_per_tok=2)


def qwen3(rope=None, spelling=5, experts=6, **keys):
    return golden.config("qwen3_moe", rope, 1e6, spelling, **NARROW | dict(
        head_dim=8, num_local_experts=experts) | keys)


def qwen2(experts=6, **keys):
    return golden.config("qwen2_moe", theta=1e6, **NARROW | dict(
        num_experts=experts, shared_expert_intermediate_size=12, norm_topk_prob=False, rms_norm_eps=1e-6) | keys)


def mixtral(spelling=5, experts=4, **keys):
    return golden.config("mixtral", None, 1e6, spelling, **SMALL | dict(
        intermediate_size=8, num_local_experts=experts, num_experts_per_tok=2, sliding_window=None) | keys)


def respelled(config, **names):
    """The same config with keys under other names."""
    return {names.get(k, k): v for k, v in config.items()}


# name: (config, file options); `silent`: layer and expert whose router row is next to zero, so that no token takes it
MODELS = {
    "qwen3-moe-default": (qwen3(norm_topk_prob=True), {}),
    "qwen3-moe-plain-tied-v4": (respelled(qwen3(None, 4, tie_word_embeddings=True),
                                          num_local_experts="num_experts"), {}),
    "qwen3-moe-mixed": (qwen3(num_hidden_layers=4, decoder_sparse_step=2, mlp_only_layers=[1],
                              norm_topk_prob=True), {}),
    "qwen3-moe-window": (qwen3(experts=4, norm_topk_prob=True, use_sliding_window=True, sliding_window=6), {}),
    "qwen3-moe-all-experts": (qwen3(experts=4, num_experts_per_tok=4, norm_topk_prob=True, attention_bias=True), {}),
    "qwen3-moe-one-expert": (qwen3(experts=5, num_experts_per_tok=1, norm_topk_prob=False), {}),
    "qwen3-moe-silent-expert": (qwen3(experts=12, moe_intermediate_size=4, num_experts_per_tok=3, norm_topk_prob=True),
                                dict(silent=(1, 7))),
    "qwen3-moe-sharded-bf16": (qwen3(norm_topk_prob=True, mlp_only_layers=[]), dict(dtype=torch.bfloat16, shards=2)),
    "qwen2-moe-default": (qwen2(), {}),
    "qwen2-moe-mixed-tied": (qwen2(experts=5, num_hidden_layers=3, mlp_only_layers=[1], tie_word_embeddings=True,
                                   qkv_bias=False, norm_topk_prob=True, head_dim=8), {}),
    "mixtral-default": (mixtral(head_dim=None), {}),
    "mixtral-window-v4": (mixtral(4, experts=5, num_experts_per_tok=3, sliding_window=6, num_key_value_heads=1), {}),
}
FUSED = ("qwen3-moe-default", "qwen2-moe-default", "mixtral-default")
AUX = ("qwen3-moe-silent-expert", "qwen2-moe-default")


def published(settings, tensors):
    """The tensors of a model in memory under published names: a tensor per expert."""
    is_mixtral = settings["model_type"] == "mixtral"
    gate, up, down = ("w1", "w3", "w2") if is_mixtral else ("gate_proj", "up_proj", "down_proj")
    out = {}
    for name, t in tensors.items():
        if is_mixtral:
            name = name.replace(".mlp.", ".block_sparse_moe.")
        at, experts, kind = name.partition(".experts.")
        for e in range(t.shape[0] if experts else 0):
            parts = dict(zip((gate, up), t[e].chunk(2))) if kind == "gate_up_proj" else {down: t[e]}
            out.update({f"{at}.experts.{e}.{part}.weight": x.clone() for part, x in parts.items()})
        if not experts:
            out[name] = t
    return out


def write_model(folder, settings, files, rng):
    golden.fresh_folder(folder)
    golden.write_json(os.path.join(folder, "config.json"), settings)
    shapes = {n: tuple(p.shape) for n, p in published(settings, golden.meta_parameters(folder)).items()}
    tensors = {n: golden.random_weight(n, s, rng) for n, s in sorted(shapes.items())}
    if "silent" in files:
        layer, expert = files["silent"]
        tensors[f"model.layers.{layer}.mlp.gate.weight"][expert] *= 0.05
    dtype = files.get("dtype", torch.float32)
    golden.write_weights(folder, {n: t.to(dtype) for n, t in tensors.items()}, files.get("shards", 1))
    model, report = golden.load(folder, experts_implementation="eager")
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    return model.eval()


def routes(model, sequences):
    """Logits, weights and ids of each layer that has experts, for all tokens."""
    seen, hooks = {}, []
    for i, layer in enumerate(model.model.layers):
        if hasattr(layer.mlp, "gate"):
            hook = lambda module, arguments, out, i=i: seen.setdefault(i, []).append(out)
            hooks.append(layer.mlp.gate.register_forward_hook(hook))
    for s in sequences:
        golden.logits_of(model, s)
    for hook in hooks:
        hook.remove()
    return {i: [torch.cat(parts) for parts in zip(*calls)] for i, calls in seen.items()}


def smallest_gap(logits, top_k):
    best = torch.topk(logits.double(), min(top_k + 1, logits.shape[-1])).values
    return (best[:, :-1] - best[:, 1:]).min(-1).values


def is_clear(chosen):
    return all(smallest_gap(u, ids.shape[-1]).min() >= MIN_GAP for u, _, ids in chosen.values())


def tokens_per_expert(chosen):
    return {i: torch.bincount(ids.flatten(), minlength=u.shape[-1]).tolist() for i, (u, _, ids) in chosen.items()}


def is_wanted(chosen, files):
    """No tie is near; each expert but the silent one has two tokens or more that a log-prob depends on."""
    last = torch.tensor(np.cumsum(golden.LENGTHS) - 1)
    silent = [files["silent"]] if "silent" in files else []
    few = [(i, e) for i, (u, _, ids) in chosen.items() for e in range(u.shape[-1])
           if (ids == e).sum() - (ids[last] == e).sum() < 2]
    return is_clear(chosen) and few == silent and all(tokens_per_expert(chosen)[i][e] == 0 for i, e in silent)


def switch_loss(u, ids):
    """E sum_e f_e P_e."""
    tokens, experts = u.shape
    f = torch.bincount(ids.flatten(), minlength=experts).double() / ids.numel()
    return experts * (f * torch.softmax(u, -1).mean(0)).sum()


def z_loss(u):
    return torch.logsumexp(u, -1).square().mean()


def sequence_loss(u, ids):
    parts = zip(u.split(golden.LENGTHS), ids.split(golden.LENGTHS))
    return torch.stack([switch_loss(*part) for part in parts]).mean()


LOSSES = {"sequence": sequence_loss, "global": switch_loss, "z": lambda u, ids: z_loss(u)}


def value_and_gradient(loss, u):
    leaf = u.detach().double().requires_grad_()
    value = loss(leaf)
    value.backward()
    return value.detach(), leaf.grad


def aux_tensors(settings, model, sequences):
    chosen = routes(model, sequences)
    out = {"layers": torch.tensor(list(chosen), dtype=torch.int32)}
    for name, loss in LOSSES.items():
        pairs = [value_and_gradient(lambda v, ids=ids: loss(v, ids), u) for u, _, ids in chosen.values()]
        out[name] = torch.stack([value for value, _ in pairs])
        out.update({f"{name}_grad/{i}": g for i, (_, g) in zip(chosen, pairs)})
    model.zero_grad()
    total = sum(AUX_COEF * (sequence_loss(u.double(), ids) + switch_loss(u.double(), ids)) + Z_COEF * z_loss(u.double())
                for u, _, ids in chosen.values())
    total.backward()
    gradients = published(settings, {n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    out.update({"grad/" + n: g.float() for n, g in gradients.items() if g.any()})
    return out


def write_fused(name, model):
    """transformers' own files: fused, and per expert in its default format, which has to be the folder again."""
    folder = os.path.join(ROOT, "fused", name)
    golden.fresh_folder(folder)
    model.save_pretrained(folder, save_original_format=False)
    ours = load_file(os.path.join(ROOT, "models", name, "model.safetensors"))
    with tempfile.TemporaryDirectory() as again:
        model.save_pretrained(again)
        theirs = load_file(os.path.join(again, "model.safetensors"))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)


def make_model(name):
    settings, files = MODELS[name]
    folder = os.path.join(ROOT, "models", name)
    for attempt in range(1000):
        rng = np.random.default_rng(zlib.crc32(f"{name} {attempt}".encode()))
        model = write_model(folder, settings, files, rng)
        sequences = golden.random_sequences(settings["vocab_size"], rng)
        with torch.no_grad():
            chosen = routes(model, sequences)
        if is_wanted(chosen, files):
            break
    else:
        raise SystemExit(f"{name}: no weights with a clear choice of experts")

    def accept(tokens):
        with torch.no_grad():
            return is_clear(routes(model, [tokens[:-1]]))

    out = golden.golden_tensors(name, model, sequences, rng, accept)
    gradients = {n.removeprefix("grad/"): out.pop(n) for n in list(out) if n.startswith("grad/")}
    gradients = published(settings, gradients)
    silent = ".layers.{}.mlp.experts.{}.".format(*files.get("silent", (-1, -1)))
    assert all(g.any() != (silent in n) for n, g in gradients.items())
    out.update({"grad/" + n: g for n, g in gradients.items()})
    save_file(out, os.path.join(folder, "golden.safetensors"))
    with torch.no_grad():
        greedy = routes(model, [out["greedy_prompt"].tolist() + out["greedy"].tolist()[:-1]])
    tensors = {f"greedy_ids/{i}": ids.int() for i, (_, _, ids) in greedy.items()}
    for i, (u, w, ids) in chosen.items():
        tensors.update({f"logits/{i}": u, f"ids/{i}": ids.int(), f"weights/{i}": w})
    save_file(tensors, os.path.join(folder, "routes.safetensors"))
    print(f"  tokens of each expert {tokens_per_expert(chosen)}, attempt {attempt}")
    if name in FUSED:
        write_fused(name, model)
    if name in AUX:
        save_file(aux_tensors(settings, model, sequences), os.path.join(folder, "aux.safetensors"))


# ---- one wide router of each family ----

ROUTER_WIDTH, ROUTER_ROWS = 32, 1000
ROUTERS = {"qwen3_moe": (Qwen3MoeTopKRouter, dict(experts=128, top_k=8, normalise=True)),
           "qwen2_moe": (Qwen2MoeTopKRouter, dict(experts=60, top_k=4, normalise=False)),
           "mixtral": (MixtralTopKRouter, dict(experts=8, top_k=2, normalise=True))}


def router_rows(count):
    h = np.arange(count * ROUTER_WIDTH, dtype=np.uint32)
    h ^= h >> 16
    h *= np.uint32(0x7feb352d)
    h ^= h >> 15
    h *= np.uint32(0x846ca68b)
    h ^= h >> 16
    x = np.ldexp((h >> 24).astype(np.float32) - 128, -5 - (h >> 22 & 3).astype(np.int32))
    return torch.from_numpy(x).view(count, ROUTER_WIDTH)


def make_router(family):
    make, sizes = ROUTERS[family]
    router = make(SimpleNamespace(hidden_size=ROUTER_WIDTH, num_experts=sizes["experts"],
                                  num_local_experts=sizes["experts"], num_experts_per_tok=sizes["top_k"],
                                  norm_topk_prob=sizes["normalise"]))
    rng = np.random.default_rng(zlib.crc32(family.encode()))
    weight = golden.random_weight("gate", (sizes["experts"], ROUTER_WIDTH), rng).bfloat16().float()
    x = router_rows(2 * ROUTER_ROWS)
    rows = (smallest_gap(x.double() @ weight.double().T, sizes["top_k"]) >= MIN_ROW_GAP).nonzero()[:ROUTER_ROWS, 0]
    assert len(rows) == ROUTER_ROWS
    with torch.no_grad():
        router.weight.copy_(weight)
        logits, weights, ids = router(x[rows])
    hit = torch.bincount(ids.flatten(), minlength=sizes["experts"])
    assert hit.min() > 0
    save_file(dict(weight=weight, rows=rows.int(), ids=ids.int(), weights=weights),
              os.path.join(ROOT, "router", family + ".safetensors"))
    print(f"router {family}: last row {rows[-1]}, {hit.min()} to {hit.max()} rows an expert, "
          f"logits of deviation {logits.std():.2f}, heaviest weights {weights[:, 0].mean():.2f}")


# ---- auxiliary losses of given logits ----

# name: layers, tokens, experts, top_k, mask
AUX_CASES = {
    "one layer": (1, 7, 4, 2, None),
    "two layers": (2, 9, 6, 2, None),
    "two layers, some tokens do not count": (2, 8, 5, 3, [1, 1, 1, 0, 1, 0, 0, 1]),
    "all experts": (1, 6, 3, 3, None),
    "one expert a token": (1, 10, 5, 1, None),
    "all tokens to one expert, others empty": (1, 8, 6, 1, None),
    "one token": (1, 1, 4, 2, None),
}


def aux_case(name, rng):
    layers, tokens, experts, top_k, mask = AUX_CASES[name]
    while True:
        u = torch.from_numpy(np.round(1024 * 1.5 * rng.standard_normal((layers, tokens, experts))) / 1024)
        if name.startswith("all tokens to one"):
            u[:, :, 4] += 6
        if smallest_gap(u.flatten(0, 1), top_k).min() >= MIN_GAP:
            break
    counted = torch.ones(tokens, dtype=torch.bool) if mask is None else torch.tensor(mask, dtype=torch.bool)
    leaf = u.float().requires_grad_()
    joint = load_balancing_loss_func(tuple(leaf), experts, top_k, None if mask is None else torch.tensor([mask]))
    joint.backward()
    ids = torch.topk(u, top_k, -1).indices

    def formula(loss):
        pairs = [value_and_gradient(lambda v, i=i: loss(v[counted], ids[i][counted]), u[i]) for i in range(layers)]
        return dict(loss=[value.item() for value, _ in pairs], gradient=[g.tolist() for _, g in pairs])

    switch, z = formula(switch_loss), formula(LOSSES["z"])
    check_aux(u[:, counted], ids[:, counted], joint, leaf.grad[:, counted])
    return dict(name=name, num_experts=experts, top_k=top_k, mask=mask, logits=u.tolist(),
                joint=dict(loss=joint.item(), gradient=[[[float(f"{x:.9g}") for x in row] for row in layer]
                                                        for layer in leaf.grad.tolist()]), switch=switch, z=z)


def check_aux(u, ids, joint, gradient):
    """The formula K E / R p (f - <f, p>) over all R rows of all layers is what transformers does."""
    rows, experts, top_k = u.shape[0] * u.shape[1], u.shape[-1], ids.shape[-1]
    f = torch.bincount(ids.flatten(), minlength=experts).double() / ids.numel()
    p = torch.softmax(u, -1)
    expected = top_k * experts / rows * p * (f - (p * f).sum(-1, keepdim=True))
    assert abs(joint.item() - top_k * switch_loss(u.flatten(0, 1), ids.flatten(0, 1)).item()) < 1e-5
    assert (gradient.double() - expected).abs().max() < 1e-6


def make_aux():
    rng = np.random.default_rng(77)
    cases = [aux_case(name, rng) for name in AUX_CASES]
    with open(os.path.join(ROOT, "aux.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    for case in cases:
        print(f"aux {case['name']}: {case['joint']['loss']:.4f}, {case['switch']['loss']}, {case['z']['loss']}")


def main():
    torch.set_num_threads(1)
    os.makedirs(os.path.join(ROOT, "router"), exist_ok=True)
    for name in sys.argv[1:] or [*MODELS, *ROUTERS, "aux"]:
        make = make_aux if name == "aux" else make_router if name in ROUTERS else make_model
        make() if name == "aux" else make(name)


if __name__ == "__main__":
    main()
