#!/usr/bin/env bash
# A struct or class of src/ with its body is one thought: at most 300 lines. Its body is what stands in its braces, its
# member functions wherever they are defined, and, as the members of a struct are open to all, the free functions that take
# it first as `T&`. Those that take it as `const T&` count where it holds what can be changed through it; who only reads
# plain values (a config, a plan, a history) is not their body. Behind a context, which says where work is done and not on
# what, the next parameter is the first. Prints offenders; exit 1 if there is one.
set -uo pipefail
cd "$(dirname "$0")/../.."
limit=300
contexts='Ctx Lane Runtime'
find src -name '*.cpp' -o -name '*.h' | sort | xargs awk -f tools/check/functions.awk |
  awk -F'\t' -v limit="$limit" -v contexts="$contexts" '
  function last_of(name,   word) { return word[split(name, word, "::")] }
  function folder(file) { sub(/\/[^\/]*$/, "", file); return file }
  function type_of(name, file) {  # which type of this name a file means: its own, its folder'\''s, or that of any header
    if ((name, file) in own) return own[name, file]
    if ((name, folder(file)) in near) return near[name, folder(file)]
    return name in far ? far[name] : ""
  }
  function add_function(file, line,   i, text, constant, type, word) {
    if (split($4, word, "::") > 1) {  # a member: in the braces, or not
      type = type_of(word[1], file)
      if (file != where[type] || line < from[type] || line >= from[type] + body[type]) members[type] += $3
      return
    }
    for (i = 5; i <= NF; ++i) {
      text = $i; constant = sub(/^const /, "", text)
      if (!sub(/ *&.*/, "", text)) return
      sub(/<.*/, "", text); text = last_of(text)
      if (index(" " contexts " ", " " text " ")) continue
      type = type_of(text, file)
      if (kind[type] == "struct" && (!constant || holds[type])) free[type] += $3
      return
    }
  }
  { file = line = $1; sub(/:.*/, "", file); sub(/.*:/, "", line); line += 0 }
  $2 == "struct" || $2 == "class" {
    name = last_of($4); type = name " (" $1 ")"
    kind[type] = $2; holds[type] = $5; own[name, file] = type
    where[type] = file; from[type] = line
    if (file ~ /\.h$/) near[name, folder(file)] = type
    if (file ~ /\.h$/ && $4 !~ /::/) far[name] = type
    if ($4 !~ /::/) body[type] = $3
  }
  $2 == "function" { row[++rows] = $0 }
  END {
    for (r = 1; r <= rows; ++r) {
      $0 = row[r]; file = line = $1; sub(/:.*/, "", file); sub(/.*:/, "", line)
      add_function(file, line + 0)
    }
    for (type in body) {
      if ((all = body[type] + members[type] + free[type]) <= limit) continue
      printf "%s: %d lines, limit %d: %d in its braces, %d of members elsewhere, %d of functions that take it\n", type, all, limit,
        body[type], members[type], free[type]
      failed = 1
    }
    exit failed
  }'
