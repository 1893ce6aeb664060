#!/usr/bin/env bash
# Limits of the tree: files 600 lines (.cu 800, main.cpp 60), functions 60 lines (kernels/ 150), lines 120 columns.
set -u
files=$(git ls-files -co --exclude-standard 'src/*.cpp' 'src/*.h' 'kernels/*.cpp' 'kernels/*.h' 'kernels/*.cu' 'kernels/*.cuh' 'tests/*.cpp' 'tests/*.h')
bad=$(for f in $files; do
  [ -f "$f" ] || continue
  case $f in src/main.cpp) lines=60 ;; *.cu | *.cuh) lines=800 ;; *) lines=600 ;; esac
  case $f in kernels/*) body=150 ;; tests/*) body=100 ;; *) body=60 ;; esac
  awk -v file="$f" -v lines="$lines" -v body="$body" '
    length > 120 { printf "%s:%d: %d columns\n", file, FNR, length }
    # A function opens with ") ... {" at the indentation of a namespace or a class and closes at the same one.
    !open && match($0, /^(  )?[A-Za-z~_:<>].*\{$/) && !/^ *(namespace|class|struct|enum|union|extern|template)/ && /[)a-z] \{$/ && /\(|\)/ {
      open = FNR; indent = ($0 ~ /^  /) ? "  " : ""; name = $0; next }
    open && $0 == indent "}" { if (FNR - open + 1 > body) printf "%s:%d: %d lines in one function: %s\n", file, open, FNR - open + 1, name; open = 0 }
    END { if (FNR > lines) printf "%s: %d lines, the limit is %d\n", file, FNR, lines }' "$f"
done)
[ -z "$bad" ] && { echo "check_size: fine"; exit 0; }
echo "$bad"
exit 1
