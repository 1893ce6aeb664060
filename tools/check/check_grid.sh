#!/usr/bin/env bash
# Where a rank is along an axis, and which ranks are beside it, says Grid (src/comm/grid.h: at, group_of, number, group,
# span): nobody else divides a rank, takes it modulo something, makes one from places along axes, or divides the ranks of a
# role by axes. Rules on sizes are no places (`ranks % tp == 0`), nor are bounds of a range (`n * rank / ranks`); quotients
# by `copies` are heads, and by ranks_on_node() turns on a host, which is no axis. Prints offenders; exit 1 if any.
set -uo pipefail
cd "$(dirname "$0")/../.."
axis='([A-Za-z_]+(\.|->))*((tp|cp|dp|pp|vpp)(_ranks)?(_|\(\)|(\.|->)size\(\))?|(along|size|span)\((Axis::|k[A-Z])[^)]*\))'
rank='([A-Za-z_]*rank|number_of|stage_of|team_number|replica|member)(_|\([^()]*\))?'
number='(number|self|me|peer|index|i)_?'
ranks='([A-Za-z_]*ranks|ranks\.size\(\)|ranks\)+)'
begin='(^|[^A-Za-z0-9_.>])'
end='([^A-Za-z0-9_]|$)'
name='[A-Za-z_.>()-]+(\([^()]*\))?'
divided="$begin$rank\)* *[/%] *[A-Za-z_(]|rank[^;,]*\) *[/%] *$axis$end|$begin$number *[/%] *$axis$end"
divided="$divided|$begin$axis\)* *\* *$name \+ |\+ *$axis *\* |$begin$name \* $axis *\+ "
axes="$ranks *[/%] *$axis$end|% *$axis$end"
find src \( -name '*.cpp' -o -name '*.h' \) ! -path 'src/comm/grid.*' | sort |
  xargs awk -v divided="${divided//\\/\\\\}" -v axes="${axes//\\/\\\\}" -v axis="${axis//\\/\\\\}" '
  {
    code = $0
    sub(/\/\/.*/, "", code); gsub(/"[^"]*"/, "\"\"", code)
    gsub(/\* \(?rank( \+ 1\))? \/ ranks|\/ *copies|% *[a-z_.]*ranks_on_node\(\)/, "", code)
    found = code ~ divided
    gsub("% *" axis " *[!=]= *0", "", code)
    if (found || code ~ axes) { print FILENAME ":" FNR ": " $0; ++places }
  }
  END { if (places) print places " places compute with ranks outside of src/comm/grid.h"; exit places > 0 }'
