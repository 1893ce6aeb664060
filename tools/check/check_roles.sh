#!/usr/bin/env bash
# A role is a row (src/config/roles.cpp, src/run/roles/role_table.cpp) and its own files: how often src/ names one of the
# roles elsewhere, as a text of its own. Prints the places; exit 1 above the limit.
set -u
cd "$(dirname "$0")/../.."
limit=15

names=$(awk -F'"' '/\.name = "/ { print $2 }' src/config/roles.cpp | paste -sd'|')
if [ -z "$names" ]; then
  echo 'src/config/roles.cpp: no row with .name = "..." was found'
  exit 1
fi
places=$(grep -rnE "\"($names)\"" src --include='*.cpp' --include='*.h' |
  grep -vE '^src/config/(roles|fields)\.cpp:|^src/run/roles/' |
  grep -vE '^[^:]*:[0-9]+: *//')
count=$(grep -c . <<< "$places")
echo "$count places name a role ($names) outside of its row and files, limit $limit"
[ "$count" -le "$limit" ] && exit 0
printf '%s\n' "$places"
exit 1
