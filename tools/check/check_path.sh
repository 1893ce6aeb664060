#!/usr/bin/env bash
# The newcomer's path: src/README.md names, behind "To understand it", the files that explain the program, `main.cpp` first,
# each in backticks, relative to src/ or to this repository. Together with src/README.md and their headers they stay short
# enough to be read: prints their lines; exit 1 above the limit, or when a file does not exist.
set -u
cd "$(dirname "$0")/../.."
limit=1800

names=$(awk '
  /To understand it/ { sub(/.*To understand it/, ""); inside = 1 }
  inside && /^[ \t]*$/ { exit }
  inside { text = text " " $0 }
  END { n = split(text, part, "`"); for (i = 2; i <= n; i += 2) print part[i] }' src/README.md)
if [ "$(head -1 <<< "$names")" != main.cpp ]; then
  echo 'src/README.md: no paragraph with "To understand it" that names `main.cpp` first and then the other files'
  exit 1
fi
files=(src/README.md)
while IFS= read -r name; do
  for file in "src/$name" "$name" ''; do [ -f "$file" ] && break; done
  if [ -z "$file" ]; then
    echo "src/README.md: \`$name\` on the newcomer's path is no file of src/ or of the repository"
    exit 1
  fi
  for file in "$file" "${file%.cpp}.h"; do
    [ -f "$file" ] || continue
    case " ${files[*]} " in *" $file "*) ;; *) files+=("$file") ;; esac
  done
done <<< "$names"
wc -l "${files[@]}"
total=$(cat "${files[@]}" | wc -l)
[ "$total" -le "$limit" ] && exit 0
echo "the newcomer's path has $total lines, limit $limit"
exit 1
