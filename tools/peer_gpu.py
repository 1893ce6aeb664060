"""Generation by Hugging Face transformers on one GPU, random weights of a public shape: the peer of tests/gpu/model_bench.
usage: peer_gpu.py 0.6b|8b BATCH PROMPT NEW [static|dynamic]; prints a Markdown row."""
import sys
import time

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

SHAPES = {"0.6b": dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
                       tie_word_embeddings=True),
          "8b": dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32,
                     tie_word_embeddings=False)}


def main(name, batch, prompt, new, cache="dynamic"):
    batch, prompt, new = int(batch), int(prompt), int(new)
    config = Qwen3Config(vocab_size=151936, max_position_embeddings=40960, rope_theta=1e6, num_key_value_heads=8,
                         head_dim=128, **SHAPES[name])
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Qwen3ForCausalLM(config).eval()
    ids = torch.randint(0, config.vocab_size, (batch, prompt), device="cuda")
    options = dict(do_sample=True, temperature=1.0)
    if cache == "static":
        options["cache_implementation"] = "static"

    def generate(n):
        with torch.inference_mode():
            model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, min_new_tokens=n,
                           **options)
        torch.cuda.synchronize()

    generate(new if cache == "static" else 4)
    start = time.time()
    generate(new)
    seconds = time.time() - start
    print(f"| transformers generate ({cache} cache), {name}, batch {batch} | whole call {seconds:.2f} s, "
          f"{batch * new / seconds:.0f} tok/s |", flush=True)


main(*sys.argv[1:])
