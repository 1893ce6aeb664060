#!/usr/bin/env bash
# `make bench` on the CPU: kernels against the machine's limits, then a training step and decoding of a 28M-parameter
# model, beside PyTorch in the same run where PEER_PYTHON (default python3) has it. Prints Markdown for
# tests/bench/RESULTS.md. usage: tools/bench/bench_cpu.sh BUILD_DIR
set -eu
build=$1
peer=${PEER_PYTHON:-python3}
threads=$(nproc)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "## $(date -u +%F), $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $threads cores"
for program in "$build"/tests/bench/*_bench; do
  [ -x "$program" ] && { echo; echo "### $(basename "$program")"; echo '```'; "$program"; echo '```'; }
done

cat > "$work/config.json" <<'JSON'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 512, "intermediate_size": 1536,
 "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 6400,
 "max_position_embeddings": 2048, "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
 "torch_dtype": "float32", "eos_token_id": 2}
JSON
build/temper init --config "$work/config.json" --out "$work/model" --tokenizer tests/golden/tokenizer/minimind
awk 'BEGIN { srand(1)
  for (i = 0; i < 16; ++i) {
    p = ""; r = ""
    for (k = 0; k < 64; ++k) p = p (k ? "," : "") int(10 + rand() * 6000)
    for (k = 0; k < 192; ++k) r = r (k ? "," : "") int(10 + rand() * 6000)
    printf "{\"group\":%d,\"prompt_tokens\":[%s],\"response_tokens\":[%s],\"reward\":%d,\"logprobs\":null}\n", i / 4, p, r, i % 2
  } }' > "$work/rollouts.jsonl"
awk 'BEGIN { srand(2)
  for (i = 0; i < 16; ++i) {
    p = ""
    for (k = 0; k < 64; ++k) p = p (k ? "," : "") int(10 + rand() * 6000)
    printf "{\"tokens\":[%s]}\n", p
  } }' > "$work/prompts.jsonl"
head -1 "$work/prompts.jsonl" > "$work/prompt.jsonl"
cat > "$work/step.toml" <<TOML
[run]
name = "bench"
dir = "$work/runs"
steps = 4
threads = $threads
[model]
path = "$work/model"
[algorithm]
name = "sft"
[rollout]
max_new_tokens = 192
[train]
samples_per_update = 16
max_tokens_per_microbatch = 4096
[optimizer]
lr = 1e-5
[data]
train = "$work/prompts.jsonl"
chat = false
TOML
step=$work/rollouts.jsonl
build/temper train "$work/step.toml" --replay "$step" "$step" "$step" "$step" 2> "$work/log" || { cat "$work/log"; exit 1; }
ours=$(sed -n 's/.*"timing_s\/update_actor":\([0-9.]*\).*/\1/p' "$work/runs/bench/metrics.jsonl" | sort -n | head -1)

decode() {  # seconds of 128 tokens for the prompts of $1, without start-up: 129 tokens minus 1 token
  local long short
  best() { for _ in 1 2 3; do /usr/bin/env bash -c "TIMEFORMAT=%R; time build/temper generate --model $work/model --prompts $1 --threads $threads rollout.max_new_tokens=$2 rollout.ignore_eos=true > /dev/null" 2>&1; done | sort -n | head -1; }
  long=$(best "$1" 129)
  short=$(best "$1" 1)
  awk -v a="$long" -v b="$short" 'BEGIN { print a - b }'
}
one=$(decode "$work/prompt.jsonl")
many=$(decode "$work/prompts.jsonl")
theirs='{}'
"$peer" -c 'import torch, transformers' 2> /dev/null && theirs=$("$peer" tools/bench/peer_cpu.py "$work/model" "$threads" 2> /dev/null | tail -1)
value() { printf '%s' "$theirs" | sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }
row() { awk -v n="$1" -v a="$2" -v b="$3" 'BEGIN { printf "| %s | %.3f | %s | %s |\n", n, a, b == "" ? "not installed" : sprintf("%.3f", b), b == "" ? "-" : sprintf("%.2f", b / a) }'; }
echo
echo "### 28M-parameter Qwen3 shape, fp32, $threads threads, seconds (best of runs)"
echo "| job | temper | PyTorch | PyTorch / temper |"
echo "|---|---|---|---|"
row "training step, 16 x 256 tokens" "$ours" "$(value train_step_s)"
row "decode 128 tokens, batch 1" "$one" "$(value decode_batch_1_s)"
row "decode 128 tokens, batch 16" "$many" "$(value decode_batch_16_s)"

echo
echo "### Running ahead of the trainer (2 ranks of one thread, a 10M-parameter model)"
tools/bench/bench_overlap.sh "$build"

echo
echo "### Agents"
tools/bench/bench_agents.sh "$build"
