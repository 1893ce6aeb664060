#!/usr/bin/env bash
# Makes a small model of random weights with a real tokenizer and its chat template, and lets real clients speak with it.
# usage: tests/clients/run.sh TEMPER PYTHON; `pip install openai anthropic litellm` first
set -euo pipefail
temper=$1 python=$2
here=$(dirname "$0")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/config.json" <<'JSON'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 32, "intermediate_size": 64,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 6400,
 "max_position_embeddings": 4096, "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
 "initializer_range": 0.2, "eos_token_id": 2}
JSON
"$temper" init --config "$folder/config.json" --out "$folder/model" --tokenizer "$here/../golden/tokenizer/minimind"
LITELLM_LOCAL_MODEL_COST_MAP=True "$python" "$here/serve_clients.py" "$temper" "$folder/model"
