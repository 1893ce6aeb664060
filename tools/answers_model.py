"""A model folder whose greedy answer to prompt `<pK>` is the text RESPONSES[K]: a chain of single tokens.
Needs no package. tools/math_sweep.py asks with it what a reward says of a given response, through the program itself:
`temper eval` at temperature 0 writes reward and response of every pair.
    python3 answers_model.py pairs.jsonl OUT      # pairs.jsonl: {"gold": ..., "response": ..., "want": 0 or 1}
writes OUT/model, OUT/data.jsonl, OUT/eval.toml."""
import json
import os
import struct
import sys


def tensors_file(path, tensors):
    header, data, at = {}, [], 0
    for name, (shape, values) in tensors.items():
        raw = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def main(pairs_file, out):
    pairs = [json.loads(line) for line in open(pairs_file, encoding="utf-8")]
    texts = ["<end>"]
    for k, pair in enumerate(pairs):
        texts += [f"<p{k}>", f"Answer {k}: {pair['response']}"]
    n, h = len(texts), -(-len(texts) // 16) * 16
    os.makedirs(f"{out}/model", exist_ok=True)
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": i == 0} for i, t in enumerate(texts)]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": {t: i for i, t in enumerate(texts)}, "merges": []}
    json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
               "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model},
              open(f"{out}/model/tokenizer.json", "w"))
    json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>"},
              open(f"{out}/model/tokenizer_config.json", "w"))
    json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": n, "hidden_size": h,
               "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": h // 16,
               "num_key_value_heads": h // 16, "head_dim": 16, "hidden_act": "silu", "max_position_embeddings": 64,
               "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False, "eos_token_id": 0,
               "torch_dtype": "float32"}, open(f"{out}/model/config.json", "w"))
    zero = lambda a, b: ([a, b], [0.0] * (a * b))
    one = ([h], [1.0] * h)
    embed, head = [0.0] * (n * h), [0.0] * (n * h)
    for i in range(n):
        embed[i * h + i] = 1.0
        following = i + 1 if i % 2 == 1 else 0  # a prompt's token is followed by its response, that by the end
        head[following * h + i] = 5.0
    p = "model.layers.0."
    tensors = {"model.embed_tokens.weight": ([n, h], embed), "lm_head.weight": ([n, h], head),
               "model.norm.weight": one, p + "input_layernorm.weight": one, p + "post_attention_layernorm.weight": one}
    for w in "qkvo":
        tensors[f"{p}self_attn.{w}_proj.weight"] = zero(h, h)
    tensors[p + "mlp.gate_proj.weight"] = tensors[p + "mlp.up_proj.weight"] = zero(4, h)
    tensors[p + "mlp.down_proj.weight"] = zero(h, 4)
    tensors_file(f"{out}/model/model.safetensors", tensors)
    with open(f"{out}/data.jsonl", "w", encoding="utf-8") as f:
        for k, pair in enumerate(pairs):
            f.write(json.dumps({"prompt": f"<p{k}>", "answer": pair["gold"]}) + "\n")
    open(f"{out}/eval.toml", "w").write(f"""[run]
name = "eval"
steps = 1
device = "cpu"
dtype = "fp32"
[model]
path = "{out}/model"
[rollout]
prompts_per_step = 1
samples_per_prompt = 2
max_new_tokens = 4
[optimizer]
lr = 1e-6
[data]
train = "{out}/data.jsonl"
chat = false
[reward]
functions = ["math"]
[validation]
data = "{out}/data.jsonl"
rollout.temperature = 0.0
""")


if __name__ == "__main__":
    main(*sys.argv[1:])
