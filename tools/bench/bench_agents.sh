#!/usr/bin/env bash
# What agents cost: what tests/bench/agents_bench says; then a step whose samples are programs' chains of one turn over
# HTTP against the same step without programs, the medians of a step's seconds in two runs. Prints Markdown for
# tests/bench/RESULTS.md. With "cuda" on a GPU, with the layers of Qwen3-1.7B in bf16, and with turns of 640 tokens, too.
# Needs python3.
# usage: [STEPS=12] [LENGTHS="128 640"] tools/bench/bench_agents.sh BUILD_DIR [cpu|cuda]
set -eu
build=$1
device=${2:-cpu}
steps=${STEPS:-12}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Numbers of the shape: hidden size, layers, heads, heads of keys, size of a head.
case $device in
  cpu) shape="256 4 8 4 32" dtype=float32 more="" lengths="128" ;;
  cuda) shape="2048 28 16 8 128" dtype=bfloat16 more="optimizer.state=bf16" lengths="128 640" ;;
esac
read -r hidden layers heads kv_heads head <<< "$shape"
cat > "$work/config.json" <<JSON
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": $hidden, "intermediate_size": $((3 * hidden)),
 "num_hidden_layers": $layers, "num_attention_heads": $heads, "num_key_value_heads": $kv_heads, "head_dim": $head,
 "vocab_size": 6400, "max_position_embeddings": 1024, "tie_word_embeddings": true, "rms_norm_eps": 1e-6,
 "rope_theta": 10000.0, "torch_dtype": "$dtype", "eos_token_id": 2}
JSON
"$build/tests/bench/agents_bench" "$device" ${SESSIONS:+"$SESSIONS"} ${TURNS:+"$TURNS"}
"$build/temper" init --config "$work/config.json" --out "$work/model" --tokenizer tests/golden/tokenizer/minimind > "$work/init.log"
awk 'BEGIN { for (i = 0; i < 64; ++i) printf "{\"prompt\":\"What is %d plus %d?\",\"answer\":\"%d\"}\n", i, 3 * i, 4 * i }' > "$work/data.jsonl"
cat > "$work/one_turn.py" <<'PY'
import http.client, json, sys, threading

def play(id, start, lock=threading.Lock()):
    host = start["anthropic_base_url"].split("//")[1]
    connection = http.client.HTTPConnection(host)
    connection.request("POST", "/v1/chat/completions", json.dumps({
        "model": "policy", "messages": [{"role": "user", "content": start["record"]["prompt"]}]}),
        {"Content-Type": "application/json", "Authorization": "Bearer " + start["api_key"]})
    connection.getresponse().read()
    with lock:
        print(json.dumps({"id": id, "done": True}), flush=True)

for line in sys.stdin:
    told = json.loads(line)
    if "start" in told:
        threading.Thread(target=play, args=(told["id"], told["start"]), daemon=True).start()
PY
run() {  # name, tokens, further keys
  local name=$1 tokens=$2
  shift 2
  printf 'run.name = "%s"\nrun.dir = "%s"\n' "$name" "$work" > "$work/$name.toml"
  # shellcheck disable=SC2086
  "$build/temper" train "$work/$name.toml" run.steps="$steps" run.threads=1 run.device="$device" $more model.path="$work/model" rollout.prompts_per_step=8 \
    rollout.samples_per_prompt=8 rollout.max_new_tokens="$tokens" rollout.max_prompt_tokens=64 rollout.ignore_eos=true optimizer.lr=1e-5 \
    data.train="$work/data.jsonl" data.chat=true 'reward.functions=["arithmetic"]' algorithm.single_group=zero log.samples_per_step=0 checkpoint.every=0 \
    checkpoint.every_minutes=0 checkpoint.export_hf_every=0 "$@" 2> "$work/$name.log" || { cat "$work/$name.log"; exit 1; }
  rm -rf "$work/$name/checkpoints"  # of the last step: gigabytes
}
median() { sed -n "s/.*\"timing_s\/$2\":\([0-9.e-]*\).*/\1/p" "$work/$1/metrics.jsonl" | tail -n +3 | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
for tokens in ${LENGTHS:-$lengths}; do
  run "plain-$tokens" "$tokens"
  run "played-$tokens" "$tokens" "rollout.harness={argv = [\"python3\", \"$work/one_turn.py\"], kind = \"service\", in_flight = 64}"
  echo "| a step of 64 samples, $tokens tokens each | without programs | chains of one turn over HTTP | ratio |"
  echo "|---|---|---|---|"
  for part in step gen; do
    awk -v p="$part" -v a="$(median "plain-$tokens" "$part")" -v b="$(median "played-$tokens" "$part")" \
      'BEGIN { printf "| timing_s/%s | %.3f | %.3f | %.3f |\n", p, a, b, b / a }'
  done
done
