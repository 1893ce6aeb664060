#pragma once
// Everything that a whole run computed, as short texts and digests: rollouts, metrics without times, exported
// weights, and the logical tensors of its last checkpoint, whatever files and cuts hold them. Runs are
// compared with each other or with digests in tests/golden/frozen. Only keys that lines had when they were
// frozen count: a line may get more of them.

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "src/core/digest/hash.h"
#include "src/io/checkpoint/checkpoint.h"
#include "src/io/hf/safetensors.h"
#include "tests/support/libm_bits.h"
#include "tests/support/program.h"

namespace temper {

inline constexpr const char* kFrozenFolder = "tests/golden/frozen/";
inline constexpr int kFrozenSteps = 6;
/// Ranks may add the squares of a gradient norm in another order.
inline constexpr double kNormTolerance = 1e-12;

/// The items go by name: a short value is its text, a long one its digest.
using Items = std::map<std::string, std::string>;

struct RunBits {
  std::map<std::string, std::map<std::string, Items>> products;  // product -> its parts -> their items
  std::vector<double> grad_norms;                                // one per step
};

/// Names of the keys that count. A golden file has each list as words of one string.
struct FrozenKeys {
  std::set<std::string> metrics, rollouts;

  static FrozenKeys of(const Json& golden) {
    return {words(golden.at("metrics_keys")), words(golden.at("rollouts_keys"))};
  }
  /// Lists that are there stay: later keys are not frozen.
  void keep_in(Json& golden) const {
    if (golden.contains("metrics_keys")) return;
    golden["metrics_keys"] = fmt::format("{}", fmt::join(metrics, " "));
    golden["rollouts_keys"] = fmt::format("{}", fmt::join(rollouts, " "));
  }

 private:
  static std::set<std::string> words(const Json& list) {
    std::istringstream text(list.get<std::string>());
    return {std::istream_iterator<std::string>(text), {}};
  }
};

inline bool is_grad_norm(const std::string& key) { return key.ends_with("/grad_norm"); }

/// Files with one line per response, as "rollouts/step-000001.jsonl".
inline std::vector<std::string> response_files(const Program& program, const std::string& run) {
  std::vector<std::string> names;
  for (const char* folder : {"rollouts", "validation"}) {
    const std::string path = program.path(fmt::format("runs/{}/{}", run, folder));
    if (!path_exists(path)) continue;
    for (const std::string& name : list_directory(path)) names.push_back(join_path(folder, name));
  }
  return names;
}

/// The keys that a run has written, but for times and what depends on the machine.
inline FrozenKeys keys_of(const Program& program, const std::string& run) {
  FrozenKeys keys;
  for (const Json& line : program.metrics(run))
    for (const auto& [key, value] : line.items())
      if (!key.starts_with("timing_s/") && !key.starts_with("perf/") && !is_grad_norm(key))
        keys.metrics.insert(key);
  for (const std::string& file : response_files(program, run))
    for (const Json& line : program.json_lines(fmt::format("runs/{}/{}", run, file)))
      for (const auto& [key, value] : line.items()) keys.rollouts.insert(key);
  return keys;
}

inline std::map<std::string, Items> read_metrics(const Program& program, const std::string& run,
                                                 const std::set<std::string>& keys,
                                                 std::vector<double>& grad_norms) {
  std::map<std::string, Items> steps;
  for (const Json& line : program.metrics(run)) {
    Items& items = steps[fmt::format("step {}", line.at("step").get<int>())];
    for (const auto& [key, value] : line.items()) {
      if (keys.contains(key)) items[key] = value.dump();
      if (is_grad_norm(key)) grad_norms.push_back(value.get<double>());
    }
  }
  return steps;
}

inline std::map<std::string, Items> read_responses(const Program& program, const std::string& run,
                                                   const std::set<std::string>& keys) {
  std::map<std::string, Items> files;
  for (const std::string& file : response_files(program, run)) {
    Items& items = files[file];
    int number = 0;
    for (const Json& line : program.json_lines(fmt::format("runs/{}/{}", run, file))) {
      ++number;
      for (const auto& [key, value] : line.items())
        if (keys.contains(key)) items[fmt::format("line {:03d} {}", number, key)] = dump_json_line(value);
    }
  }
  return files;
}

inline Items read_weights(const std::string& path) {
  const SafetensorsFile file(path, path);
  Items items;
  for (const auto& [name, info] : file.tensors()) {
    std::string bytes(static_cast<size_t>(info.end - info.begin), '\0');
    file.read(info.begin, info.end - info.begin, bytes.data());
    items[name] = fmt::format("{} {} {}", info.dtype, shape_text(info.shape),
                              digest_hex(bytes.data(), info.end - info.begin));
  }
  return items;
}

/// Items go by the group of their name: "opt/m" -> "embed".
inline std::map<std::string, Items> read_checkpoint(const std::string& path) {
  const Manifest manifest = Manifest::read(path);
  std::map<std::string, Items> groups;
  for (const auto& [name, tensor] : manifest.tensors()) {
    int64_t size = 1;
    for (int64_t d : tensor.shape) size *= d;
    std::vector<char> memory(static_cast<size_t>(size * dtype_size(tensor.dtype)));
    const Tensor whole = make_tensor(memory.data(), tensor.dtype, {size});
    load_state(manifest, std::vector<StateTensor>{{name, tensor.shape, {0, size}, whole}});
    const size_t slash = name.find_last_of('/');
    groups[slash == std::string::npos ? "" : name.substr(0, slash)][name.substr(slash + 1)] =
        fmt::format("{} {} {}", dtype_name(tensor.dtype), shape_text(tensor.shape),
                    digest_hex(whole.raw(), whole.bytes()));
  }
  return groups;
}

/// What the run left after its last step.
inline RunBits bits_of(const Program& program, const std::string& run, const FrozenKeys& keys) {
  const std::string folder = program.path("runs/" + run), step = fmt::format("step-{:06d}", kFrozenSteps);
  RunBits bits;
  bits.products["rollouts"] = read_responses(program, run, keys.rollouts);
  bits.products["metrics"] = read_metrics(program, run, keys.metrics, bits.grad_norms);
  bits.products["weights"]["model.safetensors"] =
      read_weights(folder + "/export/" + step + "/model.safetensors");
  bits.products["checkpoint"] = read_checkpoint(folder + "/checkpoints/" + step);
  return bits;
}

inline std::string digest_of(const Items& items) {
  Digest digest;
  for (const auto& [name, text] : items) {
    const std::string line = name + "\n" + text + "\n";
    digest.update(line.data(), static_cast<int64_t>(line.size()));
  }
  return digest.hex();
}

/// What is kept in a golden file: a digest for each part.
inline Json digests_of(const RunBits& bits) {
  Json all;
  for (const auto& [product, parts] : bits.products) {
    all[product] = Json::object();
    for (const auto& [part, items] : parts) all[product][part] = digest_of(items);
  }
  all["grad_norm"] = bits.grad_norms;
  return all;
}

inline void expect_norms(const std::vector<double>& found, const std::vector<double>& expected, int ranks) {
  ASSERT_EQ(found.size(), expected.size()) << "gradient norms";
  const double tolerance = ranks == 1 ? 0 : kNormTolerance;
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_LE(std::abs(found[i] - expected[i]), tolerance * expected[i])
        << "gradient norm of step " << i + 1 << " is " << found[i] << ", was " << expected[i];
}

/// Each part of each product has its frozen digest.
inline void expect_frozen(const RunBits& bits, const Json& golden, int ranks) {
  const Json found = digests_of(bits);
  for (const char* product : {"rollouts", "metrics", "weights", "checkpoint"}) {
    const Json &now = found.at(product), &before = golden.at(product);
    EXPECT_EQ(now.size(), before.size()) << "parts of " << product;
    std::string differing;
    for (const auto& [part, digest] : before.items())
      if (now.value(part, "missing") != digest.get<std::string>()) differing += "\n  " + part;
    EXPECT_TRUE(differing.empty()) << product << " differ from those that were frozen:" << differing;
  }
  expect_norms(bits.grad_norms, golden.at("grad_norm").get<std::vector<double>>(), ranks);
}

/// The items of `before`; of each part the first that differs is shown.
inline void expect_equal_runs(const RunBits& now, const RunBits& before, int ranks) {
  for (const auto& [product, parts] : before.products) {
    const std::map<std::string, Items>& others = now.products.at(product);
    EXPECT_EQ(others.size(), parts.size()) << "parts of " << product;
    for (const auto& [part, items] : parts) {
      const Items other = others.contains(part) ? others.at(part) : Items();
      EXPECT_EQ(other.size(), items.size()) << product << ", " << part << ": number of items";
      for (const auto& [name, text] : items) {
        const auto at = other.find(name);
        if (at != other.end() && at->second == text) continue;
        ADD_FAILURE() << product << ", " << part << ", " << name << " is "
                      << (at == other.end() ? "missing" : at->second) << ", was " << text;
        break;
      }
    }
  }
  expect_norms(now.grad_norms, before.grad_norms, ranks);
}

}  // namespace temper
