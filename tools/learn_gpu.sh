#!/usr/bin/env bash
# Learning on the GPU. A model of 17M parameters learns to multiply numbers below 1000 in written steps: supervised from a
# careless teacher (conf/products_sft.toml), then by GRPO with several seeds (conf/products_grpo.toml). And the runs of
# `make demo` with several seeds, for a mean to hold against another device or dtype. Prints Markdown for
# tests/bench/RESULTS.md. usage: tools/learn_gpu.sh [PART ...]
#   sft    problems, a random model, the supervised run            -> OUT/data, OUT/sft, OUT/warm
#   grpo   GRPO from OUT/warm, a run per seed; accuracy by step     -> OUT/grpo-SEED, OUT/tuned-SEED
#   demo   the demo's two runs per seed; accuracy before and after  -> OUT/demo/...
#   table  the tables again, of what is there
# No PART: sft grpo demo. A part starts anew: what it wrote before is removed.
# TEMPER=build/temper OUT=runs/products SEEDS="1 2 3" JOBS=3 (seeds at once)
# SFT=, GRPO=, DEMO="key=value ..." go to every call of that part: DEMO="run.device=cpu run.dtype=fp32" JOBS=1
set -euo pipefail
cd "$(dirname "$0")/.."
temper=${TEMPER:-build/temper} out=${OUT:-runs/products} jobs=${JOBS:-3}
read -ra seeds <<< "${SEEDS:-1 2 3}"
read -ra sft_keys <<< "${SFT:-}"
read -ra grpo_keys <<< "${GRPO:-}"
read -ra demo_keys <<< "${DEMO:-run.device=cuda run.dtype=bf16}"
products=(data.train="$out/data/train.jsonl" validation.data="$out/data/heldout.jsonl")
sums=(run.dir="$out/demo" data.train="$out/demo/data/train.jsonl" validation.data="$out/demo/data/heldout.jsonl"
      rollout.kv_memory=64MiB "${demo_keys[@]}")
begin() { echo; echo "== $1   [$SECONDS s]"; }
quiet() {  # LOG COMMAND...: the log alone on success, its end too on failure
  local log=$1
  shift
  echo "\$ $*" >> "$log"
  "$@" >> "$log" 2>&1 || { tail -20 "$log" >&2; return 1; }
}
fresh_log() { mkdir -p "${1%/*}"; : > "$1"; echo "$1"; }
key() { sed -n "s|.*\"$1\":\([0-9.e+-]*\).*|\1|p"; }
for_seeds() {  # FUNCTION: for every seed, $jobs at once
  local running=() failed=0
  for seed in "${seeds[@]}"; do
    "$1" "$seed" & running+=($!)
    [ ${#running[@]} -lt "$jobs" ] || { wait "${running[0]}" || failed=1; running=("${running[@]:1}"); }
  done
  for job in "${running[@]}"; do wait "$job" || failed=1; done
  return $failed
}

accuracy() { "$temper" eval "$@" 2>> "$log" | key val/heldout/score/mean; }

products_sft() {
  local log
  log=$(fresh_log "$out/log/sft.txt")
  rm -rf "$out/data" "$out/model" "$out/sft" "$out/warm"
  tools/demo_data.sh "$out/data" products
  quiet "$log" "$temper" init --config conf/products/config.json --tokenizer conf/products --out "$out/model" --seed 1
  quiet "$log" "$temper" train conf/products_sft.toml run.dir="$out" run.seed=1 model.path="$out/model" \
    "${products[@]}" "${sft_keys[@]}"
  quiet "$log" "$temper" export --checkpoint "$out/sft" --out "$out/warm"
  local eval=(conf/products_grpo.toml model.path="$out/warm" "${products[@]}" "${grpo_keys[@]}")
  accuracy "${eval[@]}" > "$out/warm/sampled"
  accuracy "${eval[@]}" validation.rollout.temperature=0 > "$out/warm/greedy"
}

products_grpo() {  # SEED
  local log
  log=$(fresh_log "$out/log/grpo-$1.txt")
  rm -rf "$out/grpo-$1" "$out/tuned-$1"
  local run=(conf/products_grpo.toml run.dir="$out" "${products[@]}" "${grpo_keys[@]}")
  quiet "$log" "$temper" train "${run[@]}" run.name="grpo-$1" run.seed="$1" model.path="$out/warm"
  quiet "$log" "$temper" export --checkpoint "$out/grpo-$1" --out "$out/tuned-$1"
  accuracy "${run[@]}" model.path="$out/tuned-$1" validation.rollout.temperature=0 > "$out/tuned-$1/accuracy"
}

demo() {  # SEED
  local log
  log=$(fresh_log "$out/log/demo-$1.txt")
  local model=$out/demo/model-$1 warm=$out/demo/warm-$1 tuned=$out/demo/tuned-$1
  rm -rf "$model" "$warm" "$tuned" "$out/demo/sft-$1" "$out/demo/grpo-$1"
  quiet "$log" "$temper" init --config conf/demo/config.json --tokenizer conf/demo --out "$model" --seed "$1"
  quiet "$log" "$temper" train conf/demo_sft.toml "${sums[@]}" run.name="sft-$1" run.seed="$1" model.path="$model" \
    data.train="$out/demo/data/teacher.jsonl"
  quiet "$log" "$temper" export --checkpoint "$out/demo/sft-$1" --out "$warm"
  accuracy conf/demo_grpo.toml "${sums[@]}" model.path="$warm" > "$warm/accuracy"
  quiet "$log" "$temper" train conf/demo_grpo.toml "${sums[@]}" run.name="grpo-$1" run.seed="$1" model.path="$warm"
  quiet "$log" "$temper" export --checkpoint "$out/demo/grpo-$1" --out "$tuned"
  accuracy conf/demo_grpo.toml "${sums[@]}" model.path="$tuned" > "$tuned/accuracy"
}

curve() {  # RUN_DIR: step and accuracy of every validation
  sed -n 's|.*"step":\([0-9]*\),.*"val/heldout/score/mean":\([0-9.e+-]*\).*|\1 \2|p' "$1/metrics.jsonl"
}
seconds() { key timing_s/step < "$1/metrics.jsonl" | awk '{ s += $1 } END { printf "%.0f", s }'; }
row() { awk -v name="$1" 'BEGIN { printf "| %s", name } { printf " | %.3f", $1; s += $1 } END { printf " | %.3f |\n", s / NR }'; }
head_row() {  # FIRST COLUMN
  printf '| %s' "$1"; printf ' | seed %s' "${seeds[@]}"; echo ' | mean |'
  printf '|---'; printf '|---%.0s' "${seeds[@]}"; echo '|---|'
}
of_seeds() { for seed in "${seeds[@]}"; do cat "$1-$seed/accuracy"; done; }  # PREFIX of the folders

sft_table() {
  [ -e "$out/warm/greedy" ] || return 0
  printf '\nSFT, %s s; accuracy of sampled answers to 1024 held-out products by step:' "$(seconds "$out/sft")"
  curve "$out/sft" | awk '{ printf " %d: %.3f", $1, $2 } END { print "" }'
  echo "after SFT: sampled $(cat "$out/warm/sampled"), greedy $(cat "$out/warm/greedy")"
}
grpo_table() {
  for seed in "${seeds[@]}"; do [ -e "$out/tuned-$seed/accuracy" ] || return 0; done
  printf '\nGRPO, accuracy of sampled answers to 1024 held-out products:\n\n'
  head_row step
  for seed in "${seeds[@]}"; do cat "$out/warm/sampled"; done | row 0
  for step in $(curve "$out/grpo-${seeds[0]}" | cut -d ' ' -f 1); do
    for seed in "${seeds[@]}"; do curve "$out/grpo-$seed" | sed -n "s/^$step //p"; done | row "$step"
  done
  for seed in "${seeds[@]}"; do cat "$out/warm/greedy"; done | row "greedy, before"
  of_seeds "$out/tuned" | row "greedy, after"
  printf '\nseconds of all steps:'
  for seed in "${seeds[@]}"; do printf ' %s' "$(seconds "$out/grpo-$seed")"; done
  printf '; seeds at once: %s\n' "$jobs"
}
demo_table() {
  for seed in "${seeds[@]}"; do [ -e "$out/demo/tuned-$seed/accuracy" ] || return 0; done
  printf '\nThe demo with %s, greedy accuracy on 512 held-out sums:\n\n' "${demo_keys[*]}"
  head_row ""
  of_seeds "$out/demo/warm" | row "before GRPO"
  of_seeds "$out/demo/tuned" | row "after GRPO"
}

[ $# -gt 0 ] || set -- sft grpo demo
for part; do
  case $part in
    sft) begin "SFT on written products"; products_sft; sft_table ;;
    grpo) begin "GRPO, seeds ${seeds[*]}"; for_seeds products_grpo; grpo_table ;;
    demo) begin "the demo, seeds ${seeds[*]}"; tools/demo_data.sh "$out/demo/data"; for_seeds demo; demo_table ;;
    table) sft_table; grpo_table; demo_table ;;
    *) sed -n '6,13s/^# \{0,1\}//p' "$0" >&2; exit 64 ;;
  esac
done
begin "done"
