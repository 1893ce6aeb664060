"""The reward rules exact, arithmetic, gsm8k, length and math, written a second time from their documentation (the
headers of src/rl/rewards/), for tools that check a run. RULES[name](row, options) is the score of one line of
rollouts/step-*.jsonl, before its weight."""

import re
from fractions import Fraction

SPACE = " \t\n\v\f\r"


# ---- exact, arithmetic, gsm8k, length

def exact(row, options):
    return 1.0 if row["response"].strip(SPACE) == row["answer"].strip(SPACE) else 0.0


def last_integer(text):
    """The integer that the text ends with; a sign counts unless an operand stands before it."""
    found = re.search(r"((?<![0-9A-Za-z)\]}])[+-])?([0-9]+)\Z", text.strip(SPACE))
    return int(found[0]) if found else None


def arithmetic(row, options):
    return 1.0 if last_integer(row["response"]) == last_integer(row["answer"]) else 0.0


def marked_number(text):
    found = re.findall(r"#### (-?[0-9.,]+)", text)
    return found[-1].replace(",", "") if found else None


def last_number(text):
    found = re.findall(r"-?[0-9.,]*[0-9]", text)
    return found[-1].replace(",", "") if found else None


def gsm8k(row, options):
    find = last_number if options.get("method", "strict") == "flexible" else marked_number
    found = find(row["response"][-300:])
    if found is None:
        return 0.0
    expected = marked_number(row["answer"])
    if expected is None:
        expected = row["answer"].strip(SPACE).replace(",", "")
    return 1.0 if found == expected else float(options.get("format_score", 0))


def length(row, options):
    longest, buffer = int(options["max_tokens"]), int(options["buffer_tokens"])
    n, factor = len(row["response_tokens"]), float(options.get("factor", 1))
    if n <= longest - buffer:
        return 0.0
    return -factor if n > longest else factor * ((longest - buffer - n) / buffer)


# ---- math: a text is one character per UTF-8 byte, an answer a list of tokens

TAIL = 64 << 10
UNITS = set("""am cent cents centimeter centimeters cm cubic day days degree degrees dollar dollars feet foot ft g
gallons gram grams hour hours inch inches kg km kilometer kilometers lb lbs meter meters mile miles minute minutes mm
month months mph ounces people per percent pm points pound pounds second seconds square students unit units way ways
week weeks yard yards year years""".split())
TEXT = {"\\" + c for c in "text mbox hbox textrm textbf textit textsf texttt mathrm mathbf mathit mathsf operatorname"
        .split()}
DROPPED = set("$ % ~ \\ \\$ \\% \\! \\, \\; \\: \\> \\( \\) \\[ \\] \\quad \\qquad \\left \\right \\big \\Big \\bigg "
              "\\Bigg \\bigl \\bigr \\Bigl \\Bigr \\biggl \\biggr \\Biggl \\Biggr \\limits \\rm \\bf \\displaystyle "
              "\\textstyle \\degree \\textdegree".split()) | {"\\ "} | set(SPACE)
SYNONYMS = dict(zip("\\dfrac \\tfrac \\cfrac \\leq \\leqslant \\geq \\geqslant \\neq \\times \\lbrace \\rbrace \\ldots "
                    "\\cdots \\emptyset".split(),
                    "\\frac \\frac \\frac \\le \\le \\ge \\ge \\ne \\cdot \\{ \\} \\dots \\dots \\varnothing".split()))


def as_bytes(text):
    return text.encode("utf-8").decode("latin-1")


SIGNS = {as_bytes(k): v for k, v in {
    "\u2212": "-", "\u00b0": "", "\u00a0": "", "\u00d7": "\\cdot", "\u00b7": "\\cdot", "\u03c0": "\\pi",
    "\u221e": "\\infty", "\u2264": "\\le", "\u2265": "\\ge"}.items()}
SYNONYMS |= SIGNS
TOKEN = re.compile(r"(?P<thousands>(?<=[0-9])(?:\{,\}|,\\!))|\\(?:begin|end)(?![A-Za-z])\{[A-Za-z*]+\}"
                   r"|\\(?:left|right)(?![A-Za-z])\.?|\\[A-Za-z]+|\\[\s\S]?|" + "|".join(SIGNS) +
                   r"|(?P<tight>(?<=[0-9]),(?=[0-9]))|[\s\S]")
POWER = r"(?:\^2|\^3|\^\{2\}|\^\{3\}|" + as_bytes("\u00b2") + "|" + as_bytes("\u00b3") + r")?\Z"


def last_boxed(text):
    text = text[-TAIL:]
    starts = list(re.finditer(r"\\boxed|\\fbox", text))
    if not starts:
        return None
    rest = text[starts[-1].end():]
    bare = rest.lstrip(" ")
    if not bare.startswith("{"):
        line = re.split(r"[$\n]", bare)[0]
        return line if rest != bare and line else None
    depth = 0
    for token in re.finditer(r"\\[\s\S]?|[{}]", bare):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth == 0:
            return bare[1:token.start()]
    return None


def drop_unit_words(text):
    rest = text[:-1] if text.endswith(".") else text
    while True:
        words = re.sub(POWER, "", rest).strip(SPACE)
        word = re.search(r"[A-Za-z]*\Z", words)
        before = words[:word.start()]
        if before.endswith("\\") or word[0] not in UNITS:
            break
        rest = before.strip(SPACE)
    return rest if re.search(r"[0-9})$%]\Z", rest) else text


def tokenize(text):
    tokens = []
    for found in TOKEN.finditer(text):
        token = found[0]
        if token in ("\\left.", "\\right.") or found["thousands"] or token in DROPPED:
            continue
        token = ",," if found["tight"] else SYNONYMS.get(token, token)
        if token:
            tokens.append(token)
    return tokens


def match_braces(tokens):
    match, opened = {}, []
    for i, token in enumerate(tokens):
        if token == "{":
            opened.append(i)
        elif token == "}" and opened:
            match[i] = opened.pop()
            match[match[i]] = i
    return match


def drop_degrees(t):
    out, i = [], 0
    while i < len(t):
        if t[i:i + 2] == ["^", "\\circ"]:
            i += 2
        elif t[i:i + 4] == ["^", "{", "\\circ", "}"]:
            i += 4
        else:
            out.append(t[i])
            i += 1
    return out


def drop_final_marks(t):
    while t and t[-1] in (".", ",", ";"):
        t = t[:-1]
    return t


def drop_final_units(t):
    match = match_braces(t)
    end = len(t)
    while True:
        close = end
        if close >= 2 and t[close - 2] == "^":
            close -= 2
        elif close >= 4 and t[close - 4] == "^" and match.get(close - 1) == close - 3:
            close -= 4
        start = match.get(close - 1) if close else None
        if start is None or start < 2 or t[start - 1] not in TEXT:
            return t[:end]
        carrier = t[start - 2]
        if not (re.fullmatch(r"[0-9})]", carrier) or carrier == "\\pi"):
            return t[:end]
        if re.fullmatch(r"[A-Z]", "".join(t[start + 1:close - 1])):
            return t[:end]
        end = start - 1


def unwrap_text(t):
    match, replaced = match_braces(t), {}
    for i in range(len(t) - 1):
        if t[i] in TEXT and t[i + 1] == "{" and i + 1 in match:
            start, close = i + 1, match[i + 1]
            replaced |= {i: "", start: "", close: ""}
            if "".join(t[start + 1:close]) in ("and", "or"):
                replaced |= {k: "" for k in range(start + 1, close)} | {start + 1: ","}
    return [token for token in (replaced.get(i, token) for i, token in enumerate(t)) if token]


def drop_outer_braces(t):
    match, begin, end = match_braces(t), 0, len(t)
    while end - begin >= 2 and t[begin] == "{" and match.get(begin) == end - 1:
        begin, end = begin + 1, end - 1
    return t[begin:end]


def drop_assignment(t):
    if not t or not re.fullmatch(r"[A-Za-z]|\\.*[A-Za-z]", t[0]):
        return t
    at = 1
    if len(t) > 3 and t[1] == "_":
        at = 3
    elif len(t) > 4 and t[1] == "(" and re.fullmatch("[A-Za-z]", t[2]) and t[3] == ")":
        at = 4
    follows = len(t) > at + 1 and (t[at] == "\\in" or (t[at] == "=" and t.count("=") == 1))
    return t[at + 1:] if follows else t


def resolve_commas(t):
    out, depth, i = [], 0, 0
    while i < len(t):
        depth += (t[i] in ("(", "[", "\\{")) - (t[i] in (")", "]", "\\}"))
        end = i
        while end < len(t) and re.fullmatch(r"[0-9]|,,", t[end]) and (end > i or t[i] != ",,"):
            end += 1
        if end == i:
            out.append(t[i])
            i += 1
            continue
        blocks = [len(b) for b in "".join(t[i:end]).split(",,")]
        thousands = depth <= 0 and out[-1:] != ["."] and blocks[0] <= 3 and all(b == 3 for b in blocks[1:])
        out += [("," if token == ",," else token) for token in t[i:end] if token != ",," or not thousands]
        i = end
    return out


def brace_arguments(t):
    match, wrapped, dropped = match_braces(t), {}, set()

    def argument(at):
        if at >= len(t) or t[at] == "}":
            return len(t)
        if t[at] == "{":
            return match[at] + 1 if at in match else len(t)
        wrapped[at] = wrapped.get(at, 0) + 1
        return at + 1

    for i, token in enumerate(t):
        if token == "\\sqrt" and t[i + 1:i + 2] not in ([], ["["]):
            argument(i + 1)
        elif token in ("\\frac", "\\binom"):
            argument(argument(i + 1))
        elif token in ("^", "_") and t[i + 1:i + 2] == ["{"] and match.get(i + 1) == i + 3:
            dropped |= {i + 1, i + 3}
    out = []
    for i, token in enumerate(t):
        if i not in dropped:
            out += ["{"] * wrapped.get(i, 0) + [token] + ["}"] * wrapped.get(i, 0)
    return out


def merge_numbers(t):
    out, i = [], 0
    while i < len(t):
        run = i
        while run < len(t) and re.fullmatch(r"[0-9.]", t[run]):
            run += 1
        found = re.match(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+", "".join(t[i:run]))
        if not found:
            out.append(t[i])
            i += 1
            continue
        whole, _, fraction = found[0].partition(".")
        whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
        out.append(whole + "." + fraction if fraction else whole)
        i += len(found[0])
    return out


def write_fractions(t):
    before = set("( [ { \\{ , = + - & \\\\ \\pm \\mp \\cup \\le \\ge < >".split())
    out, i = [], 0
    while i < len(t):
        ratio = i + 2 < len(t) and t[i][0].isdigit() and t[i + 1] == "/" and t[i + 2][0].isdigit()
        left = i == 0 or t[i - 1] in before or t[i - 1].startswith("\\begin")
        if ratio and left and t[i + 3:i + 4] not in (["^"], ["_"], ["/"], ["!"], ["."]):
            out += ["\\frac", "{", t[i], "}", "{", t[i + 2], "}"]
            i += 3
        else:
            out.append(t[i])
            i += 1
    return out


def normal_form(answer):
    t = tokenize(drop_unit_words(answer[-TAIL:].strip(SPACE)))
    for step in (drop_degrees, drop_final_marks, drop_final_units, unwrap_text, drop_final_marks, drop_outer_braces,
                 drop_assignment, resolve_commas, brace_arguments, merge_numbers, write_fractions):
        t = step(t)
    choice = len(t) == 3 and t[0] == "(" and re.fullmatch("[A-Za-z]", t[1]) and t[2] == ")"
    return [t[1]] if choice else t


def sign(written):
    return -1 if written == "- " else 1


def num_digits(number):
    return len(number.replace(".", ""))


def value(tokens):
    """The exact value of a decimal, a fraction or a mixed number; None when it is none, or too long."""
    number = r"([0-9]+(?:\.[0-9]+)?)"
    part = rf"\\frac \{{ ([+-] )?{number} \}} \{{ ([+-] )?{number} \}}"
    found = re.fullmatch(rf"([+-] )?(?:{number}(?: {part})?|{part})", " ".join(tokens))
    if not found:
        return None
    front, whole, *parts = found.groups()
    above_sign, above, below_sign, below = parts[:4] if parts[1] else parts[4:]
    result = Fraction(0)
    if above:
        if max(num_digits(above), num_digits(below)) > 9 or Fraction(below) == 0:
            return None
        result = Fraction(above) / Fraction(below) * sign(above_sign) * sign(below_sign)
    if whole:
        if num_digits(whole) > 18 or (above and not plain_mixed(whole, above_sign, above, below_sign, below)):
            return None
        result += Fraction(whole)
    return result * sign(front)


def plain_mixed(whole, above_sign, above, below_sign, below):
    """A mixed number: whole, then a fraction of no sign, all of whose cross products stay short."""
    def places(n):
        return 10 ** len(n.partition(".")[2])
    numerator = int(above.replace(".", "")) * places(below) * sign(above_sign)
    denominator = int(below.replace(".", "")) * places(above) * sign(below_sign)
    short = int(whole) < 10**9 if "." not in whole else False
    return short and 0 <= numerator < 10**9 and 0 < denominator < 10**9


def math(row, options):
    response, answer = as_bytes(row["response"]), as_bytes(row["answer"])
    boxed = last_boxed(response)
    if boxed is None:
        return 0.0
    reference = last_boxed(answer)
    found, expected = normal_form(boxed), normal_form(answer[-TAIL:] if reference is None else reference)
    if not found or not expected:
        return 0.0
    if found == expected:
        return 1.0
    return 1.0 if value(found) is not None and value(found) == value(expected) else 0.0


RULES = {"exact": exact, "arithmetic": arithmetic, "gsm8k": gsm8k, "length": length, "math": math}
