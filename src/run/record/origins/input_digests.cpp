#include "src/run/record/origins/input_digests.h"

#include <filesystem>
#include <set>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/json.h"
#include "src/core/log.h"
#include "src/io/hf/model_folder.h"

namespace temper {
namespace {

/// What a run looks for in a folder, the file that is always there first: one that it has no digest of was
/// not there.
struct FolderFiles {
  const char* key;
  std::vector<std::string> names;
};
const FolderFiles kFolders[] = {
    {"model.path", {"config.json", "generation_config.json"}},
    {"tokenizer.path", {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}}};

constexpr JsonLimits kLimits{.depth = 4, .bytes = int64_t{64} << 20};

std::string parent_of(const std::string& path) {
  return std::filesystem::path(path).lexically_normal().parent_path().string();
}
std::string name_of(const std::string& path) { return std::filesystem::path(path).filename().string(); }

std::string shown(const InputDigests::Files& files, const std::string& name) {
  const auto found = files.find(name);
  return found == files.end() ? "none" : found->second.text();
}

std::set<std::string> names_of(const InputDigests::Files& a, const InputDigests::Files& b) {
  std::set<std::string> names;
  for (const InputDigests::Files* files : {&a, &b})
    for (const auto& [name, unused] : *files) names.insert(name);
  return names;
}

bool equal_in(const InputDigests::Files& a, const InputDigests::Files& b, const std::string& name) {
  const auto in_a = a.find(name), in_b = b.find(name);
  return in_a != a.end() && in_b != b.end() && in_a->second.same_content(in_b->second);
}

}  // namespace

void InputDigests::add_list(const std::string& key, const std::vector<FileDigest>& files) {
  for (size_t i = 0; i < files.size(); ++i) add(key, std::to_string(i), files[i]);
}

void InputDigests::keep_first(const std::string& key, int64_t count) {
  if (const auto list = files_.find(key); list != files_.end())
    std::erase_if(list->second, [&](const auto& file) { return std::stoll(file.first) >= count; });
}

void InputDigests::add_folder(const std::string& key, const std::vector<FileDigest>& files) {
  for (const FileDigest& file : files) add(key, name_of(file.path), file);
}

const InputDigests::Files& InputDigests::of(const std::string& key) const {
  static const Files kNone;
  const auto found = files_.find(key);
  return found == files_.end() ? kNone : found->second;
}

std::string InputDigests::text() const {
  Json list = Json::array();
  for (const auto& [key, files] : files_)
    for (const auto& [name, file] : files)
      list.push_back({{"key", key},
                      {"name", name},
                      {"path", file.path},
                      {"bytes", file.bytes},
                      {"digest", file.digest}});
  return dump_json_line(list);
}

InputDigests InputDigests::from_text(const std::string& text, const std::string& where) {
  InputDigests inputs;
  const Json list = parse_json(text, where, kLimits);
  try {
    for (const Json& one : list)
      inputs.add(one.at("key").get<std::string>(), one.at("name").get<std::string>(),
                 {one.at("path").get<std::string>(), one.at("bytes").get<int64_t>(),
                  one.at("digest").get<std::string>()});
  } catch (const Json::exception& e) {
    fail(Exit::data, {.what = "the digests of a run's inputs cannot be read",
                      .where = where,
                      .why = e.what(),
                      .fix = "use another checkpoint"});
  }
  return inputs;
}

InputDigests agree_on_inputs(const InputDigests& mine, Comm& ranks) {
  InputDigests all;
  std::map<std::pair<std::string, std::string>, size_t> reader;
  const std::vector<std::string> texts = ranks.all_gather(mine.text(), "digests of the inputs of all ranks");
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const InputDigests theirs = InputDigests::from_text(texts[rank], fmt::format("rank {}", rank));
    for (const auto& [key, files] : theirs.files())
      for (const auto& [name, file] : files) {
        const auto [first, fresh] = reader.emplace(std::pair(key, name), rank);
        if (fresh) {
          all.add(key, name, file);
          continue;
        }
        const FileDigest& before = all.of(key).at(name);
        if (!before.same_content(file))
          fail(Exit::data,
               {.what = "two ranks have read different files where all read the same one",
                .where = fmt::format("{}, ranks {} and {}", key, first->second, rank),
                .why = fmt::format("{} on the first, {} on the second", before.text(), file.text()),
                .fix = "give every host the same files, and leave them alone while a run starts"});
      }
  }
  return all;
}

std::vector<ConfigChange> changed_content(const InputDigests& before, const InputDigests& after) {
  std::vector<ConfigChange> changes;
  for (const auto& [key, files] : after.files()) {
    const InputDigests::Files& old = before.of(key);
    if (old.empty()) continue;
    for (const std::string& name : names_of(old, files))
      if (!equal_in(old, files, name)) changes.push_back({key, shown(old, name), shown(files, name)});
  }
  return changes;
}

bool same_content(const InputDigests& before, const InputDigests& after, const std::string& key) {
  const InputDigests::Files &old = before.of(key), &now = after.of(key);
  if (old.empty()) return false;
  for (const std::string& name : names_of(old, now))
    if (!equal_in(old, now, name)) return false;
  return true;
}

bool same_content(const InputDigests& before, const InputDigests& after, const std::string& key,
                  const std::string& name) {
  return equal_in(before.of(key), after.of(key), name);
}

void require_unchanged(const InputDigests& inputs, const std::string& key, const FileDigest& now) {
  std::string before = "none";
  for (const auto& [name, file] : inputs.of(key)) {
    if (file.path != now.path) continue;
    if (file.same_content(now)) return;
    before = file.text();
  }
  fail(Exit::data, {.what = "a file was changed while the run that reads it was under way",
                    .where = fmt::format("{}, {}", key, now.path),
                    .why = fmt::format("{} when the run began, {} now", before, now.text()),
                    .fix = "leave the files of a run alone until it has ended; put the old content back, or "
                           "begin another run"});
}

void tell_what_changed(const InputDigests& inputs, const std::string& folder) {
  const InputDigests::Files& model = inputs.of("model.path");
  if (!model.contains("config.json")) return;
  const std::string home = parent_of(model.at("config.json").path);
  for (const auto& [key, looked_for] : kFolders) {
    const InputDigests::Files& read = inputs.of(key);
    const auto first = read.find(looked_for.front());
    if (first == read.end() || parent_of(first->second.path) != home) continue;
    InputDigests::Files now;
    std::set<std::string> names(looked_for.begin(), looked_for.end());
    for (const auto& [name, file] : read) names.insert(name);
    for (const std::string& name : names) {
      if (read.contains(name) && parent_of(read.at(name).path) != home) continue;  // an export takes another
      if (const std::string path = find_in_folder(folder, name); !path.empty())
        now[name] = digest_of_file(path);
      if ((read.contains(name) || now.contains(name)) && !equal_in(read, now, name))
        log::warn("the exported folder has another {} than the run was made with: {} -> {}", name,
                  shown(read, name), shown(now, name));
    }
  }
}

}  // namespace temper
