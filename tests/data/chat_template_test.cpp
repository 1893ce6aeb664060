#include "src/data/chat_template.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include "src/core/big_integer.h"
#include "src/core/check.h"
#include "src/core/file.h"

namespace temper {
namespace {

const std::string kGolden = "tests/golden/chat/";

/// What rendering gives: the text, or the error block.
struct Result {
  std::optional<std::string> text;
  std::string error;
};

Result attempt(const std::string& source, const Json& variables, const TemplateLimits& limits = {}) {
  try {
    return {.text = ChatTemplate(source, "t").render(variables, limits), .error = {}};
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::data) << e.what();
    return {.text = std::nullopt, .error = e.what()};
  }
}

std::string render(const std::string& source, const Json& variables = Json::object()) {
  const Result result = attempt(source, variables);
  EXPECT_TRUE(result.text) << source << "\n" << result.error;
  return result.text.value_or("");
}

void expect_error(const std::string& source, const std::string& part,
                  const Json& variables = Json::object()) {
  const Result result = attempt(source, variables);
  EXPECT_FALSE(result.text) << source << " gave " << result.text->substr(0, 200);
  EXPECT_NE(result.error.find(part), std::string::npos) << source << "\n" << result.error;
}

void expect_golden(const std::string& source, const Json& variables, const Json& golden,
                   const std::string& name) {
  const Result result = attempt(source, variables);
  if (golden.contains("error")) {
    EXPECT_FALSE(result.text) << name << " gave " << *result.text << " where Jinja2 raises "
                              << golden["error"];
  } else if (!result.text) {
    ADD_FAILURE() << name << "\n" << result.error << "\nwhere Jinja2 gives " << golden["output"];
  } else {
    EXPECT_EQ(*result.text, golden["output"].get<std::string>()) << name;
  }
}

class Rendered : public ::testing::TestWithParam<const char*> {};

TEST_P(Rendered, AsTransformers) {
  const std::string name = GetParam();
  const Json cases = read_json_file(kGolden + "conversations.json");
  const Json rendered = read_json_file(kGolden + "rendered.json");
  const std::string source = read_file(kGolden + "templates/" + name + ".jinja", 1 << 20);
  ASSERT_EQ(rendered[name].size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i)
    expect_golden(source, cases[i]["variables"], rendered[name][i],
                  name + ": " + cases[i]["name"].get<std::string>());
}

INSTANTIATE_TEST_SUITE_P(Templates, Rendered,
                         ::testing::Values("qwen2.5", "qwen3", "deepseek-v3", "minimind", "style_llama",
                                           "style_coder", "style_smol", "style_markup"));

TEST(ChatTemplate, ExpressionsAsJinja2) {
  const std::string path = kGolden + "expressions.json";
  const Json cases = parse_json_keeping_integers(read_file(path, 1 << 20), path);
  ASSERT_GE(cases.size(), 250u);
  for (const Json& entry : cases)
    expect_golden(entry["template"], entry["variables"], entry, entry["template"].get<std::string>());
}

/// Beyond 64 bits a number can be shown; what cannot be done with it is refused, by name.
TEST(ChatTemplate, IntegersBeyond64Bits) {
  const Json variables = parse_json_keeping_integers(
      R"({"most": 18446744073709551615, "n": -340282366920938463463374607431768211455, "x": 1e20})", "test");
  EXPECT_EQ(render("{{ most }} {{ n }} {{ {'a': [n]} }} {{ n|tojson }} {{ n|string|length }}", variables),
            "18446744073709551615 -340282366920938463463374607431768211455 "
            "{'a': [-340282366920938463463374607431768211455]} -340282366920938463463374607431768211455 40");
  EXPECT_EQ(
      render(
          "{{ n == n }} {{ n == most }} {{ n == 5 }} {{ n is integer }} {{ n is number }} {{ n is string }}"
          " {{ n|int }} {{ most|float }} {{ 'y' if n else 'n' }}",
          variables),
      "True False False True True False -340282366920938463463374607431768211455 1.8446744073709552e+19 y");
  for (const char* source : {"{{ n + 1 }}", "{{ n < 1 }}", "{{ -n }}", "{{ n|abs }}", "{{ [n, 1]|max }}"})
    expect_error(source, "int beyond 64 bits", variables);
  expect_error("{{ n == x }}", "not compared with a float", variables);
}

/// Lines of data keep the digits; where JSON is written again the nearest double stands for them, as ever.
TEST(ChatTemplate, BigIntegersInJson) {
  const std::string text = R"({"a":[18446744073709551616,18446744073709551615,-9223372036854775808,1e20]})";
  const Json kept = parse_json_keeping_integers(text, "test");
  EXPECT_EQ(big_integer(kept["a"][0]), "18446744073709551616");
  EXPECT_EQ(big_integer(kept["a"][1]), "18446744073709551615");
  EXPECT_EQ(big_integer(kept["a"][2]), std::nullopt);
  EXPECT_EQ(big_integer(kept["a"][3]), std::nullopt);
  EXPECT_EQ(dump_json_line(kept), dump_json_line(parse_json(text, "test")));
}

TEST(ChatTemplate, FiltersAreBounded) {
  expect_error("{{ [1]|batch(2305843009213693952, 0)|list }}", "limit of");
  expect_error("{{ 'abc'|truncate(-9223372036854775807) }}", "truncate");
  EXPECT_EQ(render("{{ 'abc'|truncate(9223372036854775807, leeway=9223372036854775807) }}"), "abc");
}

TEST(ChatTemplate, ErrorsNameTheirPlace) {
  const auto place = [](const std::string& source, const std::string& where) { expect_error(source, where); };
  place("a\n{{ 1 +\n  'é' ~ }}", "t:3:9");
  place("{{ 'é' | nofilter }}", "t:1:10");
  place("{% if x %}\n{% endfor %}", "t:2:4");
  place("\n  {% for x in y %}", "t:2:6");
  place("x\n{{ 1 }}\n {{ 'a' +\n 1 }}", "t:3:9");
  place("{% set x = {} %}\n{{ x.y.z }}", "t:2:8");
  place("{% macro m() %}\n{{ raise_exception('boom') }}{% endmacro %}\n{{ m() }}", "t:2:19");
  expect_error("{{ raise_exception('one ' ~ 'two') }}", "one two");
  expect_error("{{ x.y }}", "`x` is undefined");
  expect_error("{{ x.y.z }}", "'dict' has no attribute or element `y`", {{"x", Json::object()}});
}

TEST(ChatTemplate, RefusesWhatItDoesNotSupport) {
  for (const char* source : {"{{ x | random }}",
                             "{{ x | pprint }}",
                             "{{ x | nofilter }}",
                             "{{ x is notest }}",
                             "{% for y in x %}{{ y | nofilter }}{% endfor %}",
                             "{% if x %}{% for y in x %}{{ y | nofilter }}{% endfor %}{% endif %}",
                             "{% call m %}{% endcall %}",
                             "{% include 'a' %}",
                             "{% extends 'a' %}",
                             "{% import 'a' as b %}",
                             "{% block a %}{% endblock %}",
                             "{% do x %}",
                             "{% autoescape true %}{% endautoescape %}",
                             "{{ f(*x, 1) }}",
                             "{{ f(**x, a=1) }}",
                             "{% macro m(caller) %}{{ caller() }}{% endmacro %}",
                             "{{ x[1, 2] }}",
                             "{{ 0x1f }}",
                             "{{ x.__class__ }}",
                             "{{ ''.__class__.__mro__ }}",
                             "{{ 99999999999999999999 }}",
                             "{{ '\\N{DASH}' }}"}) {
    try {
      ChatTemplate(source, "t");
      ADD_FAILURE() << source << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::data);
      EXPECT_NE(e.problem().where.find("t:1:"), std::string::npos) << e.what();
    }
  }
  expect_error("{{ ''['__class__'] }}", "not accessible");
  expect_error("{{ 'a'.swapcase() }}", "`swapcase` of a 'str' is not supported");
  expect_error("{{ x.update }}", "`update` of a 'dict' is not supported", {{"x", {{"update", 1}}}});
  expect_error("{{ 'ßa' | capitalize }}", "not supported");
  expect_error("{{ ('<' | safe) % 1 }}", "`%` does not take");
  expect_error("{{ ('<' | safe).format() }}", "`format` of text marked `safe`");
  expect_error("{{ '{:.3}'.format(1.5) }}", "takes no such format");
  expect_error("{{ '{0.__class__}'.format(1) }}", "not accessible");
  expect_error("{{ [1] | map('random') | list }}", "`random` is not supported");
  // Where nobody comes, a filter that is not there does no harm.
  EXPECT_EQ(
      render("{% for x in [] %}{{ x | random }}{% endfor %}{% if false %}{{ 1 | nofilter }}{% endif %}"), "");
  expect_error("{% if true %}{{ 1 | nofilter }}{% endif %}", "`nofilter` is not supported");
  expect_error("{{ 9223372036854775807 + 1 }}", "64-bit");
  expect_error("{{ range(3) }}", "cannot be written as text");
  expect_error("{{ [1] | map('abs') }}", "cannot be written as text");
  expect_error("{{ namespace }}", "cannot be written as text");
  expect_error("{{ ms | map('nofilter') | list }}", "`nofilter` is not supported", {{"ms", {1}}});
  expect_error("{{ ms | select('notest') | list }}", "`notest` is not supported", {{"ms", {1}}});
}

TEST(ChatTemplate, DayComesFromTheCaller) {
  const std::string source = "{{ strftime_now('%d %b %Y') }}";
  EXPECT_EQ(render(source, {{"date_string", "2026-02-03"}}), "03 Feb 2026");
  EXPECT_EQ(render(source, {{"date_string", "3 February 2026"}}), "03 Feb 2026");
  expect_error(source, "date_string");
  expect_error(source, "neither", {{"date_string", "yesterday"}});
  expect_error(source, "neither", {{"date_string", "31 Feb 2024"}});
  expect_error("{{ strftime_now('%H') }}", "%H", {{"date_string", "2026-02-03"}});
  expect_error("{{ strftime_now('%') }}", "strftime_now", {{"date_string", "2026-02-03"}});
}

TEST(ChatTemplate, Variables) {
  EXPECT_EQ(render("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}"), "TrueTrueFalse");
  EXPECT_EQ(
      render(
          "{{ messages[0] }}",
          {{"messages",
            {{{"role", "user"}, {"content", nullptr}, {"tool_calls", nullptr}, {"n", {{"x", nullptr}}}}}}}),
      "{'role': 'user', 'n': {'x': None}}");
  EXPECT_EQ(render("{{ messages[0] }}", {{"messages", {{{"role", "a"}, {"reasoning", "r"}}}}}),
            "{'thinking': 'r', 'role': 'a', 'reasoning': 'r', 'reasoning_content': 'r'}");
  EXPECT_EQ(render("{{ messages[0] }}",
                   {{"messages", {{{"role", "a"}, {"reasoning_content", nullptr}, {"thinking", "t"}}}}}),
            "{'thinking': 't', 'role': 'a', 'reasoning_content': 't'}");
  EXPECT_EQ(
      render("{{ messages[0] }}",
             {{"messages",
               {{{"role", "a"}, {"thinking", "t"}, {"reasoning_content", "r"}, {"reasoning", nullptr}}}}}),
      "{'thinking': 't', 'role': 'a', 'reasoning_content': 'r'}");
  expect_error("x", "`tools` is string", {{"tools", "[]"}});
  expect_error("x", "documents[0]", {{"documents", {"text"}}});
  expect_error("x", "`messages` is string", {{"messages", "hello"}});
  expect_error("x", "messages[1]", {{"messages", {Json::object(), 5}}});
  expect_error("x", "not an object", Json::array());
  EXPECT_EQ(render("{{ n }}", {{"n", 18446744073709551615u}}), "18446744073709551615");
  expect_error("{{ s }}", "UTF-8", {{"s", "\xff\xfe"}});
  Json deep = 1;
  for (int i = 0; i < 300; ++i) deep = Json::array({deep});
  expect_error("{{ deep }}", "nested deeper", {{"deep", deep}});
}

/// A tenth of the work and text that a rendering may make: enough to reach what a template does too often, on
/// texts of full size, and charged in proportion. Under the default limits it costs ten times as much.
TemplateLimits a_tenth() {
  const TemplateLimits limits;
  return {.steps = limits.steps / 10, .output_bytes = limits.output_bytes / 10};
}

/// Every hostile template ends in a data error. Without the limits it would take hours; with them it takes
/// less than a second of this process, so that the bound of this test does not depend on the machine.
void expect_stopped(const std::string& source, const std::string& part,
                    const TemplateLimits& limits = a_tenth()) {
  const std::clock_t begin = std::clock();
  const Result result = attempt(source, {{"l", {1, 2, 3}}}, limits);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_FALSE(result.text) << source.substr(0, 200);
  EXPECT_NE(result.error.find(part), std::string::npos) << source.substr(0, 200) << "\n"
                                                        << result.error.substr(0, 400);
  EXPECT_LT(seconds, 60.0) << source.substr(0, 200);
}

std::string repeat(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

std::string loops(int depth, const std::string& body) {
  return repeat("{% for x in range(90000) %}", depth) + body + repeat("{% endfor %}", depth);
}

TEST(ChatTemplate, HostileWorkIsBounded) {
  expect_stopped(loops(3, "{% set y = x + 1 %}"), "steps");
  expect_stopped(loops(3, ""), "limit");
  expect_stopped(loops(2, "some text of a certain length, to be printed very often"), "limit");
  expect_stopped(loops(2, "{{ l }}"), "limit");
  expect_stopped("{{ 'x' * 10**9 }}", "limit");
  expect_stopped("{{ 'x' * 10**18 }}", "limit");
  expect_stopped("{{ [0] * 10**9 }}", "limit");
  expect_stopped("{{ ('x' * 10**6) * 10**6 }}", "limit");
  expect_stopped("{{ 10 ** 10 ** 10 }}", "64-bit");
  expect_stopped("{{ range(10**12) | list }}", "100000");
  expect_stopped("{{ range(-(10**18), 10**18) }}", "100000");
  expect_stopped("{% set s = 'x' * 10**7 %}" + loops(1, "{% set y = s | upper %}"), "limit");
  expect_stopped("{% set s = 'x' * 10**7 %}" + loops(1, "{% if 'y' in s %}{% endif %}"), "limit");
  expect_stopped("{% set s = 'x' * 10**7 %}" + loops(1, "{{ s[x] }}"), "limit");
  expect_stopped("{% set s = 'x' * 10**7 %}" + loops(1, "{% set y = s[1:] | length %}"), "limit");
  expect_stopped("{% set s = 'a ' * 10**7 %}{{ s.split() | length }}", "limit");
  expect_stopped("{% set s = 'a ' * 10**7 %}{{ s.rsplit(' ') | length }}", "limit");
  expect_stopped(
      "{% set s = 'a' * 10**7 %}{{ s.replace('', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx') | length }}",
      "limit");
  expect_stopped("{% set s = 'a' * 10**6 %}" + loops(1, "{{ s.strip('b' * 10**6 + 'a') }}"), "limit");
  expect_stopped("{% set s = 'a' * 10**6 %}" + loops(1, "{{ s | trim('b' * 10**6 + 'a') }}"), "limit");
  expect_stopped("{% set r = range(99999) | map('string') | list %}{{ dict(r | map('list')) }}", "pairs", {});
  expect_stopped("{% set r = range(99999) | list %}{{ r | unique | list | length }}", "steps");
  expect_stopped("{% set r = range(99999) | list %}{% for a in r %}{{ r.index(99998) }}{% endfor %}",
                 "steps");
  expect_stopped("{{ 'x' | indent(10**12) }}", "limit");
  expect_stopped("{% set s = 'x' * 10**6 %}{{ [s] * 1000 }}", "longer");
  expect_stopped("{% set s = 'x' * 10**6 %}{{ ([s] * 1000) | tojson }}", "longer");
  expect_stopped("{{ '%s' * 10**6 % (1,) }}", "values");
  expect_stopped("{{ 'x'.center(10**12) }}", "limit");
  expect_stopped("{{ '{:1000001}'.format(1) }}", "wider");
  expect_stopped("{{ ('{0:1000000}' * 10**6).format(1) }}", "limit");
  expect_stopped("{{ [1] | slice(10**12) | list }}", "limit");
  expect_stopped("{% set s = 'Σ' ~ \"'\" * 10**6 %}{{ (s * 100) | lower }}", "limit");
  const std::string s =
      "{% set s = 'x' * 10**7 %}{% set p = 'x' * 500000 ~ 'y' %}{% set q = 'y' ~ 'x' * 500000 %}";
  for (const char* body :
       {"p in s", "s.find(p)", "s.rfind(q)", "s.split(p)", "s.rsplit(q)", "s.replace(p, '')", "s.count(p)",
        "s | int", "s | float", "s | tojson", "[s] | string", "s.isalpha()", "s is upper", "s.splitlines()",
        "s | title", "s | list", "s | indent"})
    expect_stopped(s + loops(1, std::string("{% set y = ") + body + " %}"), "limit");
  expect_stopped("{% set s = 'é' * 10**6 %}" + loops(1, "{% set y = s[-1] ~ s[9] ~ s[::-1] %}"), "limit");
  expect_stopped("{% set s = ',' * 10**7 %}{{ s.rsplit(',') }}", "limit");
  const std::string blank = "{% set s = ' ' * 10**6 %}{% set d = {s: 1, 'x' * 10**6: 2} %}";
  for (const char* body :
       {"s | trim", "s | trim | length", "s | replace('a', 'b', 0) | length", "s | title | length", "d[s]",
        "d.get(s)", "s in d", "s % ()", "s.count('ab')", "s | indent | length"})
    expect_stopped(blank + loops(1, std::string("{% set y = ") + body + " %}"), "limit");
  std::string names;
  for (int i = 0; i < 30000; ++i) names += "{% set a" + std::to_string(i) + " = 1 %}";
  expect_stopped(loops(30, names), "limit", {});
  expect_stopped(repeat("{% if 1 %}", 190) + names + repeat("{% endif %}", 190), "too many names");
}

/// The limits are those with which a model's template is rendered.
TEST(ChatTemplate, HostileWorkIsBoundedByTheDefaultLimits) {
  expect_stopped(loops(3, "{% set y = x + 1 %}"), "the limit of 5000000 steps", {});
  expect_stopped(loops(2, "some text of a certain length, to be printed very often"), "16777216 bytes", {});
  const std::string memory = "the limit of 268435456 bytes for values";
  expect_stopped(
      "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor "
      "%}",
      memory, {});
  expect_stopped(
      "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      memory, {});
  expect_stopped("{{ ('a\\n' * 10**5) | indent(10**6) }}", memory, {});
  expect_stopped("{% set s = 'x' * 10**6 %}{{ ([s] * 1000) | join }}", memory, {});
  expect_stopped("{% set s = 'x' * 10**7 %}" + loops(1, "{% set y = s == s ~ '' %}"), memory, {});
}

TEST(ChatTemplate, HostileDepthIsBounded) {
  const int kMany = 50'000;
  expect_stopped("{{ " + repeat("(", kMany) + "1" + repeat(")", kMany) + " }}", "200 levels");
  expect_stopped("{{ " + repeat("[", kMany) + repeat("]", kMany) + " }}", "200 levels");
  expect_stopped("{{ " + repeat("not ", kMany) + "1 }}", "200 levels");
  expect_stopped("{{ " + repeat("-", kMany) + "1 }}", "200 levels");
  expect_stopped("{{ 1" + repeat(" - - - -1", kMany) + " }}", "200 levels");
  expect_stopped("{{ 1" + repeat(" + 1", kMany) + " }}", "200 levels");
  expect_stopped("{{ x" + repeat(".y", kMany) + " }}", "200 levels");
  expect_stopped("{{ x" + repeat("()", kMany) + " }}", "200 levels");
  expect_stopped("{{ x" + repeat("|trim", kMany) + " }}", "200 levels");
  expect_stopped("{{ 1" + repeat(" if 1 else 1", kMany) + " }}", "200 levels");
  expect_stopped("{{ " + repeat("{1:", kMany) + " }}", "200 levels");
  expect_stopped(repeat("{% if 1 %}", kMany), "200 levels");
  expect_stopped(repeat("{% for x in l %}", kMany / 2), "200 levels");
  expect_stopped("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "100 levels");
  expect_stopped("{% for x in l recursive %}{{ loop(l) }}{% endfor %}", "100 levels");
  expect_stopped("{% macro m() %}{% call m() %}{% endcall %}{{ caller }}{% endmacro %}{{ m() }}",
                 "100 levels");
  expect_stopped(repeat("{% macro m() %}" + repeat("{{ x }}", 600), 190) + repeat("{% endmacro %}", 190),
                 "too many macros");
  const std::string wide = repeat("(", 150) + "m()" + repeat(" ~ 1)", 150);
  expect_stopped("{% macro m() %}{{ " + wide + " }}{% endmacro %}{{ m() }}", "levels");
  const std::string tower = repeat("{% if 1 %}", 90) + "{{ " + repeat("[", 90) + "m()" + repeat("]", 90) +
                            " }}" + repeat("{% endif %}", 90);
  expect_stopped("{% macro m() %}" + tower + "{% endmacro %}{{ m() }}", "levels");
  const std::string nest =
      "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}";
  expect_stopped(nest + "{{ ns.x }}", "200 levels");
  expect_stopped(nest + "{{ ns.x | tojson }}", "200 levels");
  expect_stopped(nest + "{% set y = ns.x %}" + nest + "{{ y == ns.x }}", "200 levels");
  expect_stopped(nest + "{% set y = ns.x %}" + nest + "{{ y < ns.x }}", "200 levels");
  expect_stopped(repeat("x", (1 << 20) + 1), "limit is 1048576");
  expect_stopped("\xc3\x28", "UTF-8");
}

/// Mappings, namespaces, scopes and macros of any size: twice as many names take twice the steps.
TEST(ChatTemplate, ManyNamesCostTheirNumber) {
  std::string named, assigned, parameters, reads, fields;
  for (int i = 0; i < 20'000; ++i) {
    const std::string name = "k" + std::to_string(i);
    named += (i > 0 ? "," : "") + name + "=1";
    assigned += "{% set " + name + "=1 %}";
    parameters += (i > 0 ? "," : "") + name;
    fields += "{" + name + "}";
    reads += "{% set ns.x = " + name + " %}";
  }
  const std::clock_t begin = std::clock();
  EXPECT_EQ(render("{% set d = dict(" + named + ") %}{{ d|length }}{{ d.k19999 }}"), "200001");
  EXPECT_EQ(render("{% set n = namespace(" + named + ") %}{{ n.k19999 }}"), "1");
  EXPECT_EQ(render("{% macro m(" + parameters + ") %}{{ k19999 }}{% endmacro %}{{ m(" + named + ") }}"), "1");
  EXPECT_EQ(render("{% macro m() %}{{ kwargs|length }}{% endmacro %}{{ m(" + named + ") }}"), "20000");
  EXPECT_EQ(render("{{ '" + fields + "'.format(" + named + ")|length }}"), "20000");
  EXPECT_EQ(render("{% set ns = namespace() %}" + assigned + reads + "{{ ns.x }}"), "1");
  Json variables = Json::object(), message = {{"role", "user"}};
  for (int i = 0; i < 50'000; ++i) {
    append_member(variables, "v" + std::to_string(i), 1);
    append_member(message, "m" + std::to_string(i), 1);
  }
  append_member(variables, "messages", Json::array({message}));
  EXPECT_EQ(render("{{ v49999 }}{{ messages[0].m49999 }}{{ messages[0]|length }}", variables), "1150001");
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 20.0);  // it took minutes
}

TEST(ChatTemplate, LimitsAreNamed) {
  const auto error = [](const std::string& source, const TemplateLimits& limits) {
    return attempt(source, Json::object(), limits).error;
  };
  EXPECT_NE(error("{% for i in range(100) %}{{ i }}{% endfor %}", {.steps = 50}).find("50 steps"),
            std::string::npos);
  EXPECT_NE(error("0123456789", {.output_bytes = 9}).find("9 bytes"), std::string::npos);
  EXPECT_EQ(error("0123456789", {.output_bytes = 10}), "");
  EXPECT_NE(error("{{ 'x' * 4000 }}", {.memory_bytes = 3000}).find("3000 bytes"), std::string::npos);
  const std::string recursion = "{% macro m(n) %}{{ m(n - 1) if n > 1 }}{% endmacro %}{{ m(3) }}";
  EXPECT_EQ(error(recursion, {.depth = 3}), "");
  EXPECT_NE(error(recursion, {.depth = 2}).find("2 levels"), std::string::npos);
}

class Folder : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::temp_directory_path() /
            (std::string("temper_chat_") + info->name() + "_" + std::to_string(::getpid()));
    std::filesystem::create_directories(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) { std::ofstream(path_ / name) << text; }
  std::string load_and_render() {
    const auto loaded = ChatTemplate::load(path_.string());
    return loaded ? loaded->render(Json::object()) : "none";
  }
  std::filesystem::path path_;
};

TEST_F(Folder, TemplateFileComesFirst) {
  EXPECT_EQ(load_and_render(), "none");
  write("tokenizer_config.json", R"({"eos_token": "x"})");
  EXPECT_EQ(load_and_render(), "none");
  write("tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_EQ(load_and_render(), "none");
  write("tokenizer_config.json", R"({"chat_template": "from {{ 'config' }}"})");
  EXPECT_EQ(load_and_render(), "from config");
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "rag", "template": "no"}, {"name": "default", "template": "listed"}]})");
  EXPECT_EQ(load_and_render(), "listed");
  write("chat_template.jinja", "from file\n");
  EXPECT_EQ(load_and_render(), "from file");
}

TEST_F(Folder, ListWithoutDefaultIsAnError) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "no"}, 7]})");
  EXPECT_THROW(load_and_render(), Error);
  write("tokenizer_config.json", R"({"chat_template": 7})");
  EXPECT_THROW(load_and_render(), Error);
  write("chat_template.jinja", "{{ 1");
  EXPECT_THROW(load_and_render(), Error);
}

TEST(ChatTemplate, MovesAndRendersInManyThreads) {
  ChatTemplate first("{% for x in range(50) %}{{ x }},{% endfor %}{{ name }}", "t");
  const ChatTemplate shared = std::move(first);
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < texts.size(); ++i)
    threads.emplace_back([&, i] {
      texts[i] = shared.render({{"name", std::string(1, static_cast<char>('a' + i))}});
    });
  for (auto& thread : threads) thread.join();
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(texts[i].back(), static_cast<char>('a' + i));
    EXPECT_EQ(texts[i].substr(0, 6), "0,1,2,");
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
