#!/usr/bin/env bash
# A step whose samples are programs' chains of one turn over HTTP against the same step without programs, in one run, turn
# by turn: the median of a step's seconds. Prints Markdown for tests/bench/RESULTS.md. Needs python3.
# usage: tools/bench/bench_agents.sh BUILD_DIR
set -eu
build=$1
steps=${STEPS:-12}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/config.json" <<'JSON'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 256, "intermediate_size": 768,
 "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32, "vocab_size": 6400,
 "max_position_embeddings": 1024, "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
 "torch_dtype": "float32", "eos_token_id": 2}
JSON
"$build/temper" init --config "$work/config.json" --out "$work/model" --tokenizer tests/golden/tokenizer/minimind
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
run() {  # name, further keys
  local name=$1
  shift
  printf 'run.name = "%s"\nrun.dir = "%s"\n' "$name" "$work" > "$work/$name.toml"
  "$build/temper" train "$work/$name.toml" run.steps="$steps" run.threads=1 model.path="$work/model" rollout.prompts_per_step=8 \
    rollout.samples_per_prompt=8 rollout.max_new_tokens=128 rollout.max_prompt_tokens=64 rollout.ignore_eos=true optimizer.lr=1e-5 \
    data.train="$work/data.jsonl" data.chat=true 'reward.functions=["arithmetic"]' algorithm.single_group=zero log.samples_per_step=0 \
    "$@" 2> "$work/$name.log" || { cat "$work/$name.log"; exit 1; }
}
median() { sed -n "s/.*\"timing_s\/$2\":\([0-9.e-]*\).*/\1/p" "$work/$1/metrics.jsonl" | tail -n +3 | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
run plain
run played "rollout.harness={argv = [\"python3\", \"$work/one_turn.py\"], kind = \"service\", in_flight = 64}"
echo "| a step of 64 samples, 128 tokens each | without programs | chains of one turn over HTTP | ratio |"
echo "|---|---|---|---|"
for part in step gen; do
  awk -v p="$part" -v a="$(median plain "$part")" -v b="$(median played "$part")" \
    'BEGIN { printf "| timing_s/%s | %.3f | %.3f | %.3f |\n", p, a, b, b / a }'
done
