"""Writes tests/golden/nn/rope.json (transformers' rotary tables) and tests/golden/ops/adamw.json (torch.optim.AdamW)."""
import json
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

LLAMA3 = dict(rope_type="llama3", rope_theta=5e5, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=8192)
LONG = dict(rope_type="longrope", rope_theta=1e4, factor=8.0, original_max_position_embeddings=64,
            short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7], long_factor=[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
# name, head_dim, max_position_embeddings, rope object, largest position
CASES = [
    ("default", 64, 4096, dict(rope_type="default", rope_theta=1e4), 4000),
    ("default, theta 1e6", 128, 40960, dict(rope_type="default", rope_theta=1e6), 40000),
    ("linear", 64, 4096, dict(rope_type="linear", rope_theta=1e4, factor=3.0), 4000),
    ("dynamic", 64, 4096, dict(rope_type="dynamic", rope_theta=1e4, factor=4.0), 4000),
    ("Llama-3.1", 128, 131072, dict(LLAMA3, factor=8.0), 130000),
    ("Llama-3.2-1B", 64, 131072, dict(LLAMA3, factor=32.0), 130000),
    ("Qwen3 yarn", 128, 131072, dict(rope_type="yarn", rope_theta=1e6, factor=4.0,
                                     original_max_position_embeddings=32768), 130000),
    ("DeepSeek-V3 yarn", 64, 163840, dict(rope_type="yarn", rope_theta=1e4, factor=40.0, beta_fast=32, beta_slow=1,
                                          original_max_position_embeddings=4096, mscale=1.0, mscale_all_dim=1.0), 160000),
    ("yarn, two mscales", 32, 8192, dict(rope_type="yarn", rope_theta=1e4, factor=8.0, beta_fast=16, beta_slow=2,
                                         original_max_position_embeddings=1024, mscale=0.7, mscale_all_dim=0.3), 8000),
    ("yarn without truncation", 64, 131072, dict(rope_type="yarn", rope_theta=150000.0, factor=32.0, truncate=False,
                                                 original_max_position_embeddings=4096), 130000),
    ("longrope, short", 16, 512, LONG, 63),
    ("longrope, long", 16, 512, LONG, 64),
]


def rope():
    out = []
    for name, dim, context, parameters, last in CASES:
        config = LlamaConfig(hidden_size=2 * dim, num_attention_heads=2, head_dim=dim,
                             max_position_embeddings=context, rope_parameters=dict(parameters))
        table = LlamaRotaryEmbedding(config)
        cosine, sine = table(torch.zeros(1, 1, 1), torch.tensor([[1, last]]))
        out.append(dict(name=name, head_dim=dim, max_position_embeddings=context, rope=parameters, last=last,
                        attention_factor=table.attention_scaling, inverse_frequency=table.inv_freq.tolist(),
                        cosine=cosine[0, 1, : dim // 2].tolist(), sine=sine[0, 1, : dim // 2].tolist()))
    return out


def adamw():
    torch.manual_seed(7)
    out = []
    for decay, lr in [(0.1, 1e-2), (0.0, 3e-3)]:
        start = torch.randn(6, dtype=torch.float64)
        parameter = torch.nn.Parameter(start.clone())
        optimizer = torch.optim.AdamW([parameter], lr=lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=decay)
        case = dict(lr=lr, weight_decay=decay, start=start.tolist(), grads=[], weights=[])
        for _ in range(4):
            parameter.grad = torch.randn(6, dtype=torch.float64)
            optimizer.step()
            case["grads"].append(parameter.grad.tolist())
            case["weights"].append(parameter.tolist())
        state = optimizer.state[parameter]
        case.update(m=state["exp_avg"].tolist(), v=state["exp_avg_sq"].tolist())
        out.append(case)
    return out


for path, value in [("tests/golden/nn/rope.json", rope()), ("tests/golden/ops/adamw.json", adamw())]:
    with open(path, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(case) for case in value) + "\n]\n")
