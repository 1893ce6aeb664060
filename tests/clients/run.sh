#!/usr/bin/env bash
# Real clients speak with `temper serve` and with runs: each whose package PYTHON has, or those that are named.
# usage: tests/clients/run.sh TEMPER PYTHON [CLIENT...]
#   pip install openai anthropic litellm 'lm-eval[api]' transformers mini-swe-agent renderers verifiers uv claude-agent-sdk
set -euo pipefail
temper=$1 python=$2
shift 2
here=$(dirname "$0")
tokenizer=$here/../golden/tokenizer/minimind
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/config.json" <<'JSON'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 32, "intermediate_size": 64,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 6400,
 "max_position_embeddings": 4096, "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
 "initializer_range": 0.2, "eos_token_id": 2}
JSON
"$temper" init --config "$folder/config.json" --out "$folder/model" --tokenizer "$tokenizer"
export LITELLM_LOCAL_MODEL_COST_MAP=True HF_HUB_OFFLINE=1
PATH=$(dirname "$(command -v "$python")"):$PATH
failed=0 missing=0 ran=0
client() {  # its script, the module that it needs, what it speaks with
  [ ${#wanted[@]} -eq 0 ] || [[ " ${wanted[*]} " == *" $1 "* ]] || return 0
  if ! "$python" -c "import $2" 2> /dev/null; then
    echo "absent $1: $python has no $2"
    missing=$((missing + 1))
    return 0
  fi
  echo "== $1"
  ran=$((ran + 1))
  "$python" "$here/$1.py" "$temper" "$3" || failed=$((failed + 1))
}
wanted=("$@")
client serve_clients litellm,anthropic,openai "$folder/model"
client lm_eval_client lm_eval "$folder/model"
client renderers_client renderers "$tokenizer"
client mini_swe_agent_client minisweagent "$tokenizer"
client openai_agent_client openai "$tokenizer"
client verifiers_client verifiers "$tokenizer"
client claude_code_client claude_agent_sdk "$tokenizer"
echo "$ran clients ran, $failed failed, $missing were not there"
[ "$failed" -eq 0 ] && [ $((ran + missing)) -gt 0 ]
