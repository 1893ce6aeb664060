#!/usr/bin/env bash
# Include directions: an include may only point down.
#   main -> run -> {train, rollout, io} -> {models, rl};  models -> nn -> {ops, comm};  ops -> kernels -> core
#   rl -> {ops, data};  io -> {nn, comm, config};  {data, comm, config} -> core
set -u
bad=""
check() {  # room, then the rooms that it may include besides itself and core
  local room=$1 file line target
  shift
  local allowed=" core $room $* "
  while IFS=: read -r file line; do
    target=$(echo "$line" | sed -n 's/.*#include "\(src\/\)\{0,1\}\([a-z]*\)\/.*/\2/p')
    case "$allowed" in *" $target "*) ;; *) bad="$bad$file includes $target: $line"$'\n' ;; esac
  done < <(grep -rHo --include='*.h' --include='*.cpp' '#include "\(src\|kernels\)/[^"]*"' "$( [ "$room" = kernels ] && echo kernels || echo src/"$room")" 2> /dev/null)
}
check core
check kernels
check ops kernels
check comm config
check config rl
check data
check nn ops comm kernels
check models nn ops comm
check rl ops data config
check io nn comm config
check train models rl nn ops comm config data kernels
check rollout models rl nn ops comm config data kernels
check run train rollout models rl io nn ops comm config data kernels
only() {  # pattern, then the files that may hold it
  local pattern=$1 file
  shift
  for file in $(grep -rlE --include='*.h' --include='*.cpp' "$pattern" src kernels); do
    case " $* " in *" $file "*) ;; *) bad="$bad$file: only $* may have $pattern"$'\n' ;; esac
  done
}
only '#include <mpi\.h>' src/comm/mpi_comm.cpp
only '#include <hdf5\.h>' src/io/hdf5_image.cpp
only '#include <toml\+\+' src/config/toml_node.cpp
for word in mesh 'rank\(\)' comm; do
  hit=$(grep -lE "$word" src/models/*.cpp 2> /dev/null)
  [ -n "$hit" ] && bad="$bad$hit: models know nothing of $word"$'\n'
done
[ -z "$bad" ] && { echo "check_layers: fine"; exit 0; }
printf '%s' "$bad"
exit 1
