// Checkpoints whose content was changed before it was signed, or after: each is taken or refused as bad data
// (65) that names its place, what is wrong and what to do. None is taken for a bug of the program.

#include "src/comm/alone/one_rank.h"
#include "src/core/digest/hash.h"
#include "src/io/checkpoint/checkpoint.h"
#include "src/rl/trajectory_bytes.h"
#include "src/run/record/run_checkpoint.h"
#include "src/run/roles/steps_ahead.h"
#include "tests/support/expect_error.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

Group group(int64_t position, FinishReason finish) {
  Group g;
  for (int32_t sample = 0; sample < 2; ++sample) {
    Trajectory& t = g.samples.emplace_back();
    t.data_position = position;
    t.sample = sample;
    t.prompt_tokens = {1, 2, 3};
    t.response.tokens = {4, 5};
    t.response.mask = {1, 1};
    t.response.logprobs = {-0.5, -0.25};
    t.response.versions = {{1, 2}};
    t.response.finish = finish;
    t.prompt = "What is 2 plus 2?";
    t.answer = "4";
    t.reward_parts = {{"exact", 1.0}};
  }
  return g;
}

class DamagedCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 16; ++i) weights_[i] = 0.25f * static_cast<float>(i);
    OneRank alone;
    CheckpointWriter writer(alone);
    writer.tensor({"param/w", {4, 4}, {0, 16}, make_tensor(weights_, DType::f32, {16})});
    StepInput ahead;
    ahead.groups = {group(3, FinishReason::stop)};
    ahead.note.num_groups = 1;
    writer.bytes(ahead_name(3), step_input_to_bytes(ahead));
    writer.bytes(kUnfinished, groups_to_bytes(std::vector<Group>{group(4, FinishReason::unfinished)}));
    writer.count("data_position", 3);
    writer.text("dtype", "fp32");
    writer.write(dir_.path(), 2, false);
    const std::string file = checkpoint() + "/rank-0000.h5";
    data_ = read_file(file, 1 << 20);
    manifest_ = read_json_file(checkpoint() + "/manifest.json");
  }
  std::string checkpoint() const { return dir_ / "step-000002"; }

  /// As whoever writes files of its own can sign them.
  void write_signed(Json manifest, const std::string& data) const {
    const auto digest = [&](const char* bytes, int64_t n) { return digest_hex(bytes, n); };
    manifest["files"][0]["digest"] = digest(data.data(), std::ssize(data));
    for (auto& [name, tensor] : manifest["tensors"].items()) {
      std::vector<Manifest::Shard> shards;
      for (Json& s : tensor["shards"]) {
        const auto at = s["offset"].get<int64_t>(), count = s["count"].get<int64_t>();
        s["digest"] = digest(data.data() + at, 4 * count);
        shards.push_back({"", s["first"].get<int64_t>(), count, at, s["digest"].get<std::string>()});
      }
      tensor["digest"] = digest_of_shards(shards);
    }
    write(std::move(manifest), data);
  }
  void write(Json manifest, const std::string& data) const {
    manifest.erase("digest");
    const std::string body = manifest.dump();
    manifest["digest"] = digest_hex(body.data(), std::ssize(body));
    write_text("rank-0000.h5", data);
    write_text("manifest.json", manifest.dump() + "\n");
  }
  void write_text(const std::string& name, const std::string& text) const {
    OutputFile(join_path(checkpoint(), name), OutputFile::Mode::truncate).write(text);
  }

  /// All that a start reads. True: all of it was taken.
  bool read_all(const std::string& label) const {
    try {
      float back[16];
      const CheckpointReader reader(checkpoint());
      require_sound(checkpoint());
      reader.fill({{"param/w", {4, 4}, {0, 16}, make_tensor(back, DType::f32, {16})}});
      if (reader.has(ahead_name(3))) read_ahead(reader, ahead_name(3));
      read_unfinished(reader);
      reader.count("data_position");
      reader.text("dtype");
      return true;
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_EQ(e.code(), Exit::data) << label << ": " << text;
      EXPECT_EQ(text.find("internal error"), std::string::npos) << label << ": " << text;
      EXPECT_EQ(text.find("bug in temper"), std::string::npos) << label << ": " << text;
      EXPECT_NE(e.problem().where.find("step-000002"), std::string::npos) << label << ": " << text;
      EXPECT_FALSE(e.problem().why.empty() || e.problem().fix.empty()) << label << ": " << text;
    } catch (const std::exception& e) {
      ADD_FAILURE() << label << ": another exception: " << e.what();
    }
    return false;
  }
  uint64_t draw(uint64_t below) {
    return static_cast<uint64_t>(uniform_value(7, ++draws_, 0) * static_cast<double>(below)) % below;
  }

  const TempDir dir_;
  float weights_[16];
  std::string data_;
  Json manifest_;
  uint64_t draws_ = 0;
};

TEST_F(DamagedCheckpoint, SignedBytesOfEntriesAreReadWithCare) {
  ASSERT_TRUE(read_all("as it was"));
  int refused = 0;
  for (const char* name : {"ahead/step-000003", kUnfinished}) {
    const Json& shard = manifest_["tensors"][name]["shards"][0];
    const auto at = shard["offset"].get<size_t>(), bytes = 4 * shard["count"].get<size_t>();
    for (size_t i = 0; i < bytes; i += 1 + draw(3)) {
      std::string changed = data_;
      const char value[] = {'\0', '\x01', '\x7f', '\x80', '\xff'};
      changed[at + i] = value[draw(5)];
      write_signed(manifest_, changed);
      refused += !read_all(fmt::format("byte {} of {}", i, name));
    }
  }
  EXPECT_GT(refused, 50);
}

TEST_F(DamagedCheckpoint, SignedManifestsAreReadWithCare) {
  const Json values[] = {nullptr, true,    -1,  0,          int64_t{1} << 53,        1000000000000000, 0.5,
                         "",      "param", "0", Json::array(), Json::object(), Json::array({1, -1})};
  const Json flat = manifest_.flatten();
  int refused = 0;
  for (const auto& [path, value] : flat.items()) {
    if (path == "/digest") continue;
    Json changed = flat;
    changed[path] = values[draw(std::size(values))];
    if (changed[path].is_structured()) changed[path] = nullptr;
    write(changed.unflatten(), data_);
    refused += !read_all(path + " = " + changed[path].dump());
    changed = flat;
    changed.erase(path);
    write(changed.unflatten(), data_);
    refused += !read_all(path + " is missing");
  }
  EXPECT_GT(refused, 50);
}

TEST_F(DamagedCheckpoint, ChangedBytesAreFound) {
  for (int i = 0; i < 200; ++i) {
    std::string changed = data_;
    changed[draw(changed.size())] ^= static_cast<char>(1 + draw(255));
    write(manifest_, changed);
    EXPECT_FALSE(read_all("a byte of the file")) << i;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
