#include "src/data/tokenizer/json.h"

#include <algorithm>
#include <set>

#include "src/core/check.h"
#include "src/core/file.h"

namespace temper {
namespace {

constexpr int64_t kMaxBytes = int64_t{256} << 20;
constexpr size_t kMaxDepth = 64;
constexpr const char* kFix = "fetch the file again; a model's tokenizer.json is wanted";

/// Streams the file: `model.vocab` and `model.merges` into lists, all else into a tree.
class FileHandler : public nlohmann::json_sax<Json> {
 public:
  explicit FileHandler(TokenizerFile& file) : file_(file) {}

  bool null() override { return scalar(nullptr); }
  bool boolean(bool v) override { return scalar(v); }
  bool number_integer(number_integer_t v) override { return number(v); }
  bool number_unsigned(number_unsigned_t v) override {
    return number(static_cast<int64_t>(std::min(v, number_unsigned_t{INT64_MAX})));
  }
  bool number_float(number_float_t v, const string_t&) override { return scalar(v); }
  bool binary(binary_t&) override { return refuse("binary value"); }
  bool string(string_t& v) override { return in_merges() ? merge_text(v) : scalar(std::move(v)); }
  bool key(string_t& k) override {
    Level& level = levels_.back();
    level.key = k;
    if (in_vocab() || level.keys.insert(k).second) return true;
    return refuse("duplicate key \"" + k.substr(0, 80) + "\"");
  }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    const std::string text = e.what();
    const auto at = text.find("parse error");
    return refuse(fmt::format("{} (byte {})", text.substr(at == text.npos ? 0 : at, 300), position));
  }

  const std::string& reason() const { return reason_; }

 private:
  struct Level {
    Json* node;       // container under construction; null inside vocab and merges
    std::string key;  // last key seen (objects)
    std::set<std::string, std::less<>> keys;
  };

  bool in_list(const char* name, size_t depth) const {
    return levels_.size() >= depth && levels_[0].key == "model" && levels_[1].key == name &&
           levels_[2].node == nullptr;
  }
  bool in_vocab() const { return in_list("vocab", 3); }
  bool in_merges() const { return in_list("merges", 3); }

  bool number(int64_t v) {
    if (!in_vocab()) return scalar(v);
    file_.vocab.emplace_back(levels_.back().key, v);
    return true;
  }

  bool scalar(Json value) {
    if (in_vocab())
      return refuse("model.vocab: the id of \"" + levels_.back().key.substr(0, 80) + "\" is not an integer");
    if (in_merges()) return refuse(merge_path() + " is neither a string nor a pair of strings");
    add(std::move(value));
    return true;
  }

  /// Puts a value into the innermost container and returns where it lies.
  Json* add(Json value) {
    if (levels_.empty()) return &(file_.tree = std::move(value));
    Level& level = levels_.back();
    if (level.node->is_array()) {
      level.node->push_back(std::move(value));
      return &level.node->back();
    }
    return &append_member(*level.node, level.key, std::move(value));
  }

  bool open(Json container) {
    if (levels_.size() >= kMaxDepth) return refuse(fmt::format("nested deeper than {} levels", kMaxDepth));
    if (in_vocab())
      return refuse("model.vocab: the id of \"" + levels_.back().key.substr(0, 80) + "\" is not an integer");
    if (in_merges()) {
      if (levels_.size() > 3 || container.is_object())
        return refuse(merge_path() + " is neither a string nor a pair of strings");
      levels_.push_back({nullptr, "", {}});
      pair_.clear();
      return true;
    }
    const bool in_model = levels_.size() == 2 && levels_[0].key == "model" && levels_[0].node->is_object();
    const bool is_vocab = in_model && levels_[1].key == "vocab" && container.is_object();
    const bool is_merges = in_model && levels_[1].key == "merges" && container.is_array();
    Json* node = add(std::move(container));
    levels_.push_back({is_vocab || is_merges ? nullptr : node, "", {}});
    return true;
  }

  bool close() {
    if (in_merges() && levels_.size() == 4) {
      if (pair_.size() != 2)
        return refuse(fmt::format("{} has {} parts instead of 2", merge_path(), pair_.size()));
      file_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
    }
    levels_.pop_back();
    return true;
  }

  bool merge_text(std::string& text) {
    if (levels_.size() == 4) {
      if (pair_.size() < 3) pair_.push_back(std::move(text));
      return true;
    }
    if (file_.merges.empty() && text.starts_with("#version")) return true;
    const size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos)
      return refuse(fmt::format("{} \"{}\" is not two tokens with one space between", merge_path(),
                                text.substr(0, 80)));
    file_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    return true;
  }

  std::string merge_path() const { return fmt::format("model.merges[{}]", file_.merges.size()); }

  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }

  TokenizerFile& file_;
  std::vector<Level> levels_;
  std::vector<std::string> pair_;
  std::string reason_;
};

}  // namespace

TokenizerFile read_tokenizer_file(const std::string& path, FileDigest& digest) {
  const std::string text = read_file(path, kMaxBytes);
  digest = digest_of_text(path, text);
  return parse_tokenizer_file(text, path);
}

TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& path) {
  if (const size_t zero = text.find('\0'); zero != text.npos)  // to the parser it ends the text
    fail(Exit::data, {.what = "not a usable tokenizer.json",
                      .where = path,
                      .why = fmt::format("a zero byte (byte {})", zero),
                      .fix = kFix});
  TokenizerFile file;
  FileHandler handler(file);
  if (!Json::sax_parse(text.begin(), text.end(), &handler))
    fail(Exit::data,
         {.what = "not a usable tokenizer.json", .where = path, .why = handler.reason(), .fix = kFix});
  if (!file.tree.is_object())
    fail(Exit::data,
         {.what = "not a usable tokenizer.json", .where = path, .why = "not a JSON object", .fix = kFix});
  return file;
}

bool JsonSection::has(const std::string& key) const {
  return value_->is_object() && value_->contains(key) && !value_->at(key).is_null();
}

JsonSection JsonSection::at(const std::string& key) const {
  if (!value_->is_object()) refuse("is not an object");
  if (!value_->contains(key)) refuse("lacks the key \"" + key + "\"");
  return {value_->at(key), file_, path_.empty() ? key : path_ + "." + key};
}

std::vector<JsonSection> JsonSection::items() const {
  if (!value_->is_array()) refuse("is not an array");
  std::vector<JsonSection> sections;
  for (size_t i = 0; i < value_->size(); ++i)
    sections.emplace_back((*value_)[i], file_, fmt::format("{}[{}]", path_, i));
  return sections;
}

std::vector<std::pair<std::string, JsonSection>> JsonSection::members() const {
  if (!value_->is_object()) refuse("is not an object");
  std::vector<std::pair<std::string, JsonSection>> members;
  for (const auto& [key, value] : value_->items())
    members.emplace_back(key, JsonSection(value, file_, path_.empty() ? key : path_ + "." + key));
  return members;
}

std::string JsonSection::text() const {
  if (!value_->is_string()) refuse("is not a string");
  return value_->get<std::string>();
}

bool JsonSection::flag(const std::string& key, std::optional<bool> otherwise) const {
  if (otherwise && !has(key)) return *otherwise;
  const JsonSection section = at(key);
  if (!section.value().is_boolean()) section.refuse("is neither true nor false");
  return section.value().get<bool>();
}

int64_t JsonSection::integer() const {
  if (!value_->is_number_integer()) refuse("is not an integer");
  if (value_->is_number_unsigned() && value_->get<uint64_t>() > INT64_MAX) refuse("is too large");
  return value_->get<int64_t>();
}

void JsonSection::allow(std::initializer_list<std::string_view> keys) const {
  if (!value_->is_object()) refuse("is not an object");
  for (const auto& [key, unused] : value_->items())
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      at(key).refuse("is a setting that is not supported here");
}

void JsonSection::refuse(const std::string& why) const {
  std::string shown =
      value_->is_structured() ? "" : value_->dump(-1, ' ', true, Json::error_handler_t::replace);
  if (shown.size() > 200) shown = shown.substr(0, 200) + "...";
  fail(
      Exit::data,
      {.what = fmt::format("{} cannot be used", file_.substr(file_.rfind('/') + 1)),
       .where = fmt::format("{}: {}{}{}", file_, path_, shown.empty() ? "" : " ", shown),
       .why = fmt::format("{} {}", path_.empty() ? "the file" : path_, why),
       .fix = "use the files of a byte-level or SentencePiece-style BPE tokenizer as they were published"});
}

}  // namespace temper
