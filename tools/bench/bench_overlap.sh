#!/usr/bin/env bash
# What running ahead gains: one rollout rank and one trainer rank, one thread each, whose parts of a step take about
# the same time, with run.max_policy_lag = 0 and 1. Prints Markdown for tests/bench/RESULTS.md; the timeline of a
# step of each run stays in DIR/lag-{0,1}/trace. usage: tools/bench/bench_overlap.sh BUILD_DIR [DIR]
set -eu
steps=
build=$(realpath "$1")
work=${2:-$(mktemp -d)}
mkdir -p "$work"
[ $# -ge 2 ] || trap 'rm -rf "$work"' EXIT
tokenizer=$(realpath tests/golden/tokenizer/minimind)
cd "$work"
rm -rf model lag-0 lag-1

cat > config.json <<'JSON'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 384, "intermediate_size": 1024,
 "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 6400,
 "max_position_embeddings": 512, "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
 "torch_dtype": "float32", "eos_token_id": 2}
JSON
"$build/temper" init --config config.json --out model --tokenizer "$tokenizer"
for i in $(seq 1 200); do echo "{\"prompt\": \"What is $i plus $((2 * i))?\", \"answer\": \"$((3 * i))\"}"; done > data.jsonl
cat > run.toml <<TOML
[run]
name = "lag-0"
dir = "."
steps = 24
threads = 1
overwrite = true
[model]
path = "model"
[rollout]
prompts_per_step = ${PROMPTS:-1}
samples_per_prompt = ${SAMPLES:-2}
max_new_tokens = ${NEW_TOKENS:-192}
ignore_eos = true
[optimizer]
lr = 1e-5
[data]
train = "data.jsonl"
chat = false
[reward]
functions = [{name = "gsm8k", method = "flexible", format_score = 0.1}]
[roles.rollout]
ranks = "0"
[roles.trainer]
ranks = "1"
[checkpoint]
resume = "none"
[profile]
steps = "3-4"
TOML

run() {  # lag, steps
  mpirun ${MPIRUN_FLAGS:---allow-run-as-root --bind-to core} -n 2 "$build/temper" train run.toml run.name="lag-$1" \
    run.max_policy_lag="$1" run.steps="$2" > "lag-$1.log" 2>&1 || { cat "lag-$1.log" >&2; exit 1; }
}
mean() {  # of a metric over steps 4 to 23
  sed -n "4,23s|.*\"$2\":\([0-9.e+-]*\).*|\1|p" "lag-$1/metrics.jsonl" | awk '{ sum += $1 } END { printf "%.3f", sum / NR }'
}
# A step lasts what 24 steps take longer than 4, over 20: start, first step and checkpoint cancel out.
step_seconds() {
  local begin middle end
  begin=$(date +%s.%N); run "$1" 4
  middle=$(date +%s.%N); run "$1" 24
  end=$(date +%s.%N)
  awk "BEGIN { printf \"%.3f\", ($end - $middle - ($middle - $begin)) / 20 }"
}
echo "| run.max_policy_lag | step (s) | generation (s) | update (s) |"
echo "|---|---|---|---|"
for lag in 0 1; do
  step=$(step_seconds $lag)
  steps+=" $step"
  echo "| $lag | $step | $(mean $lag timing_s/gen) | $(mean $lag timing_s/update_actor) |"
done
awk '{ printf "\nlag 1 is %.2f times as fast\n", $1 / $2 }' <<< "$steps"
