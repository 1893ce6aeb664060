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
TOKEN = re.compile(r"(?P<thousands>(?<=[0-9])(?:\{,\}|, *\\!))|\\(?:begin|end)(?![A-Za-z])\{[A-Za-z*]+\}"
                   r"|\\(?:left|right)(?![A-Za-z])\.?|\\[A-Za-z]+|\\[\s\S]?|" + "|".join(SIGNS) +
                   r"|(?P<tight>(?<=[0-9]),(?=[0-9]))|[\s\S]")
POWERS = {2: ("^2", "^{2}", as_bytes("\u00b2")), 3: ("^3", "^{3}", as_bytes("\u00b3"))}
TEXT_UNITS = {"in", "m", "rad", "s"}


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


def without_power(text):
    """The text without a power of 2 or 3 at its end, and the power."""
    for power, written in POWERS.items():
        for form in written:
            if text.endswith(form):
                return text[:-len(form)], power
    return text, 1


def power_of_word(word):
    return 2 if word.startswith("square") else 3 if word.startswith("cubic") else 1


def is_unit(text):
    if len(text) > 64:
        return False
    if text in UNITS or text in TEXT_UNITS:
        return True
    if text.startswith(("square", "cubic")):
        return is_unit(text[6 if text[0] == "s" else 5:])
    per = text.find("per", 1)
    return per > 0 and is_unit(text[:per]) and is_unit(text[per + 3:])


def ends_in_variable(text):
    """A letter on its own, or a command (a Greek letter), at the end."""
    if re.search(r"\\[A-Za-z]+\Z", text):
        return True
    if not re.search(r"(?<![A-Za-z])[A-Za-z]\Z", text):
        return False
    before = text[:-1].strip(SPACE)
    return not re.search(r"[A-Za-z]\Z", before) or bool(re.search(r"\\[A-Za-z]+\Z", before))


def drop_unit_words(text):
    """The text without its unit, and the power of the unit: 0 when there is none."""
    rest, power, last = text[:-1] if text.endswith(".") else text, 0, ""
    while True:
        base, raised = without_power(rest)
        words = base.strip(SPACE)
        word = re.search(r"[A-Za-z]*\Z", words)
        before = words[:word.start()]
        if before.endswith("\\") or word[0] not in UNITS:
            break
        power, last = max(power, raised, power_of_word(word[0])), word[0]
        rest = before.strip(SPACE)
    value = re.search(r"[0-9})\]$%]\Z", rest) or (len(last) > 1 and ends_in_variable(rest))
    return (rest, power) if power and value else (text, 0)


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
    """The tokens without units in \\text{...} at the end, and their power: 0 when there is none."""
    match = match_braces(t)
    end, power = len(t), 0
    while True:
        close, raised = end, ""
        if close >= 2 and t[close - 2] == "^":
            close, raised = close - 2, t[close - 1]
        elif close >= 4 and t[close - 4] == "^" and match.get(close - 1) == close - 3:
            close, raised = close - 4, t[close - 2]
        start = match.get(close - 1) if close else None
        if start is None or start < 2 or t[start - 1] not in TEXT:
            return t[:end], power
        carrier, content = t[start - 2], "".join(t[start + 1:close - 1])
        unit, inside = without_power(content)
        closed = re.fullmatch(r"[0-9})\]]|\\pi|\\end\{.*", carrier)
        if re.fullmatch(r"[A-Z]", content) or not (closed or re.fullmatch("[A-Za-z]", carrier) and is_unit(unit)):
            return t[:end], power
        power = max(power, inside, power_of_word(content), int(raised) if raised in ("2", "3") else 1)
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
    """The tokens of the answer, and the power of its unit: 0 when there is none."""
    text, of_words = drop_unit_words(answer[-TAIL:].strip(SPACE))
    t, of_text = drop_final_units(drop_final_marks(drop_degrees(tokenize(text))))
    for step in (unwrap_text, drop_final_marks, drop_outer_braces, drop_assignment, resolve_commas, brace_arguments,
                 merge_numbers, write_fractions):
        t = step(t)
    choice = len(t) == 3 and t[0] == "(" and re.fullmatch("[A-Za-z]", t[1]) and t[2] == ")"
    return [t[1]] if choice else t, max(of_words, of_text)


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
    found, power = normal_form(boxed)
    expected, wanted_power = normal_form(answer[-TAIL:] if reference is None else reference)
    if not found or not expected or (power and wanted_power and power != wanted_power):
        return 0.0
    if found == expected:
        return 1.0
    return 1.0 if value(found) is not None and value(found) == value(expected) else 0.0


RULES = {"exact": exact, "arithmetic": arithmetic, "gsm8k": gsm8k, "length": length, "math": math}
