"""Hugging Face transformers on one GPU, random weights of public shapes: the peer of tests/gpu/model_bench and train_bench.
usage: peer_gpu.py generate 0.6b|8b BATCH PROMPT NEW [static|dynamic]
       peer_gpu.py train 0.6b|1.7b|8b|30b-a3b|3.5-9b TOKENS_OF_A_MICRO_BATCH MICRO_BATCHES [LAYERS]
       peer_gpu.py experts   (torch's grouped_mm on the products of tests/gpu/experts_bench, evenly loaded; dW comes out in bf16)
Training is compiled, with SDPA and fused AdamW in bf16, without recomputation, sequences of 4,096; experts by grouped_mm where
this version of transformers has it, gated delta nets by fla where it is installed: the row says what they were run by. Prints a
Markdown row."""
import importlib.metadata
import inspect
import sys
import time

import torch
import transformers

SHAPES = {"0.6b": dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
                       tie_word_embeddings=True),
          "1.7b": dict(hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16,
                       tie_word_embeddings=True),
          "8b": dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32,
                     tie_word_embeddings=False),
          "30b-a3b": dict(hidden_size=2048, intermediate_size=6144, num_hidden_layers=48, num_attention_heads=32,
                          num_key_value_heads=4, moe_intermediate_size=768, num_experts=128, num_experts_per_tok=8,
                          norm_topk_prob=True, tie_word_embeddings=False),
          "3.5-9b": dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=32, num_attention_heads=16,
                         num_key_value_heads=4, head_dim=256, vocab_size=248320, linear_num_key_heads=16,
                         linear_num_value_heads=32, linear_key_head_dim=128, linear_value_head_dim=128,
                         tie_word_embeddings=False)}
COMMON = dict(vocab_size=151936, max_position_embeddings=40960, rope_theta=1e6, num_key_value_heads=8, head_dim=128)
SEQUENCE = 4096


def make_model(name, layers=None):
    shape = COMMON | SHAPES[name] | (dict(num_hidden_layers=int(layers)) if layers else {})
    family = "Qwen3Moe" if "num_experts" in shape else "Qwen3_5" if "linear_num_key_heads" in shape else "Qwen3"
    config = getattr(transformers, family + ("TextConfig" if family == "Qwen3_5" else "Config"))(**shape)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        return getattr(transformers, family + "ForCausalLM")(config)


def run_experts_by_grouped_mm(model):
    """What they are run by then: older versions of transformers have a loop over experts and nothing else."""
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("grouped_mm")
    return getattr(model.config, "_experts_implementation", None) or "a loop"


def timed(run, times):
    torch.cuda.synchronize()
    start = time.time()
    for _ in range(times):
        run()
    torch.cuda.synchronize()
    return (time.time() - start) / times


def generate(name, batch, prompt, new, cache="dynamic"):
    batch, prompt, new = int(batch), int(prompt), int(new)
    model = make_model(name).eval()
    ids = torch.randint(0, model.config.vocab_size, (batch, prompt), device="cuda")
    options = dict(do_sample=True, temperature=1.0)
    if cache == "static":
        options["cache_implementation"] = "static"

    def run(n):
        with torch.inference_mode():
            model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, min_new_tokens=n,
                           **options)

    run(new if cache == "static" else 4)
    seconds = timed(lambda: run(new), 1)
    print(f"| transformers generate ({cache} cache), {name}, batch {batch} | whole call {seconds:.2f} s, "
          f"{batch * new / seconds:.0f} tok/s |", flush=True)


def delta_nets_by():
    """The package whose function transformers calls: where that cannot be imported, it takes torch's own without a word."""
    from transformers.models.qwen3_5 import modeling_qwen3_5
    rule = inspect.unwrap(modeling_qwen3_5.torch_chunk_gated_delta_rule,
                          stop=lambda f: "implementation" in inspect.getclosurevars(f).nonlocals)
    by = inspect.getclosurevars(rule).nonlocals["implementation"].__module__.split(".")[0]
    return f"{by} {importlib.metadata.version('flash-linear-attention') if by == 'fla' else ''}".strip()


def flops(c, tokens):
    """As tests/gpu/train_bench counts them; 0 for layers of two kinds."""
    if hasattr(c, "linear_num_key_heads"):
        return 0
    q, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    layer = c.hidden_size * (q + 2 * kv) + q * c.hidden_size
    if getattr(c, "num_experts", 0):
        layer += c.hidden_size * (3 * c.num_experts_per_tok * c.moe_intermediate_size + c.num_experts)
    else:
        layer += 3 * c.hidden_size * c.intermediate_size
    products = c.num_hidden_layers * layer + c.vocab_size * c.hidden_size
    return 6 * products * tokens + 6 * c.num_hidden_layers * q * tokens * SEQUENCE


def train(name, tokens, micro_batches, layers=None):
    tokens, micro_batches = int(tokens), int(micro_batches)
    model = make_model(name, layers).train()
    how = f"transformers {transformers.__version__}, torch {torch.__version__}"
    if getattr(model.config, "num_experts", 0):
        how += f", experts by {run_experts_by_grouped_mm(model)}"
    if hasattr(model.config, "linear_num_key_heads"):
        how += f", delta nets by {delta_nets_by()}"
    model.config.use_cache = False
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    ids = torch.randint(0, model.config.vocab_size, (tokens // SEQUENCE, SEQUENCE), device="cuda")

    def update():
        for _ in range(micro_batches):
            compiled(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    update()
    update()
    seconds = timed(update, 3)
    total = tokens * micro_batches
    print(f"| {how}: train {name}, {model.config.num_hidden_layers} layers, {micro_batches} micro-batches of {tokens} | "
          f"{seconds:.3f} s | "
          f"{total / seconds:.0f} tok/s | {flops(model.config, total) / seconds * 1e-12:.0f} TFLOP/s | "
          f"peak {torch.cuda.max_memory_allocated() * 1e-9:.1f} GB |", flush=True)


def experts():
    grouped_mm = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm
    count, rows, times = 128, 65536, 20
    offsets = torch.arange(1, count + 1, device="cuda", dtype=torch.int32) * (rows // count)
    random = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
    for n, k in ((1536, 2048), (2048, 768)):
        x, dy, w = random(rows, k), random(rows, n), random(count, n, k)
        products = {"forward": lambda: grouped_mm(x, w.transpose(-2, -1), offs=offsets),
                    "dX": lambda: grouped_mm(dy, w, offs=offsets),
                    "dW": lambda: grouped_mm(dy.t(), x, offs=offsets)}
        for name, product in products.items():
            for _ in range(3):
                product()
            seconds = timed(product, times)
            print(f"| torch {torch.__version__} grouped_mm, {name}, {n} x {k} | {seconds * 1e3:.3f} ms | "
                  f"{2 * rows * n * k / seconds * 1e-12:.0f} TFLOP/s |", flush=True)


{"generate": generate, "train": train, "experts": experts}[sys.argv[1]](*sys.argv[2:])
