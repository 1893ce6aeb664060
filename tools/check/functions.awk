# The functions and classes of C++ files at namespace or class level, one a line, fields divided by tabs:
#   FILE:LINE  function|declaration  LINES  SCOPE::NAME  PARAMETERS (divided by tabs, without their defaults)
#   FILE:LINE  struct|class  LINES  SCOPE::NAME  holds|  (`holds`: some member refers to what may change elsewhere)
# LINES are those from the line on which it begins to its last brace or semicolon. Scopes name classes, not namespaces.
function parts(text, list,   i, c, depth, n, one) {  # the texts between commas outside of any bracket
  n = 0; one = ""; depth = 0
  for (i = 1; i <= length(text); ++i) {
    c = substr(text, i, 1)
    if (c ~ /[<({[]/) ++depth
    else if (c ~ /[>)}\]]/ && substr(text, i - 1, 2) != "->") --depth
    if (c == "," && depth == 0) { list[++n] = one; one = "" } else one = one c
  }
  if (one ~ /[^ \t]/) list[++n] = one
  return n
}
function print_function(kind,   text, at, i, c, depth, name, out, n, list) {
  text = head
  sub(/^[ \t]*/, "", text)
  while (match(text, /^(template|requires) *</)) {  # templates: skip <...>
    depth = 0
    for (i = RLENGTH; i <= length(text); ++i) {
      c = substr(text, i, 1)
      if (c == "<") ++depth
      if (c == ">" && --depth == 0) break
    }
    text = substr(text, i + 1); sub(/^[ \t]*/, "", text)
  }
  if (text ~ /^(using|typedef|static_assert|friend|enum|extern "C")/) return 0
  if (!match(text, /[A-Za-z_~][A-Za-z0-9_:~]*(<[A-Za-z0-9_:, ]*>)?(operator *[^A-Za-z ]+)? *\(/)) return 0
  at = RSTART + RLENGTH - 1
  name = substr(text, RSTART, RLENGTH - 1); gsub(/ /, "", name)
  if (substr(text, 1, RSTART - 1) ~ /[=({]/) return 0  # a value, not a function
  depth = 0
  for (i = at; i <= length(text); ++i) {
    c = substr(text, i, 1)
    if (c == "(") ++depth
    if (c == ")" && --depth == 0) break
  }
  n = parts(substr(text, at + 1, i - at - 1), list); out = ""
  for (i = 1; i <= n; ++i) {
    sub(/=.*/, "", list[i]); gsub(/^[ \t]+|[ \t]+$/, "", list[i]); gsub(/[ \t]+/, " ", list[i])
    out = out "\t" list[i]
  }
  printf "%s:%d\t%s\t%d\t%s%s%s\n", FILENAME, begun, kind, FNR - begun + 1, scope_name(), name, out
  return 1
}
function print_class() {
  printf "%s:%d\t%s\t%d\t%s%s\t%s\n", FILENAME, class_begun[depth_], word_of[depth_], FNR - class_begun[depth_] + 1,
    scope_name(), class_name[depth_], holds[depth_ + 1]
}
function is_special(head) {  # constructors, the destructor, assignments: no member that holds something
  return head ~ /[ &]operator=\(/ || head ~ ("^ *(explicit +)?~?" class_name[depth_ - 1] "\\(")
}
function scope_name(   i, text) {
  for (i = 0; i < depth_; ++i) if (class_name[i] != "") text = text class_name[i] "::"
  return text
}
FNR == 1 && depth_ + nested + parens != 0 {
  print "check/functions.awk: the braces of the file before " FILENAME " do not match" > "/dev/stderr"
  exit 1
}
FNR == 1 { depth_ = nested = parens = raw = 0; head = "" }
{
  code = $0
  if (raw) {  # inside R"(...)"
    if (code !~ /\)[A-Za-z_]*"/) next
    sub(/^.*\)[A-Za-z_]*"/, "\"\"", code); raw = 0
  }
  while (match(code, /R"[A-Za-z_]*\(/)) {
    rest = substr(code, RSTART + RLENGTH); code = substr(code, 1, RSTART - 1) "\"\""
    if (match(rest, /\)[A-Za-z_]*"/)) code = code substr(rest, RSTART + RLENGTH)
    else { raw = 1; break }
  }
  gsub(/\\\\/, "", code); gsub(/\\["\047]/, "", code); gsub(/\047"\047/, "0", code); gsub(/"[^"]*"/, "\"\"", code)
  gsub(/\047[^\047]*\047/, "0", code); sub(/\/\/.*/, "", code)
  if (code ~ /^[ \t]*#/ || code ~ /^[ \t]*$/) next
  gsub(/\[\[[a-z_]*\]\]/, "", code); gsub(/(public|private|protected):/, "", code)
  for (at_ = 1; at_ <= length(code); ++at_) {
    c = substr(code, at_, 1)
    if (nested) {  # in the body of a function, or a value in braces
      if (c == "{") ++nested
      if (c == "}" && --nested == 0 && in_body) { print_function("function"); head = "" }
      continue
    }
    if (head ~ /^[ \t]*$/ && c !~ /[ \t]/) begun = FNR
    if (c == "(") ++parens
    if (c == ")") --parens
    if (c == "{" && parens == 0) {
      if (head ~ /(^|[^A-Za-z_])(namespace|class|struct|union|extern)([^A-Za-z_]|$)/ && head !~ /\)[^)]*$|(^|[ \t])enum /) {
        text = head; sub(/ final *$/, "", text); sub(/[^:]:[^:].*/, "", text)
        class_name[depth_] = ""
        if (head !~ /namespace|extern/) {
          n_ = split(text, word_, /[ \t]+/); class_name[depth_] = word_[n_] != "" ? word_[n_] : word_[n_ - 1]
        }
        word_of[depth_] = head ~ /(^|[^A-Za-z_])class([^A-Za-z_]|$)/ ? "class" : "struct"
        holds[depth_ + 1] = ""; class_begun[depth_] = begun; ++depth_; head = ""
      } else {
        nested = 1
        # a member's value in the list of a constructor stands behind a name, a body behind anything else
        in_body = head ~ /\)/ && head !~ /=[ \t]*$/ && !(head ~ /\)[ \t]*:[^:]/ && head ~ /[A-Za-z0-9_>][ \t]*$/ &&
          head !~ /(const|override|noexcept|final)[ \t]*$/)
      }
      continue
    }
    if (c == "}" && parens == 0) {
      if (depth_ > 0) --depth_
      if (class_name[depth_] != "") print_class()
      class_name[depth_] = ""; head = ""; continue
    }
    if (c == ";" && parens == 0) {
      if (!(head ~ /\(/ && print_function("declaration")) && head ~ /[&*]|_ptr</ &&
          head !~ /^ *(using|const [A-Za-z_:]+[&*] |static)/ && !is_special(head)) holds[depth_] = "holds"
      head = ""; continue
    }
    head = head c
  }
  if (!nested) head = head " "
}
