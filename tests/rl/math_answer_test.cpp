// Normal forms of mathematical answers, the last box of a text, and the limits of the work done on them.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <functional>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/json.h"
#include "src/rl/registry.h"
#include "src/rl/rewards/math/answer.h"
#include "tests/support/real_data.h"

namespace temper {
namespace {

struct Pair {
  const char* a;
  const char* b;
};

constexpr Pair kEqual[] = {
    {R"(\frac12)", R"(\frac{1}{2})"},
    {R"(\frac 59)", R"(\frac{5}{9})"},
    {R"(\frac9{19})", R"(\frac{9}{19})"},
    {R"(\frac{270}7)", R"(\frac{270}{7})"},
    {R"(\dfrac{17}{50})", R"(\frac{17}{50})"},
    {R"(\tfrac34)", "0.75"},
    {"1/2", R"(\frac{1}{2})"},
    {"1/2", "0.5"},
    {"-1/2", R"(\frac{-1}{2})"},
    {R"(-\frac{1}{2})", R"(\frac{1}{-2})"},
    {R"(\frac{2}{4})", ".5"},
    {R"(1\frac{4}{5})", "1.8"},
    {R"(137 \frac{1}{2})", R"(\frac{275}{2})"},
    {R"(\sqrt3)", R"(\sqrt{3})"},
    {R"(11\sqrt2)", R"(11 \sqrt{2})"},
    {R"(3 \pm 2\sqrt2)", R"(3\pm2\sqrt{2})"},
    {R"(\frac\pi2)", R"(\frac{\pi}{2})"},
    {R"(\left( 3, \frac{\pi}{2} \right))", R"((3,\frac{\pi}{2}))"},
    {R"(\left[ 0, 1 \right))", "[0,1)"},
    {R"(90^\circ)", "90"},
    {R"(90^{\circ})", "90"},
    {"90\xC2\xB0", R"(90^\circ)"},
    {R"(90\degree)", "90"},
    {R"(50\%)", "50"},
    {"50%", "50"},
    {R"(\$18.90)", "18.9"},
    {"$36", "36"},
    {".35625", "0.35625"},
    {"2.0", "2"},
    {"2.50", "2.5"},
    {"5.", "5"},
    {"025", "25"},
    {"+7", "7"},
    {"0.0", "0"},
    {"-0", "0"},
    {"x=5", "5"},
    {"x = 5", "5"},
    {"y = -2x", "-2x"},
    {"f(x)=x^2", "x^2"},
    {R"(x_1=3)", "3"},
    {R"(\theta=\frac\pi3)", R"(\frac{\pi}{3})"},
    {R"(x \in [-2,7])", "[-2,7]"},
    {"1,000", "1000"},
    {"11,111,111,100", "11111111100"},
    {R"(10,\!080)", "10080"},
    {R"(11,\! 111,\! 111,\! 100)", "11111111100"},
    {R"(\$32,\!348)", "32348"},
    {R"(10, \!080)", R"(10,\!080)"},
    {R"(1,  \! 234,\!567)", "1234567"},
    {"58{,}500", "58,500"},
    {R"(\text{Evelyn})", "Evelyn"},
    {R"(\textbf{east})", R"(\text{east})"},
    {R"(\text{(C)})", "C"},
    {"(C)", R"(\mathrm{C})"},
    {R"(864 \mbox{ inches}^2)", "864"},
    {R"(15\mbox{ cm}^{2})", "15"},
    {R"(5.4 \text{ cents})", "5.4"},
    {R"(\frac{270}7\text{ degrees})", R"(\frac{270}{7})"},
    {R"(6\pi\text{ cm})", R"(6\pi)"},
    {"5 cm", "5"},
    {"12 square feet", "12"},
    {"30 miles per hour.", "30"},
    {"9 cm^2", "9"},
    {"864 inches^3", "864"},
    {"864 inches^3", R"(864\text{ inches}^3)"},
    {"864 cubic inches", R"(864\text{ inches}^{3})"},
    {"12 square feet", R"(12\text{ ft}^2)"},
    {"12 square feet", R"(12\text{ feet^2})"},
    {"9 cm\xC2\xB2", R"(9\mbox{ square cm})"},
    {"[1,2] cm", "[1,2]"},
    {R"([1,2]\text{ seconds})", "[1,2]"},
    {R"(5x\text{ cm})", "5x"},
    {"5x cm", "5x"},
    {R"(6\pi cm^2)", R"(6\pi)"},
    {R"(\pi r\text{ square units})", R"(\pi r)"},
    {R"(\pi r units)", R"(\pi r)"},
    {R"(v\text{ miles per hour})", "v"},
    {R"(\begin{pmatrix} 1 \\ 2 \end{pmatrix}\text{ m})", R"(\begin{pmatrix}1\\2\end{pmatrix})"},
    {R"(\begin{pmatrix} 1 \\ 2 \end{pmatrix} meters)", R"(\begin{pmatrix}1\\2\end{pmatrix})"},
    {"x^{2}", "x^2"},
    {"4210_{5}", "4210_5"},
    {"{42}", "42"},
    {R"(\begin{pmatrix} -1/3 \\ 2/3 \end{pmatrix})", R"(\begin{pmatrix}-\frac13\\\frac{2}{3}\end{pmatrix})"},
    {R"(1\text{ and }2)", "1,2"},
    {R"(1 \text{ or } 2)", "1, 2"},
    {R"(a \leq b)", R"(a\le b)"},
    {R"(2\times3)", R"(2 \cdot 3)"},
    {"\xE2\x88\x92"
     "3",
     "-3"},
    {R"((-\infty,2)\cup(3,\infty))", R"(\left(-\infty, 2\right) \cup \left(3, \infty\right))"},
    {R"(\displaystyle\frac{3}{56})", R"(\frac{3}{56})"},
    {R"(p - q)", "p-q"},
    {R"(\(\frac{1}{3}\))", R"(\frac13)"},
    {R"(6 - 5i)", "6-5i"},
    {"999999999999999999", "999999999999999999.0"},
    {"123456789012345678901234567890.50", "123456789012345678901234567890.5"},
    {R"(\frac{123456789012345678901234}{3})", R"(\frac{123456789012345678901234}{3})"},
};

constexpr Pair kDifferent[] = {
    {"1", "2"},
    {"1", "-1"},
    {"0.33", R"(\frac{1}{3})"},
    {"0.3333333333333333", R"(\frac13)"},
    {"1,2", "2,1"},
    {"1,2", "12"},
    {"(1,000)", "1000"},
    {"(1,200)", "(1200)"},
    {"1,00", "100"},
    {"1000,000", "1000000"},
    {"3.141,592", "3.141592"},
    {"(0,1)", "[0,1]"},
    {"(0,1]", "(0,1)"},
    {"x^2", "x2"},
    {"x^{10}", "x^1"},
    {"52_8", "52"},
    {R"(\sqrt{2})", "2"},
    {R"(\sqrt{23})", R"(\sqrt23)"},
    {R"(\frac{1}{2}x)", R"(\frac{1}{2})"},
    {R"(\frac{1}{0})", R"(\frac{2}{0})"},
    {R"(1\frac{1}{2})", R"(\frac{1}{2})"},
    {R"(1\frac{-1}{2})", "0.5"},
    {R"(\text{even})", R"(\text{odd})"},
    {R"(x\text{ is even})", R"(x\text{ is odd})"},
    {"5x-7y=0", "5x-8y=0"},
    {"2x=5", "5"},
    {"C", "B"},
    {"C", "c"},
    {R"(\pi)", "3.14159"},
    {R"(-\frac{1}{2})", R"(\frac{1}{2})"},
    {"999999999999999998", "999999999999999999"},
    {"123456789012345678901234567890", "123456789012345678901234567891"},
    {"", ""},
    {R"(\$)", "$"},
    {"{", "}"},
    {"5 cm", "6 cm"},
    {"864 inches^3", "864 inches^2"},
    {R"(864\text{ inches}^3)", R"(864\mbox{ inches}^{2})"},
    {"864 cubic inches", R"(864\text{ square inches})"},
    {"9 cm", "9 cm^2"},
    {"9 cm\xC2\xB2", "9 cm\xC2\xB3"},
    {"10, 080", R"(10,\!080)"},
    {R"(n\text{ is prime})", "n"},
    {"m g", "m"},
    {"Tom and a day", "Tom and a"},
    {R"(\cot x)", R"(\tan x)"},
};

TEST(MathAnswer, EqualPairs) {
  static_assert(std::size(kEqual) + std::size(kDifferent) >= 100);
  for (const Pair& pair : kEqual) {
    EXPECT_TRUE(math_answers_equal(pair.a, pair.b)) << pair.a << " -> " << normal_math_answer(pair.a) << "   "
                                                    << pair.b << " -> " << normal_math_answer(pair.b);
    EXPECT_TRUE(math_answers_equal(pair.b, pair.a)) << pair.a << " " << pair.b;
  }
}

TEST(MathAnswer, DifferentPairs) {
  for (const Pair& pair : kDifferent) {
    EXPECT_FALSE(math_answers_equal(pair.a, pair.b))
        << pair.a << " -> " << normal_math_answer(pair.a) << "   " << pair.b << " -> "
        << normal_math_answer(pair.b);
  }
}

// The table is written by tools/golden/golden_math.py.
TEST(MathAnswer, TableOfPairs) {
  const std::string content = read_file("tests/golden/rl/math_pairs.jsonl", int64_t{1} << 20);
  size_t equal = 0, unequal = 0;
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    const Json row = parse_json(std::string_view(content).substr(begin, end - begin), "math_pairs.jsonl");
    begin = end + 1;
    const std::string gold = row["gold"].get<std::string>(), response = row["response"].get<std::string>();
    const bool want = row["want"].get<int>() == 1;
    (want ? equal : unequal) += 1;
    const auto box = last_boxed(response);
    ASSERT_TRUE(box.has_value()) << response;
    EXPECT_EQ(math_answers_equal(*box, gold), want) << gold << "   " << response;
    EXPECT_EQ(math_answers_equal(gold, *box), want) << response << "   " << gold;
  }
  EXPECT_GE(equal, 300u);
  EXPECT_GE(unequal, 120u);
}

TEST(MathAnswer, LimitsOfExactArithmetic) {
  EXPECT_TRUE(math_answers_equal("(2^{100},0.5)", R"((2^{100},\frac12))"));
  EXPECT_FALSE(math_answers_equal("2^{100}", "2^{101}"));
  EXPECT_FALSE(math_answers_equal("2^{1000000000000}", "2^{1000000000001}"));
  EXPECT_TRUE(math_answers_equal("999999999999999998+1", "999999999999999999"));
  EXPECT_FALSE(math_answers_equal("999999999999999999*999999999999999999", "1"));
  EXPECT_FALSE(math_answers_equal(R"(\sqrt{999999999999999989})", R"(\sqrt{999999999999999987})"));
  EXPECT_FALSE(math_answers_equal("1/0", "2/0"));
  EXPECT_FALSE(math_answers_equal("21!", "20!"));
}

TEST(MathAnswer, NormalForms) {
  EXPECT_EQ(normal_math_answer(R"(\dfrac 12 x^{2})"), R"(\frac{1}{2}x^2)");
  EXPECT_EQ(normal_math_answer(R"(\sqrt[3]{2})"), R"(\sqrt[3]{2})");
  EXPECT_EQ(normal_math_answer(R"(\binom52)"), R"(\binom{5}{2})");
  EXPECT_EQ(normal_math_answer(R"(\cot x)"), R"(\cot x)");
  EXPECT_EQ(normal_math_answer("(1, 2,3)"), "(1,2,3)");
  EXPECT_EQ(normal_math_answer(R"(\text{unclosed)"), R"(\text{unclosed)");
}

TEST(LastBoxed, FindsAndMatchesBraces) {
  EXPECT_EQ(last_boxed(R"(so \boxed{1} and \boxed{\frac{1}{2}}.)"), R"(\frac{1}{2})");
  EXPECT_EQ(last_boxed(R"(\fbox{7} )"), "7");
  EXPECT_EQ(last_boxed(R"(\boxed{1} \fbox{2})"), "2");
  EXPECT_EQ(last_boxed(R"(\fbox{1} \boxed{2})"), "2");
  EXPECT_EQ(last_boxed(R"(\boxed{\{1,2\}})"), R"(\{1,2\})");
  EXPECT_EQ(last_boxed(R"(\boxed {5})"), "5");
  EXPECT_EQ(last_boxed(R"($\boxed 5$.)"), "5");
  EXPECT_EQ(last_boxed(R"(\boxed{\text{a } \{ })"), R"(\text{a } \{ )");
  EXPECT_EQ(last_boxed(R"(\boxed{1} then \boxed{2)"), std::nullopt);  // cut off: no answer
  EXPECT_EQ(last_boxed("no box 5"), std::nullopt);
  EXPECT_EQ(last_boxed(R"(\boxed)"), std::nullopt);
  EXPECT_EQ(last_boxed(R"(\boxed5)"), "5");
  EXPECT_EQ(last_boxed(R"($\boxed-5$ or)"), "-5");
  EXPECT_EQ(last_boxed(R"($\boxed\frac12$)"), R"(\frac12)");
  EXPECT_EQ(last_boxed(R"(\boxedA)"), std::nullopt);
  EXPECT_EQ(last_boxed("\\boxed\n{7}"), "7");
  EXPECT_EQ(last_boxed(R"(\boxed{1} \framebox{7})"), "7");
  EXPECT_EQ(last_boxed(R"(\boxed{)"), std::nullopt);
  EXPECT_EQ(last_boxed(R"(\boxed{}\)"), "");
  EXPECT_EQ(last_boxed(std::string(R"(\boxed{1})") + std::string(kMathTailBytes, ' ')), std::nullopt);
  EXPECT_EQ(last_boxed(std::string(kMathTailBytes, ' ') + R"(\boxed{1})"), "1");
}

TEST(MathAnswer, HostileTextTakesLittleTime) {
  auto repeated = [](const std::string& part) {
    std::string text;
    while (text.size() < kMathTailBytes) text += part;
    return text;
  };
  const auto start = std::chrono::steady_clock::now();
  for (const char* part : {"{",
                           "}",
                           "{}",
                           "\\",
                           "\\frac",
                           "\\frac{",
                           "\\sqrt[",
                           "^{",
                           "^{1}",
                           "_",
                           ",",
                           "1,111",
                           "1,",
                           "1/",
                           "\\text{",
                           "\\text{ cm}",
                           "5\\text{cm}^2",
                           "\\boxed{",
                           "\\boxed ",
                           "\\left.",
                           "=",
                           "x=",
                           " cm",
                           " per",
                           "0",
                           "9",
                           ".",
                           "0.",
                           "(",
                           "\\{",
                           "\xFF",
                           "\xE2\x88",
                           "\\begin{",
                           "\\begin{a}",
                           "-"}) {
    const std::string text = repeated(part);
    EXPECT_EQ(math_answers_equal(text, text), !normal_math_answer(text).empty()) << part;
    last_boxed(text);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 30) << "35 texts of 64 KiB, three normal forms each";
}

TEST(MathAnswer, HostileStructureTakesLittleTime) {
  const auto start = std::chrono::steady_clock::now();
  for (const char* part : {"(",
                           "((",
                           "{",
                           "\\{",
                           "|",
                           "-",
                           "(1+\\pi)^6",
                           "(x+1)(",
                           "\\sqrt{",
                           "\\sqrt{9999999967}",
                           "x^",
                           "\\frac{1+\\pi}{",
                           "(1+\\sqrt2+\\pi)^6(",
                           "\\pm 1",
                           "1/(",
                           "1,",
                           "\\sin",
                           "f(",
                           "ab+",
                           "a_",
                           "\\begin{array}{",
                           "\\begin{matrix}",
                           "9!",
                           "\\overline{9",
                           "2^{64}*",
                           "1 ",
                           "1 111 ",
                           "x=",
                           "1<",
                           "\\cup ",
                           "7\\text{ cm}",
                           "7\\text{ cm",
                           " per cm"}) {
    std::string text;
    while (text.size() < 900) text += part;
    math_answers_equal(text, text + "1");
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 10) << "33 texts of 900 bytes, twice";
}

/// Share of lines of a data file on which `reward` gives 1 for the reference itself and 0 for a wrong answer.
void check_file(const std::string& path, const char* reward_name, const char* answer_key, size_t rows,
                const std::function<std::string(const Json&)>& right,
                const std::function<std::string(const Json&)>& wrong, size_t allowed_misses) {
  if (!path_exists(path)) GTEST_SKIP() << how_to_get(path);
  auto reward = make_reward({.name = reward_name});
  const std::string content = read_file(path, int64_t{64} << 20);
  size_t count = 0, misses = 0, false_hits = 0;
  for (size_t begin = 0; begin < content.size(); ++count) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    const Json row = parse_json(std::string_view(content).substr(begin, end - begin), path);
    begin = end + 1;
    const Json& value = row[answer_key];
    const std::string answer = value.is_string() ? value.get<std::string>() : value.dump();
    const std::string good = right(row), bad = wrong(row);
    misses += reward->score({.response = good, .answer = answer, .record = row}) != 1;
    false_hits += reward->score({.response = bad, .answer = answer, .record = row}) != 0;
  }
  EXPECT_EQ(count, rows) << path;
  EXPECT_LE(misses, allowed_misses) << path;
  EXPECT_EQ(false_hits, 0u) << path;
  std::printf("%s: %zu rows, %zu references missed, %zu wrong answers accepted\n", path.c_str(), count,
              misses, false_hits);
}

TEST(RealData, Math500SolutionsMatchTheirAnswers) {
  check_file(
      real_data("math/math500.jsonl"), "math", "answer", 500,
      [](const Json& row) { return row["solution"].get<std::string>(); },
      [](const Json& row) { return "\\boxed{1+" + row["answer"].get<std::string>() + "}"; }, 0);
}

TEST(RealData, CompetitionAnswers) {
  auto boxed = [](const Json& row) {
    const Json& a = row["answer"];
    return "\\boxed{" + (a.is_string() ? a.get<std::string>() : fmt::format("{}", a.get<double>())) + "}";
  };
  auto off_by_one = [](const Json& row) {
    const Json& a = row["answer"];
    return fmt::format("\\boxed{{{}}}",
                       (a.is_string() ? std::stod(a.get<std::string>()) : a.get<double>()) + 1);
  };
  check_file(real_data("math/aime24.jsonl"), "math", "answer", 30, boxed, off_by_one, 0);
  check_file(real_data("math/amc23.jsonl"), "math", "answer", 40, boxed, off_by_one, 0);
}

TEST(RealData, Gsm8kSolutionsMatchThemselves) {
  auto solution = [](const Json& row) { return row["answer"].get<std::string>(); };
  auto wrong = [](const Json& row) { return row["answer"].get<std::string>() + "1"; };
  check_file(real_data("gsm8k/test.jsonl"), "gsm8k", "answer", 1319, solution, wrong, 0);
  check_file(real_data("gsm8k/train.jsonl"), "gsm8k", "answer", 7473, solution, wrong, 0);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
