"""Writes tests/golden/io: small model folders and what transformers makes of them.

Run from the repository root with torch, safetensors and transformers >= 5.23:  python tools/golden/golden_io.py
"""
import copy
import json
import os
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

OUT = "tests/golden/io"
SIZES = dict(vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=16, rope_theta=1e6)
CLASSES = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}


def write_json(path, value):
    with open(path, "w") as f:
        json.dump(value, f, indent=1)
        f.write("\n")


def randomised(config, dtype):
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * 0.5 + (1.0 if p.dim() == 1 else 0.0))
    return model.to(dtype)


def describe(folder):
    """Per tensor: shape, exact sum, and three elements, in double."""
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            tensors.update(load_file(os.path.join(folder, name)))
    described = {}
    for name, t in sorted(tensors.items()):
        flat = t.double().flatten()
        picks = [0, len(flat) // 2, len(flat) - 1]
        described[name] = dict(shape=list(t.shape), sum=flat.sum().item(), at=picks,
                               value=[flat[i].item() for i in picks])
    write_json(os.path.join(folder, "expected.json"), described)


def llama_v4():
    """Version 4 spelling, untied, bf16, one file."""
    folder = f"{OUT}/llama-v4"
    config = LlamaConfig(**SIZES, rope_parameters=dict(rope_theta=500000.0, **LLAMA3), rms_norm_eps=1e-5)
    randomised(config, torch.bfloat16).save_pretrained(folder)
    data = json.load(open(f"{folder}/config.json"))
    rope = data.pop("rope_parameters")
    data["rope_theta"] = rope.pop("rope_theta")
    data["rope_scaling"] = rope
    data["torch_dtype"] = data.pop("dtype")
    data["an_unknown_key"] = {"kept": [1, 2.5, None, "ü"]}
    write_json(f"{folder}/config.json", data)
    describe(folder)


def qwen2_sharded():
    """Version 5 spelling, tied, biases, fp32, several files."""
    folder = f"{OUT}/qwen2-sharded"
    config = Qwen2Config(**SIZES, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1e6))
    randomised(config, torch.float32).save_pretrained(folder, max_shard_size="9KB")
    write_json(f"{folder}/tokenizer_config.json", {"model_max_length": 128})
    with open(f"{folder}/chat_template.jinja", "w") as f:
        f.write("{{ messages }}\r\n")
    describe(folder)


def qwen3_extra():
    """fp16, yarn, attention biases, and tensors that no parameter holds."""
    folder = f"{OUT}/qwen3-extra"
    config = Qwen3Config(**SIZES, head_dim=8, attention_bias=True, rope_parameters=dict(YARN))
    randomised(config, torch.float16).save_pretrained(folder)
    path = f"{folder}/model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.2.eh_proj.weight"] = torch.randn(4, 6).half()
    tensors["model.layers.2.counts"] = torch.arange(5)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.rand(4)
    save_file(tensors, path, metadata={"format": "pt"})
    describe(folder)


def expected_config(data):
    config = CLASSES[data["model_type"]](**{k: v for k, v in copy.deepcopy(data).items() if k != "model_type"})
    model = AutoModelForCausalLM.from_config(config)
    attention = model.model.layers[0].self_attn
    rope = config.rope_parameters
    return dict(vocab_size=config.vocab_size, hidden_size=config.hidden_size,
                intermediate_size=config.intermediate_size, num_layers=config.num_hidden_layers,
                num_heads=config.num_attention_heads,
                num_kv_heads=attention.k_proj.weight.shape[0] // attention.head_dim, head_dim=attention.head_dim,
                max_position_embeddings=config.max_position_embeddings, rms_norm_eps=config.rms_norm_eps,
                tie=config.tie_word_embeddings, qkv_bias=attention.q_proj.bias is not None,
                o_bias=attention.o_proj.bias is not None, mlp_bias=model.model.layers[0].mlp.up_proj.bias is not None,
                qk_norm=hasattr(attention, "q_norm"), theta=float(rope["rope_theta"]), rope_type=rope["rope_type"],
                factor=rope.get("factor"), context=rope.get("original_max_position_embeddings"))


def configs():
    """Config files in all spellings, and what the classes of transformers make of them."""
    small = dict(SIZES, rms_norm_eps=1e-5)
    scaling = {"type": "linear", "factor": 2.0}
    v4 = dict(small, model_type="llama", rope_theta=500000.0, rope_scaling=LLAMA3, torch_dtype="bfloat16")
    v5 = dict(small, model_type="llama", rope_parameters=dict(LLAMA3, rope_theta=500000.0), dtype="bfloat16")
    cases = {
        "llama3-v4": v4,
        "llama3-v5": v5,
        "llama3-both": {**v4, **v5},
        "scaling-wins": dict(v5, rope_scaling=scaling, rope_theta=20000.0),
        "empty-scaling": dict(v5, rope_scaling={}),
        "old-type": dict(small, model_type="llama", rope_scaling=scaling),
        "factor-without-type": dict(small, model_type="llama", rope_parameters={"factor": 3.0, "rope_theta": 77.0}),
        "top-context-wins": dict(v4, original_max_position_embeddings=48),
        "context-absent": dict(v5, rope_parameters={k: v for k, v in v5["rope_parameters"].items()
                                                    if k != "original_max_position_embeddings"}),
        "yarn": dict(small, model_type="qwen3", rope_parameters=YARN, head_dim=8),
        "biases": dict(small, model_type="llama", attention_bias=True, mlp_bias=True, rope_theta=1e4),
        "kv-null": dict(small, model_type="llama", num_key_value_heads=None, head_dim=None),
        "qwen2": dict(small, model_type="qwen2", rope_theta=1e6, use_sliding_window=False, sliding_window=16,
                      attention_bias=False, mlp_bias=True),
        "qwen2-head-dim": dict(small, model_type="qwen2", head_dim=6, rope_theta=1e6, tie_word_embeddings=True),
        "qwen3-default-head-dim": dict(small, model_type="qwen3", rope_theta=1e6),
        "qwen3-bias": dict(small, model_type="qwen3", head_dim=8, attention_bias=True, rope_theta=1e6),
        "eps-absent": {k: v for k, v in dict(small, model_type="qwen2").items() if k != "rms_norm_eps"},
    }
    write_json(f"{OUT}/configs.json",
               [dict(name=n, config=c, expected=expected_config(c)) for n, c in cases.items()])


if __name__ == "__main__":
    torch.manual_seed(7)
    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(OUT)
    llama_v4()
    qwen2_sharded()
    qwen3_extra()
    configs()
