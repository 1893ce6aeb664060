#!/usr/bin/env bash
# Which folder may include which: a row says what a folder sees besides itself and core. Also keeps the headers of MPI,
# HDF5, TOML++, spdlog and nlohmann-json (which cost seconds) in their few files, and parallelism out of the model files.
# Prints offenders; exit 1 if any.
set -u
cd "$(dirname "$0")/../.."
offenders=$(
  grep -rnE '#include "(src|kernels)/' src kernels --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' | awk '
    function room(path,   p) {
      split(path, p, "/")
      if (p[1] == "kernels") return p[1] (p[3] ? "/" p[2] : "") (p[4] ? "/" p[3] : "")
      if (p[3] == "") return "main"
      if (p[2] == "run" || p[2] == "agents" || (p[2] == "data" && p[4] != "")) return p[2] "/" p[3]
      return p[2]
    }
    function allow(from, list,   n, i, to) {
      n = split(list, to, " ")
      for (i = 1; i <= n; ++i) allowed[from, to[i]] = 1
    }
    BEGIN {
      # run: verbs -> session -> roles -> groups -> host -> { plan, exchange, record, report }, which do not see each other
      run = "agents/service agents/doors agents/sessions agents/programs agents/turns agents/server train rollout models rl nn ops comm data data/tokenizer config io core"
      allow("main", "run/verbs core")
      allow("run/verbs", "run/local run/session run/roles run/groups run/host run/plan run/exchange run/record run/report " run)
      allow("run/session", "run/roles run/groups run/host run/plan run/exchange run/record " run)
      allow("run/roles", "run/groups run/host run/plan run/exchange run/record " run)
      allow("run/groups", "run/host " run); allow("run/host", "run/plan run/record " run); allow("run/plan", run); allow("run/exchange", run); allow("run/record", run); allow("run/report", run); allow("run/local", "comm core")
      allow("agents/server", "core")
      allow("train", "io models rl nn ops comm config core")
      allow("rollout", "models rl nn ops data/tokenizer core")
      allow("models", "nn ops core")
      allow("nn", "ops comm core")
      allow("ops", "kernels kernels/cpu kernels/cuda kernels/cuda/hybrid kernels/planned core")   # the backends through dispatch.h, see below
      # what every backend has -> the backends, which do not see each other -> what runs on the device
      allow("kernels", "core"); allow("kernels/cpu", "kernels core"); allow("kernels/cuda/scratch", "kernels core")
      allow("kernels/planned", "kernels kernels/cuda/scratch core"); allow("kernels/cuda/device", "kernels core")
      allow("kernels/cuda", "kernels kernels/cuda/scratch kernels/cuda/device core")
      allow("kernels/cuda/hybrid", "kernels kernels/cuda kernels/cuda/scratch kernels/cuda/device core")
      allow("rl", "ops data core")
      # agents: service -> { doors, sessions, programs } -> turns; server
      allow("agents/turns", "data data/tokenizer core"); allow("agents/doors", "agents/turns rl data data/tokenizer core")
      allow("agents/sessions", "agents/turns rl data data/tokenizer core"); allow("agents/programs", "agents/sessions rl core")
      allow("agents/service", "agents/doors agents/sessions agents/programs agents/turns agents/server rollout rl data data/tokenizer core")
      allow("io", "nn comm config core")
      allow("data", "data/jinja data/tokenizer core"); allow("data/jinja", "core"); allow("data/tokenizer", "core")
      allow("comm", "ops core"); allow("config", "core")
      exempt["nn", "kernels/types.h"] = exempt["rollout", "kernels/types.h"] = exempt["nn", "kernels/delta_types.h"] = exempt["rollout", "kernels/delta_types.h"] = 1   # plain argument structs
      exempt["agents/programs", "src/config/agents_config.h"] = exempt["agents/programs", "src/agents/sessions/end_reason.h"] = 1
      exempt["rl", "src/config/algorithm_config.h"] = exempt["rl", "src/config/methods.h"] = exempt["rl", "src/config/reward_config.h"] = 1
    }
    {
      file = $0; sub(/:.*/, "", file)
      target = $0; sub(/.*#include "/, "", target); sub(/".*/, "", target)
      from = room(file); to = room(target)
      if (from != to && !((from, to) in allowed) && !((from, target) in exempt)) print $0 "   (" from " may not include " to ")"
    }'
  only() {  # only PATTERN NAME FILES...: the header NAME appears in FILES and nowhere else
    local pattern=$1 name=$2
    shift 2
    grep -rnE "#include [<\"]$pattern" src kernels | while IFS= read -r line; do
      for file in "$@"; do
        # shellcheck disable=SC2053
        [[ ${line%%:*} == $file ]] && continue 2
      done
      echo "$line   ($name belongs in $* alone)"
    done
  }
  only 'toml\+\+/' toml++ src/config/toml_node.cpp
  only 'spdlog/(spdlog|sinks|pattern)' spdlog src/core/log.cpp src/run/record/run_log.cpp src/run/verbs/guard.cpp
  only 'nlohmann/' nlohmann-json src/core/json/library.h
  only 'microhttpd\.h' microhttpd.h 'src/agents/server/*' src/run/verbs/version.cpp
  only 'hdf5\.h' hdf5.h src/io/checkpoint/hdf5_layout.cpp
  only 'kernels/c[a-z]*/' backends src/ops/dispatch.h src/ops/hybrid/dispatch.h src/ops/linear.cpp 'kernels/*'
  only 'mpi\.h' mpi.h 'src/comm/mpi_*'
  grep -nwiE 'mesh|comm|ranks?' src/models/*.cpp src/models/*.h | sed 's/$/   (models know of no parallelism)/'
)
[ -z "$offenders" ] && exit 0
printf '%s\n' "$offenders"
exit 1
