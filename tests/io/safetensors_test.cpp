#include "src/io/hf/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "src/core/json.h"
#include "src/io/elements.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

std::string length_prefix(uint64_t n) {
  std::string raw(8, '\0');
  for (int i = 0; i < 8; ++i) raw[static_cast<size_t>(i)] = static_cast<char>(n >> (8 * i));
  return raw;
}

std::string file_of(const std::string& header, size_t data_bytes) {
  return length_prefix(header.size()) + header + std::string(data_bytes, '\1');
}

TensorToWrite f32_tensor(const std::string& name, std::vector<float> values, std::vector<int64_t> shape) {
  return {name, "F32", std::move(shape), [values = std::move(values)](OutputFile& file) {
            file.write(values.data(), static_cast<int64_t>(values.size() * 4));
          }};
}

TEST(Safetensors, WritesTheSmallestExampleOfTheFormat) {
  const TempDir dir;
  write_safetensors(dir / "a", {f32_tensor("a", {1.0f, 2.0f}, {2})});
  std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  header.resize(88, ' ');
  const std::string data("\x00\x00\x80\x3f\x00\x00\x00\x40", 8);
  EXPECT_EQ(read_file(dir / "a", 1000), length_prefix(88) + header + data);
}

TEST(Safetensors, ReadsWhatItWrote) {
  const TempDir dir;
  const std::string odd = "n\"\\\xc3\xbc\n";
  write_safetensors(dir / "a", {f32_tensor(odd, {1, 2, 3, 4, 5, 6}, {2, 3}), f32_tensor("scalar", {7}, {}),
                                f32_tensor("empty", {}, {3, 0})});
  const SafetensorsFile file(dir / "a", "a");
  ASSERT_EQ(file.tensors().size(), 3u);
  const TensorInfo& info = file.tensors().at(odd);
  EXPECT_EQ(info.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(info.file, "a");
  float window[2];
  file.read(info.begin + 12, 8, window);
  EXPECT_EQ(window[0], 4.0f);
  EXPECT_EQ(window[1], 5.0f);
  EXPECT_EQ(file.tensors().at("scalar").num_elements(), 1);
  EXPECT_EQ(file.tensors().at("empty").num_elements(), 0);
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

struct BadFile {
  const char* label;
  std::string content;
  std::vector<std::string> words;
};

constexpr const char* kGoodEntry = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";

std::string entry(const std::string& text, size_t bytes = 8) {
  return file_of("{\"t\":" + text + "}", bytes);
}

std::vector<BadFile> bad_texts() {
  const std::string good = kGoodEntry;
  std::string deep = good;
  deep.insert(1, "\"x\":" + std::string(100, '[') + std::string(100, ']') + ",");
  return {
      {"empty file", "", {"0 bytes"}},
      {"seven bytes", "1234567", {"7 bytes"}},
      {"length beyond the file", length_prefix(1000) + "{}", {"header length", "1000"}},
      {"length beyond the limit", length_prefix(~uint64_t{0}) + "{}", {"header length"}},
      {"length zero", length_prefix(0), {"begin"}},
      {"not a brace", file_of(" {}", 0), {"'{'"}},
      {"not JSON", file_of("{\"t\":}", 0), {"JSON"}},
      {"not UTF-8", file_of("{\"t\xff\":" + good + "}", 8), {"JSON"}},
      {"text after", file_of("{\"t\":" + good + "} x", 8), {"after the object"}},
      {"string without end", file_of("{\"t", 0), {"string"}},
      {"escape at the end", file_of("{\"t\\", 0), {"string"}},
      {"no comma", file_of("{\"t\":" + good + "\"u\":" + good + "}", 8), {"JSON"}},
      {"duplicate tensor", file_of("{\"t\":" + good + ",\"t\":" + good + "}", 8), {"duplicate", "\"t\""}},
      {"duplicate by escape", file_of("{\"t\":" + good + ",\"\\u0074\":" + good + "}", 8), {"duplicate"}},
      {"duplicate inside",
       entry(R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})"),
       {"dtype"}},
      {"deep", entry(deep), {"deeper"}},
      {"metadata not strings", file_of(R"({"__metadata__":{"a":1}})", 0), {"__metadata__"}},
      {"metadata an array", file_of(R"({"__metadata__":[]})", 0), {"__metadata__"}},
  };
}

std::vector<BadFile> bad_entries() {
  return {
      {"no dtype", entry(R"({"shape":[2],"data_offsets":[0,8]})"), {"\"t\"", "dtype"}},
      {"unknown dtype", entry(R"({"dtype":"F33","shape":[2],"data_offsets":[0,8]})"), {"\"t\"", "F33"}},
      {"dtype a number", entry(R"({"dtype":1,"shape":[2],"data_offsets":[0,8]})"), {"\"t\"", "dtype"}},
      {"shape a string", entry(R"({"dtype":"F32","shape":"2","data_offsets":[0,8]})"), {"\"t\"", "shape"}},
      {"shape negative", entry(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), {"\"t\"", "shape"}},
      {"shape fraction", entry(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), {"\"t\"", "shape"}},
      {"shape beyond 2^63",
       entry(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]})"),
       {"shape"}},
      {"product overflows",
       entry(R"({"dtype":"F32","shape":[4294967296,4294967298],"data_offsets":[0,8]})"),
       {"\"t\"", "overflows"}},
      {"bits overflow",
       entry(R"({"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]})"),
       {"overflows"}},
      {"span too short", entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,7]})"), {"\"t\"", "span"}},
      {"dtype of another size",
       entry(R"({"dtype":"F64","shape":[2],"data_offsets":[0,8]})"),
       {"\"t\"", "span"}},
      {"half a byte", entry(R"({"dtype":"F4","shape":[3],"data_offsets":[0,1]})", 1), {"\"t\"", "bits"}},
      {"begin after end", entry(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), {"data_offsets"}},
      {"three offsets", entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})"), {"data_offsets"}},
      {"truncated data", entry(kGoodEntry, 7), {"\"t\"", "truncated"}},
      {"data too long", entry(kGoodEntry, 9), {"after the last tensor"}},
      {"hole at the beginning",
       entry(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})"),
       {"\"t\"", "hole"}},
      {"overlap",
       file_of(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
               R"("u":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
               12),
       {"\"u\"", "overlap"}},
  };
}

TEST(Safetensors, RefusesEveryBrokenHeader) {
  const TempDir dir;
  for (const std::vector<BadFile>& files : {bad_texts(), bad_entries()})
    for (const BadFile& bad : files) {
      write_file_atomic(dir / "f", bad.content);
      expect_error(Exit::data, bad.words, bad.label, [&] { SafetensorsFile(dir / "f", "f"); });
    }
}

TEST(Safetensors, MutatedFilesNeverGiveRangesOutsideTheFile) {
  const TempDir dir;
  write_safetensors(dir / "a", {f32_tensor("a", {1, 2, 3, 4}, {2, 2}), f32_tensor("b", {5, 6}, {2})});
  const std::string good = read_file(dir / "a", 1000);
  std::mt19937 random(1);
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (uint32_t edits = 1 + random() % 3; edits > 0; --edits)
      text[random() % (random() % 2 ? 8 : text.size())] = static_cast<char>(random() % 256);
    {
      OutputFile file(dir / "m", OutputFile::Mode::truncate);
      file.write(text);
    }
    try {
      const SafetensorsFile file(dir / "m", "m");
      ++accepted;
      for (const auto& [name, info] : file.tensors()) {
        ASSERT_GE(info.begin, 8);
        ASSERT_LE(info.begin, info.end);
        ASSERT_LE(info.end, static_cast<int64_t>(text.size()));
      }
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), Exit::data) << e.what();
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 3000);
}

TEST(Safetensors, ManyTensorsTakeLinearTime) {
  const TempDir dir;
  std::vector<TensorToWrite> tensors;
  for (int i = 0; i < 60000; ++i)
    tensors.push_back(f32_tensor(fmt::format("model.layers.{}.weight", i), {1}, {1}));
  write_safetensors(dir / "a", tensors);
  EXPECT_EQ(SafetensorsFile(dir / "a", "a").tensors().size(), 60000u);
}

TEST(Elements, ConvertsAndFindsTheFirstValueThatIsNotFinite) {
  const float values[] = {1.0f, -0.0f, 3.0e38f, 70000.0f, 1.00390625f};
  uint16_t half[5];
  EXPECT_EQ(convert_elements(half, DType::f16, values, DType::f32, 5), 2);
  EXPECT_EQ(half[0], 0x3c00);
  EXPECT_EQ(half[1], 0x8000);
  EXPECT_EQ(half[3], 0x7c00);
  EXPECT_EQ(convert_elements(half, DType::bf16, values, DType::f32, 5), -1);
  EXPECT_EQ(half[4], 0x3f80);  // a tie goes to the even neighbour
  double wide[5];
  EXPECT_EQ(convert_elements(wide, DType::f64, values, DType::f32, 5), -1);
  EXPECT_EQ(wide[2], static_cast<double>(3.0e38f));
}

/// Whatever the length of a vector of the machine: many at once, at any address, as each alone.
TEST(Elements, ManyAsEachAlone) {
  constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};
  constexpr int64_t kMost = 133;
  double values[kMost];
  for (int64_t i = 0; i < kMost; ++i) {
    const uint32_t drawn = static_cast<uint32_t>(i) * 2654435761u;  // also what is subnormal as fp16
    values[i] = std::ldexp(static_cast<double>(drawn) * 0x1p-32 - 0.5, static_cast<int>(drawn % 40) - 26);
  }
  for (const int64_t i : {70, 90, 132}) values[i] = 1e300;  // finite as fp64 alone
  for (const DType from : kTypes)
    for (const DType to : kTypes)
      for (const int64_t n : {0, 1, 7, 64, 71, 133}) {
        std::vector<char> in(8 * kMost + 1), many(8 * kMost + 1, 'x'), alone = many;
        char* const source = in.data() + 1;  // aligned for none of them
        convert_elements(source, from, values, DType::f64, kMost);
        const int64_t bad = convert_elements(many.data() + 1, to, source, from, n);
        int64_t first = -1;
        for (int64_t i = n - 1; i >= 0; --i)
          if (convert_elements(alone.data() + 1 + i * dtype_size(to), to, source + i * dtype_size(from), from,
                               1) == 0)
            first = i;
        const std::string which = fmt::format("{} -> {}, {}", dtype_name(from), dtype_name(to), n);
        EXPECT_EQ(bad, first) << which;
        EXPECT_EQ(bad, n > 70 && (from != DType::f64 || to != DType::f64) ? 70 : -1) << which;
        EXPECT_TRUE(many == alone) << which;
      }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
