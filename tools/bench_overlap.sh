#!/usr/bin/env bash
# What running ahead gains: one rollout rank and one trainer rank, one thread each, whose parts of a step take about
# the same time, with run.max_policy_lag = 0 and 1. Prints Markdown for tests/bench/RESULTS.md; the timeline of a
# step of each run stays in DIR/lag-{0,1}/trace. usage: tools/bench_overlap.sh BUILD_DIR [DIR]
set -eu
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
steps = 9
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
steps = "5"
TOML

# The median over steps 3 to 8: the first ones fill the pipeline, the last one is not overlapped.
median() {
  sed -n "3,8s|.*\"$2\":\([0-9.e+-]*\).*|\1|p" "lag-$1/metrics.jsonl" | sort -g | awk '{ v[NR] = $1 } END { print (v[3] + v[4]) / 2 }'
}
echo "| run.max_policy_lag | step (s) | generation (s) | update (s) |"
echo "|---|---|---|---|"
for lag in 0 1; do
  mpirun ${MPIRUN_FLAGS:---allow-run-as-root --bind-to core} -n 2 "$build/temper" train run.toml run.name=lag-$lag \
    run.max_policy_lag=$lag > "lag-$lag.log" 2>&1 || { cat "lag-$lag.log"; exit 1; }
  echo "| $lag | $(median $lag perf/time_per_step) | $(median $lag timing_s/gen) | $(median $lag timing_s/update_actor) |"
done
awk "BEGIN { printf \"\\nlag 1 is %.2f times as fast\\n\", $(median 0 perf/time_per_step) / $(median 1 perf/time_per_step) }"
