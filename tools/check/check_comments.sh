#!/usr/bin/env bash
# Comments: none begins with "Of" (a sentence has a subject and a verb), and each file that one names is a file of this
# repository, or the end of the path of one (`core/lane.h`, `canonical.cuh`). Prints offenders and counts; exit 1 if any.
set -u
cd "$(dirname "$0")/../.."
files() { find src kernels tests tools conf slurm -type f; ls ./*.md Makefile; }
code() { find src kernels tests -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh'; }
scripts() { find tools tests -name '*.sh' -o -name '*.py' -o -name '*.mk'; }
files | awk '
  FILENAME == "-" {  # the ends of all paths
    path = $0; sub(/^\.\//, "", path); there[path] = 1
    while (sub(/^[^\/]*\//, "", path)) there[path] = 1
    next
  }
  FNR == 1 { inside = 0; mark = FILENAME ~ /\.(sh|py|mk)$/ ? "#" : "//" }
  {
    text = $0
    at = match(text, "(^|[ \t;])" mark)
    if (at == 0) { inside = 0; next }
    whole = text ~ (mark == "#" ? "^[ \t]*#" : "^[ \t]*//")
    text = substr(text, at)
    if (mark == "//" && whole && !inside && text ~ /^[ \t]*\/\/\/? ?Of[^A-Za-z]/) {
      print FILENAME ":" FNR ": begins with \"Of\""; ++without_subject
    }
    inside = whole
    while (match(text, /[A-Za-z0-9_.\/-]+\.(h|cpp|cu|cuh|sh|py|md)/)) {
      name = substr(text, RSTART, RLENGTH)
      rest = substr(text, RSTART + RLENGTH, 1); before = RSTART > 1 ? substr(text, RSTART - 1, 1) : ""
      text = substr(text, RSTART + RLENGTH)
      # parts of names (`_test.cpp`, `*.h`, `<name>.cpp`), paths elsewhere, and the header of MPI are no files of ours
      if (rest ~ /[A-Za-z0-9_]/ || before ~ /[*>}$~]/ || name ~ /^[_.\/-]/ || name == "mpi.h" || name in there) continue
      print FILENAME ":" FNR ": names " name ", which does not exist"; ++absent
    }
  }
  END {
    if (without_subject + absent == 0) exit 0
    print without_subject + 0 " comments begin with \"Of\", " absent + 0 " names of files are of none"
    exit 1
  }' - $(code) $(scripts)
