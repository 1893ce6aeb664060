// Manifests from outside: written by hand here, wrong in one way each and signed again, so that only the
// check in question can refuse them. Each must end in Error(Exit::data) that names the file and the key.

#include <gtest/gtest.h>

#include <tuple>

#include "src/core/digest/hash.h"
#include "src/core/file.h"
#include "src/io/checkpoint/checkpoint.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

constexpr int64_t kFileBytes = 96;

/// The parameter is the version of the format.
class ManifestTest : public ::testing::TestWithParam<int64_t> {
 protected:
  /// Two files: "a" is a vector of 12 in both, "b" a matrix in the first.
  void SetUp() override {
    for (size_t i = 0; i < 2; ++i) {
      for (int64_t k = 0; k < kFileBytes; ++k) bytes_[i].push_back(static_cast<char>(17 * k + 5 * i));
      write_file_atomic(dir_ / kNames[i], bytes_[i]);
    }
    const Json a = {{"shape", Json::array({12})},
                    {"dtype", "fp32"},
                    {"shards", {shard(0, 0, 8, 16, 4), shard(1, 8, 4, 0, 4)}},
                    {"digest", digest(GetParam() == 1 ? bytes_[0].substr(16, 32) + bytes_[1].substr(0, 16)
                                                      : line(0, 0, 8, 16, 4) + line(1, 8, 4, 0, 4))}};
    const Json b = {{"shape", {2, 3}},
                    {"dtype", "fp64"},
                    {"shards", Json::array({shard(0, 0, 6, 48, 8)})},
                    {"digest", digest(GetParam() == 1 ? bytes_[0].substr(48, 48) : line(0, 0, 6, 48, 8))}};
    good_ = {{"format", "temper-checkpoint"},
             {"version", GetParam()},
             {"step", 4},
             {"layout", {{"dp", 2}}},
             {"files", {file(0), file(1)}},
             {"tensors", {{"a", a}, {"b", b}}},
             {"meta", {{"dtype", "fp32"}, {"count", 7}, {"text", 1}, {"minus", -1}, {"half", 0.5}}}};
    put(good_);
  }
  static std::string digest(const std::string& bytes) {
    return digest_hex(bytes.data(), static_cast<int64_t>(bytes.size()));
  }
  Json file(size_t i) const {
    return {{"name", kNames[i]}, {"bytes", kFileBytes}, {"digest", digest(bytes_[i])}};
  }
  Json shard(size_t i, int64_t first, int64_t count, int64_t offset, int64_t item) const {
    return {
        {"file", kNames[i]},
        {"first", first},
        {"count", count},
        {"offset", offset},
        {"digest", digest(bytes_[i].substr(static_cast<size_t>(offset), static_cast<size_t>(count * item)))}};
  }
  /// What a shard adds to the digest of its tensor, from version 2 on.
  std::string line(size_t i, int64_t first, int64_t count, int64_t offset, int64_t item) const {
    return fmt::format("{} {} {}\n", first, count,
                       shard(i, first, count, offset, item)["digest"].get<std::string>());
  }
  /// Writes a manifest with a digest of itself that is right.
  void put(Json json) const {
    json.erase("digest");
    json["digest"] = digest(json.dump());
    write(json.dump() + "\n");
  }
  /// A new file without a sync: thousands of these are written.
  void write(const std::string& text) const {
    remove_tree(path());
    OutputFile(path(), OutputFile::Mode::create_new).write(text);
  }
  std::string path() const { return dir_ / kManifestName; }
  Manifest read() const { return Manifest::read(dir_.path()); }
  void expect_refused(const Json& json, std::vector<std::string> words, const std::string& label) const {
    put(json);
    words.push_back(path());
    expect_error(Exit::data, words, label, [&] { read(); });
  }
  /// good_ with the value at a JSON pointer replaced.
  Json with(const std::string& pointer, const Json& value) const {
    Json json = good_;
    json[Json::json_pointer(pointer)] = value;
    return json;
  }

  static constexpr const char* kNames[2] = {"rank-0000.h5", "rank-0001.h5"};
  TempDir dir_;
  std::string bytes_[2];
  Json good_;
};

TEST_P(ManifestTest, ReadsAGoodOne) {
  const Manifest m = read();
  EXPECT_EQ(m.version(), GetParam());
  EXPECT_EQ(m.step(), 4);
  ASSERT_EQ(m.files().size(), 2u);
  EXPECT_EQ(m.files()[1].name, kNames[1]);
  EXPECT_EQ(m.tensors().at("b").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(m.tensors().at("a").shards.at(1).first, 8);
  EXPECT_EQ(m.meta_text("dtype"), "fp32");
  EXPECT_EQ(m.meta_count("count"), 7);
  EXPECT_TRUE(verify_checkpoint(dir_.path()).empty());
}

enum class Kind { text, count, array, object };
struct Place {
  const char* pointer;
  const char* key;  // as messages show it
  Kind kind;
};
constexpr Place kPlaces[] = {
    {"/format", "format", Kind::text},
    {"/version", "version", Kind::count},
    {"/step", "step", Kind::count},
    {"/files", "files", Kind::array},
    {"/files/1", "files[1]", Kind::object},
    {"/files/1/name", "files[1].name", Kind::text},
    {"/files/1/bytes", "files[1].bytes", Kind::count},
    {"/files/1/digest", "files[1].digest", Kind::text},
    {"/tensors", "tensors", Kind::object},
    {"/tensors/b", "tensors.b", Kind::object},
    {"/tensors/b/shape", "tensors.b.shape", Kind::array},
    {"/tensors/b/shape/1", "tensors.b.shape[1]", Kind::count},
    {"/tensors/b/dtype", "tensors.b.dtype", Kind::text},
    {"/tensors/b/digest", "tensors.b.digest", Kind::text},
    {"/tensors/a/shards", "tensors.a.shards", Kind::array},
    {"/tensors/a/shards/1", "tensors.a.shards[1]", Kind::object},
    {"/tensors/a/shards/1/file", "tensors.a.shards[1].file", Kind::text},
    {"/tensors/a/shards/1/first", "tensors.a.shards[1].first", Kind::count},
    {"/tensors/a/shards/1/count", "tensors.a.shards[1].count", Kind::count},
    {"/tensors/a/shards/1/offset", "tensors.a.shards[1].offset", Kind::count},
    {"/tensors/a/shards/1/digest", "tensors.a.shards[1].digest", Kind::text},
    {"/meta", "meta", Kind::object},
};

TEST_P(ManifestTest, EveryKeyIsNeeded) {
  for (const Place& place : kPlaces) {
    const Json::json_pointer pointer(place.pointer);
    Json json = good_;
    const bool listed = std::string(place.key) == "tensors.b" || !json[pointer.parent_pointer()].is_object();
    if (listed) continue;  // lists may be shorter
    json[pointer.parent_pointer()].erase(pointer.back());
    expect_refused(json, {place.key, "missing"}, place.pointer);
  }
}

TEST_P(ManifestTest, EveryTypeIsChecked) {
  const std::pair<Kind, Json> values[] = {
      {Kind::text, "x"}, {Kind::count, 3}, {Kind::array, Json::array({1})}, {Kind::object, {{"x", 1}}}};
  for (const Place& place : kPlaces) {
    for (const auto& [kind, value] : values)
      if (kind != place.kind)
        expect_refused(with(place.pointer, value), {place.key}, place.pointer + value.dump());
    for (const Json& value : {Json(nullptr), Json(true), Json(1.5), Json(-1)})
      expect_refused(with(place.pointer, value), {place.key}, place.pointer + value.dump());
  }
}

TEST_P(ManifestTest, EverySizeIsChecked) {
  for (const Place& place : kPlaces)
    if (place.kind == Kind::count)
      for (const Json& value :
           {Json(int64_t{-1}), Json(INT64_MIN), Json(INT64_MAX), Json(UINT64_MAX), Json(1e30)})
        expect_refused(with(place.pointer, value), {place.key}, place.pointer + value.dump());
}

TEST_P(ManifestTest, EveryDigestHas32Digits) {
  for (const Place& place : kPlaces)
    if (std::string(place.key).ends_with("digest"))
      for (const char* value :
           {"", "00", "0123456789ABCDEF0123456789ABCDEF", "0123456789abcdef0123456789abcdefg"})
        expect_refused(with(place.pointer, value), {place.key, "32"}, place.pointer);
}

TEST_P(ManifestTest, FileNamesStayInside) {
  for (const char* name : {"", ".", "..", "../rank-0000.h5", "/etc/passwd", "a/b", ".hidden", "a\\b", "Rank",
                           "a b", "rank\n", "manifest.json", "\xc3\xa9"})
    expect_refused(with("/files/0/name", name), {"files[0].name"}, name);
  expect_refused(with("/files/0/name", std::string("rank\0", 5)), {"files[0].name"}, "with a zero byte");
  expect_refused(with("/files/0/name", kNames[1]), {"files[1].name", "twice"}, "twice");
  expect_refused(with("/tensors/b/shards/0/file", "../secret"), {"tensors.b.shards[0].file"},
                 "shard outside");
  expect_refused(with("/tensors/b/shards/0/file", "rank-0002.h5"), {"rank-0002.h5", "files"}, "unlisted");
}

TEST_P(ManifestTest, ShardsLieInTheirFilesAndCoverTheTensor) {
  const std::string b = "/tensors/b/shards/0/", a = "/tensors/a/shards/";
  expect_refused(with(b + "offset", 49), {"tensors.b.shards[0].count", "6"}, "over the end");
  expect_refused(with(b + "offset", 97), {"tensors.b.shards[0].offset", "97", "96"}, "behind the end");
  expect_refused(with(b + "count", 7), {"tensors.b.shards[0].count", "7"}, "too long");
  expect_refused(with(b + "count", 5), {"tensors.b.shards", "5", "6"}, "too short");
  expect_refused(with(b + "first", 1), {"tensors.b.shards[0].first"}, "first element missing");
  expect_refused(with(a + "1/first", 9), {"tensors.a.shards[1].first", "9", "8"}, "gap");
  expect_refused(with(a + "1/first", 7), {"tensors.a.shards[1].first", "7", "8"}, "overlap");
  expect_refused(with("/tensors/a/shards", Json::array()), {"tensors.a.shards", "0", "12"}, "no shards");
  expect_refused(with("/files/0/bytes", 90), {"tensors.b.shards[0].count"}, "file too short");
}

TEST_P(ManifestTest, ShapesAndNames) {
  const int64_t big = int64_t{1} << 40;
  expect_refused(with("/tensors/b/shape", {big, big}), {"tensors.b.shape[1]"}, "overflow");
  expect_refused(with("/tensors/b/shape", {0, big, big, big}), {"tensors.b.shards"}, "zero times huge");
  expect_refused(with("/tensors/b/shape", {3, 3}), {"tensors.b.shards", "6", "9"}, "another size");
  for (const char* name : {"fp16", "i64", "float", ""})
    expect_refused(with("/tensors/b/dtype", name), {"tensors.b.dtype", "fp32"}, name);
  expect_refused(with("/format", "other"), {"temper-checkpoint"}, "format");
  for (int64_t version : {0, 3})
    expect_refused(with("/version", version), {fmt::format("version {}", version), "versions 1 to 2"},
                   "version");
  Json json = good_;
  json["tensors"]["evil\x1b[2J\n"] = 1;
  put(json);
  try {
    read();
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.problem().where.find_first_of("\x1b\n"), std::string::npos)
        << "control characters are escaped";
  }
}

TEST_P(ManifestTest, EveryCutAndEveryFlippedBit) {
  const std::string text = read_file(path(), 1 << 20);
  for (size_t size = 0; size + 1 < text.size(); ++size) {
    write(text.substr(0, size));
    expect_error(Exit::data, {path()}, fmt::format("cut after {}", size), [&] { read(); });
  }
  for (size_t at = 0; at < text.size(); ++at) {
    std::string bad = text;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    write(bad);
    expect_error(Exit::data, {path()}, fmt::format("byte {} flipped", at), [&] { read(); });
  }
}

TEST_P(ManifestTest, ADigestOfItselfThatIsWrong) {
  for (const Json& value : {Json("0123456789abcdef0123456789abcdef"), Json(5), Json(nullptr)}) {
    write(with("/digest", value).dump());
    expect_error(Exit::data, {path(), "digest"}, value.dump(), [&] { read(); });
  }
  write(good_.dump());
  expect_error(Exit::data, {path(), "digest", "missing"}, "none", [&] { read(); });
  for (const char* text : {"", "[]", "5", "null", "\"x\""}) {
    write(text);
    expect_error(Exit::data, {path()}, text, [&] { read(); });
  }
}

TEST_P(ManifestTest, VerifyComparesEveryDigest) {
  const std::string other = "0123456789abcdef0123456789abcdef";
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"/files/1/digest", kNames[1], ""},
      {"/tensors/a/shards/0/digest", kNames[0], "a"},
      {"/tensors/a/digest", kManifestName, "a"},
      {"/tensors/b/digest", kManifestName, "b"}};
  for (const auto& [pointer, file, tensor] : cases) {
    put(with(pointer, other));
    const std::vector<Damage> damage = verify_checkpoint(dir_.path());
    ASSERT_EQ(damage.size(), 1u) << pointer;
    EXPECT_EQ(damage[0].file, file);
    EXPECT_EQ(damage[0].tensor, tensor);
    expect_error(Exit::data, {file, tensor}, pointer, [&] { require_sound(dir_.path()); });
  }
}

TEST_P(ManifestTest, MetaIsTyped) {
  const Manifest m = read();
  expect_error(Exit::data, {path(), "meta.absent", "missing"}, "text", [&] { m.meta_text("absent"); });
  expect_error(Exit::data, {path(), "meta.absent", "missing"}, "count", [&] { m.meta_count("absent"); });
  expect_error(Exit::data, {path(), "meta.text"}, "number as text", [&] { m.meta_text("text"); });
  for (const char* key : {"dtype", "minus", "half"})
    expect_error(Exit::data, {path(), std::string("meta.") + key}, key, [&] { m.meta_count(key); });
}

INSTANTIATE_TEST_SUITE_P(Versions, ManifestTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
