#!/usr/bin/env python3
"""Golden files of models with gated delta nets, made with transformers (tests/golden/hybrid). A pure function of the
seeds here.

models/<name>/: config.json, random weights, and golden.safetensors as golden.py writes it, but in fp64: transformers'
  classes from a copy of their source whose casts to fp32 are to fp64, as fp32 itself is off by 1e-5 and more here. The
  gradients have the names that the tensors have in the folder. Folders of a whole model with vision tower have its tensors, and those that predict
  several tokens, too: nobody reads them. Experts have a tensor each, or are fused as transformers holds them, where
  the gradients are named by expert all the same. No two logits of a router that decide a choice are closer than MIN_GAP.

Made with transformers 5.24.0, torch 2.15.0, safetensors 0.8.0, numpy 2.4.6:  tools/golden/golden_hybrid.py [name ...]
"""
import functools
import importlib.util
import inspect
import os
import sys
import tempfile
import zlib

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForImageTextToText
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe
from transformers.models.qwen3_next import modeling_qwen3_next

import golden
import golden_moe

ROOT = os.path.join(golden.ROOT, "hybrid", "models")
LONG, SHORT = "model.language_model.", "model."
LENGTHS = (3, 70, 140)
IMAGE, VIDEO = 46, 47
PROMPTS, MIN_MARGIN = 3, 2e-4
SCALE = 0.5  # so that fp32 stays within 1e-5
EVERY_BORDER = (2, 3, 63, 64, 65, 700)
SHORTEST = (1, 3, 63, 64, 65, 700)
MIN_GAP = 5e-5

BASE = dict(vocab_size=48, hidden_size=16, intermediate_size=24, num_hidden_layers=4, num_attention_heads=2,
            num_key_value_heads=1, head_dim=16, max_position_embeddings=2048, rms_norm_eps=1e-6, hidden_act="silu",
            linear_num_key_heads=1, linear_num_value_heads=2, linear_key_head_dim=8, linear_value_head_dim=8,
            linear_conv_kernel_dim=4, bos_token_id=0, eos_token_id=1)
ROPE = dict(rope_type="default", rope_theta=1e6, partial_rotary_factor=0.25, mrope_section=[1, 1, 0],
            mrope_interleaved=True)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32, rope_theta=1e4,
            partial_rotary_factor=0.5)
NEXT_ROPE = dict(rope_theta=1e6, rope_scaling=None, partial_rotary_factor=0.25)  # as in its published config.json
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=12)
MTP = {"mtp.fc.weight": (16, 32), "mtp.norm.weight": (16,), "mtp.layers.0.mlp.up_proj.weight": (24, 16)}


def types(*full, layers=4):
    return ["full_attention" if i in full else "linear_attention" for i in range(layers)]


def text(rope=ROPE, **keys):
    return dict(BASE, model_type="qwen3_5_text", rope_parameters=rope, dtype="float32") | keys


def flat(rope=ROPE, tied=False, **keys):
    return dict(text(rope, **keys), architectures=["Qwen3_5ForCausalLM"], tie_word_embeddings=tied)


def next_model(**keys):
    return dict(BASE, model_type="qwen3_next", architectures=["Qwen3NextForCausalLM"], tie_word_embeddings=False,
                torch_dtype="float32", **NEXT_ROPE) | keys


def with_experts(settings, **keys):
    """The model of Qwen3.5 with the same keys and experts in all layers."""
    out = dict(settings, model_type=settings["model_type"].replace("qwen3_5", "qwen3_5_moe"))
    if "architectures" in out:
        out["architectures"] = [out["architectures"][0].replace("Qwen3_5", "Qwen3_5Moe")]
    if "text_config" not in out:
        out.pop("intermediate_size")
        return out | EXPERTS | keys
    out["text_config"] = with_experts(out["text_config"], **keys)
    out["vision_config"] = dict(out["vision_config"], model_type="qwen3_5_moe_vision")
    return out


def vision(tied, **keys):
    """The key of the text model says the opposite of what counts."""
    tower = dict(model_type="qwen3_5_vision", depth=1, hidden_size=8, intermediate_size=8, num_heads=2, out_hidden_size=16,
                 num_position_embeddings=4, patch_size=2, temporal_patch_size=1, in_channels=1)
    return dict(architectures=["Qwen3_5ForConditionalGeneration"], model_type="qwen3_5", image_token_id=IMAGE,
                video_token_id=VIDEO, vision_start_token_id=44, vision_end_token_id=45, tie_word_embeddings=tied,
                text_config=text(tie_word_embeddings=not tied, attn_output_gate=True, mamba_ssm_dtype="float32",
                                 output_gate_type="swish", mtp_num_hidden_layers=1, **keys), vision_config=tower)


# name: (config, file options); `prefix`: that of the tensors in the folder, where it is not the config's
MODELS = {
    "text-default": (flat(layer_types=types(3)), dict(lengths=EVERY_BORDER)),
    "text-tied-interval2": (flat(tied=True, full_attention_interval=2, linear_num_key_heads=2, linear_conv_kernel_dim=2),
                            {}),
    "text-ratio3-long-prefix": (flat(layer_types=types(0), linear_num_value_heads=3, linear_value_head_dim=4,
                                     attention_bias=True), dict(prefix=LONG)),
    "text-yarn": (flat(YARN, layer_types=types(1, layers=2), num_hidden_layers=2, num_attention_heads=4,
                       num_key_value_heads=2, pad_token_id=golden.PAD, linear_num_key_heads=2,
                       linear_num_value_heads=4, linear_conv_kernel_dim=8), {}),
    "text-attention": (flat(layer_types=types(0, 1, layers=2), num_hidden_layers=2), {}),
    "vision-tied-bf16": (vision(True, num_hidden_layers=2, layer_types=types(1, layers=2)),
                         dict(dtype=torch.bfloat16)),
    "vision-sharded": (vision(False, num_hidden_layers=2, full_attention_interval=2, linear_num_key_heads=2),
                       dict(shards=2)),
    "next-dense": (next_model(num_experts=0, linear_num_key_heads=2, linear_num_value_heads=4),
                   dict(lengths=SHORTEST, scale=0.3)),
    "next-experts-tied": (next_model(num_hidden_layers=3, full_attention_interval=2, linear_num_key_heads=2,
                                     linear_num_value_heads=6, linear_value_head_dim=4, tie_word_embeddings=True,
                                     mlp_only_layers=[1], norm_topk_prob=True, **EXPERTS), dict(mtp=True, scale=0.4)),
    "moe-text": (with_experts(flat(num_hidden_layers=2, layer_types=types(1, layers=2), linear_num_key_heads=2)), {}),
    "moe-vision-fused": (with_experts(vision(False, num_hidden_layers=2, full_attention_interval=2)), dict(fused=True)),
    "moe-vision-tied-bf16": (with_experts(vision(True, num_hidden_layers=2, layer_types=types(0, layers=2)), num_experts=3),
                             dict(dtype=torch.bfloat16, shards=2, scale=0.35)),
}
CLASSES = {"qwen3_5": (modeling_qwen3_5, "Qwen3_5ForCausalLM"),
           "qwen3_5_moe": (modeling_qwen3_5_moe, "Qwen3_5MoeForCausalLM"),
           "qwen3_next": (modeling_qwen3_next, "Qwen3NextForCausalLM")}


@functools.cache
def lifted_class(model_type):
    """That of transformers with fp64 in the place of fp32."""
    of, name = CLASSES[model_type.removesuffix("_text")]
    source = inspect.getsource(of)
    for narrow, wide in (("torch.float32", "torch.float64"), (".float()", ".double()"),
                         ("dtype=torch.float)", "dtype=torch.double)"), ("dtype=torch.float,", "dtype=torch.double,")):
        source = source.replace(narrow, wide)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "lifted.py")
        with open(path, "w") as f:
            f.write(source)
        spec = importlib.util.spec_from_file_location(of.__package__ + ".lifted", path)
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return getattr(module, name)


def is_wide(name):
    return name.endswith(("A_log", "linear_attn.norm.weight"))


def random_weight(name, shape, rng, tied, scale):
    """Nothing trivial: norms away from 0 (by 1 + w) or 1, states that live a row or a hundred."""
    x = torch.from_numpy(rng.standard_normal(shape))
    if name.endswith("A_log"):
        return torch.from_numpy(np.log(rng.uniform(0.01, 8, shape)))
    if name.endswith("dt_bias"):
        return -1 + 1.0 * x
    if "norm" in name and not name.endswith("linear_attn.norm.weight"):
        return 0.3 * x
    scale = scale if len(shape) == 2 and "lm_head" not in name and (tied or "embed" not in name) else 1
    return scale * golden.random_weight(name, shape, rng)


def in_folder(name, prefix):
    return prefix + name.removeprefix(SHORT) if name.startswith(SHORT) else name


def other_shapes(folder):
    """Those of the tower and of further predictions."""
    with torch.device("meta"):
        whole = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder))
    return {n: tuple(p.shape) for n, p in whole.named_parameters() if n.startswith("model.visual.")} | MTP


def fused(tensors):
    """Experts as transformers holds them."""
    parts, out = {}, {}
    for name, t in tensors.items():
        at, is_expert, rest = name.partition(".mlp.experts.")
        if is_expert and not name.startswith("mtp."):
            expert, kind, _ = rest.split(".")
            parts.setdefault(at + is_expert, {}).setdefault(kind, {})[int(expert)] = t
        else:
            out[name] = t
    for at, kinds in parts.items():
        gate, up, down = (torch.stack([t for _, t in sorted(kinds[k].items())])
                          for k in ("gate_proj", "up_proj", "down_proj"))
        out[at + "gate_up_proj"], out[at + "down_proj"] = torch.cat([gate, up], 1), down
    return out


def write_model(folder, settings, files, rng):
    golden.fresh_folder(folder)
    golden.write_json(os.path.join(folder, "config.json"), settings)
    has_tower = "vision_config" in settings
    prefix = files.get("prefix", LONG if has_tower else SHORT)
    shapes = {in_folder(n, prefix): tuple(p.shape)
              for n, p in golden_moe.published(settings, golden.meta_parameters(folder)).items()}
    if "mtp" in files:
        shapes |= MTP
    if has_tower:
        shapes |= other_shapes(folder)
        if settings["tie_word_embeddings"]:
            shapes.pop("lm_head.weight", None)
        else:
            shapes["lm_head.weight"] = shapes[LONG + "embed_tokens.weight"]
    dtype = files.get("dtype", torch.float32)
    tied, scale = settings["tie_word_embeddings"], files.get("scale", SCALE)
    tensors = {n: random_weight(n, s, rng, tied, scale).to(torch.float32 if is_wide(n) else dtype)
               for n, s in sorted(shapes.items())}
    golden.write_weights(folder, fused(tensors) if "fused" in files else tensors, files.get("shards", 1))
    return prefix, tensors


def load(folder, settings, prefix, tensors):
    """The text model in fp64, its head as the whole model has it."""
    text_settings = AutoConfig.from_pretrained(folder).get_text_config()
    text_settings.tie_word_embeddings = settings["tie_word_embeddings"]
    text_settings._attn_implementation = text_settings._experts_implementation = "eager"
    model = lifted_class(text_settings.model_type)(text_settings).double()
    state = {SHORT + n.removeprefix(prefix) if n.startswith(prefix) else n: t.double() for n, t in tensors.items()
             if not n.startswith(("model.visual.", "mtp."))}
    missing, unexpected = model.load_state_dict(fused(state), strict=False)
    assert not unexpected and missing in ([], ["lm_head.weight"]), (missing, unexpected)
    model.tie_weights()
    return model.eval()


def greedy_path(model, rng):
    """The clearest of some prompts with its answer: how far the two best logits are apart tells."""
    best = None
    for _ in range(PROMPTS):
        prompt = rng.integers(0, IMAGE, golden.GREEDY_PROMPT).tolist()
        answer, margin = golden.greedy(model, prompt)
        if best is None or margin > best[2]:
            best = prompt, answer, margin
    assert best[2] > MIN_MARGIN, best
    return best


def has_clear_choices(model, sequences):
    with torch.no_grad():
        chosen = golden_moe.routes(model, sequences)
    return all(golden_moe.smallest_gap(u, ids.shape[-1]).min() >= MIN_GAP for u, _, ids in chosen.values())


def golden_tensors(name, model, sequences, rng):
    """As those of golden.py, in fp64."""
    logprobs = []
    for s in sequences:
        lp = torch.log_softmax(golden.logits_of(model, s), -1)
        assert lp.dtype == torch.float64
        logprobs.append(lp[torch.arange(len(s) - 1), torch.tensor(s[1:], dtype=torch.long)])
    logprobs = torch.cat(logprobs)
    weights = torch.from_numpy(rng.standard_normal(len(logprobs)))
    (weights * logprobs).sum().backward()
    prompt, answer, margin = greedy_path(model, rng)
    out = {"grad/" + n: p.grad for n, p in model.named_parameters()}
    print(f"{name}: {len(out)} tensors, mean log-prob {logprobs.mean():.3f}, greedy margin {margin:.4f}, "
          f"{len(set(answer))} different tokens")
    return out | dict(
        tokens=torch.tensor(sum(sequences, []), dtype=torch.int32),
        cu_seqlens=torch.tensor(np.cumsum([0, *map(len, sequences)]), dtype=torch.int32), logprobs=logprobs.detach(),
        weights=weights, greedy_prompt=torch.tensor(prompt, dtype=torch.int32),
        greedy=torch.tensor(answer, dtype=torch.int32))


def make_model(name):
    settings, files = MODELS[name]
    folder = os.path.join(ROOT, name)
    for attempt in range(1000):
        rng = np.random.default_rng(zlib.crc32(f"{name} {attempt}".encode() if attempt else name.encode()))
        prefix, tensors = write_model(folder, settings, files, rng)
        model = load(folder, settings, prefix, tensors)
        sequences = [rng.integers(0, IMAGE, n).tolist() for n in files.get("lengths", LENGTHS)]
        sequences[1][1] = golden.PAD
        if has_clear_choices(model, sequences):
            break
    out = golden_tensors(name, model, sequences, rng)
    gradients = {n.removeprefix("grad/"): out.pop(n) for n in list(out) if n.startswith("grad/")}
    out |= {"grad/" + n: g for n, g in golden_moe.published(settings, gradients).items()}
    out = {("grad/" + in_folder(n.removeprefix("grad/"), prefix) if n.startswith("grad/") else n): t.contiguous()
           for n, t in out.items()}
    save_file(out, os.path.join(folder, "golden.safetensors"))


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MODELS:
        make_model(name)


if __name__ == "__main__":
    main()
