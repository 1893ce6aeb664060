#include "src/io/hf/safetensors.h"

#include <algorithm>
#include <limits>

#include "src/core/check.h"
#include "src/core/json.h"
#include "src/io/json_members.h"

namespace temper {
namespace {

constexpr size_t kMaxRank = 16;
constexpr JsonLimits kMemberLimits{.depth = 8, .bytes = kMaxMemberBytes};

[[noreturn]] void refuse(const std::string& path, const std::string& what, const std::string& why) {
  fail(Exit::data, {.what = what,
                    .where = path,
                    .why = why,
                    .fix = "the file is damaged or not a safetensors file; fetch or write it again"});
}
[[noreturn]] void refuse_tensor(const std::string& path, const std::string& tensor, const std::string& why) {
  refuse(path, "tensor " + quote_name(tensor) + " has a bad header entry", why);
}

int64_t checked_product(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t d : shape)
    if (d == 0) return 0;
  for (int64_t d : shape)
    if (__builtin_mul_overflow(n, d, &n)) return -1;
  return n;
}

/// Non-negative integers below 2^63.
std::vector<int64_t> integers(const Json& value, const std::string& path, const std::string& tensor,
                              const char* key) {
  if (!value.is_array() || value.size() > kMaxRank)
    refuse_tensor(path, tensor, fmt::format("\"{}\" must be an array of at most {} integers", key, kMaxRank));
  std::vector<int64_t> numbers;
  for (const Json& v : value) {
    if (!v.is_number_unsigned() ||
        v.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      refuse_tensor(path, tensor, fmt::format("\"{}\" must hold integers from 0 to 2^63 - 1", key));
    numbers.push_back(v.get<int64_t>());
  }
  return numbers;
}

TensorInfo parse_entry(const Json& entry, const std::string& path, const std::string& tensor,
                       int64_t data_begin, int64_t data_bytes) {
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets"))
    refuse_tensor(path, tensor, "an entry has exactly the keys dtype, shape and data_offsets");
  if (!entry["dtype"].is_string()) refuse_tensor(path, tensor, "\"dtype\" must be a string");
  TensorInfo info;
  info.dtype = entry["dtype"].get<std::string>();
  const int bits = dtype_bits(info.dtype);
  if (bits == 0) refuse_tensor(path, tensor, "unknown dtype " + quote_name(info.dtype));
  info.shape = integers(entry["shape"], path, tensor, "shape");
  const std::vector<int64_t> offsets = integers(entry["data_offsets"], path, tensor, "data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    refuse_tensor(path, tensor, "\"data_offsets\" must be [begin, end] with begin <= end");
  if (offsets[1] > data_bytes)
    refuse_tensor(path, tensor,
                  fmt::format("it ends at byte {} of the data, which has {} bytes (truncated file?)",
                              offsets[1], data_bytes));
  int64_t total_bits = checked_product(info.shape);
  if (total_bits < 0 || __builtin_mul_overflow(total_bits, int64_t{bits}, &total_bits))
    refuse_tensor(path, tensor, "the product of shape " + shape_text(info.shape) + " overflows");
  if (total_bits % 8 != 0 || total_bits / 8 != offsets[1] - offsets[0])
    refuse_tensor(path, tensor,
                  fmt::format("shape {} of {} needs {} bits, data_offsets [{}, {}] span {} bytes",
                              shape_text(info.shape), info.dtype, total_bits, offsets[0], offsets[1],
                              offsets[1] - offsets[0]));
  info.begin = data_begin + offsets[0];
  info.end = data_begin + offsets[1];
  return info;
}

std::map<std::string, std::string> parse_metadata(const Json& value, const std::string& path) {
  std::map<std::string, std::string> metadata;
  if (!value.is_object()) refuse(path, "bad __metadata__", "it must be an object of strings");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      refuse(path, "bad __metadata__", "the value of " + quote_name(key) + " is not a string");
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

std::string header_of(const std::vector<TensorToWrite>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  if (!metadata.empty()) header += "\"__metadata__\":" + Json(metadata).dump();
  int64_t at = 0;
  for (const TensorToWrite& t : tensors) {
    const Json entry = {{"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {at, at + t.bytes()}}};
    if (header.size() > 1) header += ',';
    header += Json(t.name).dump();
    header += ':';
    header += entry.dump();
    at += t.bytes();
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (int64_t d : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(d);
  }
  return text + "]";
}

int dtype_bits(const std::string& dtype) {
  static const std::map<std::string, int> kBits = {
      {"BOOL", 8},        {"U8", 8},          {"I8", 8},      {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8},
      {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},        {"F32", 32},    {"I64", 64},    {"U64", 64},    {"F64", 64},
      {"C64", 64},        {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6}};
  const auto it = kBits.find(dtype);
  return it == kBits.end() ? 0 : it->second;
}

int64_t TensorInfo::num_elements() const { return checked_product(shape); }

SafetensorsFile::SafetensorsFile(const std::string& path, const std::string& name) : file_(path) {
  if (file_.size() < 8) refuse(path, "not a safetensors file", fmt::format("it has {} bytes", file_.size()));
  unsigned char raw[8];
  file_.read(raw, 0, 8);
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | raw[i];
  if (length > static_cast<uint64_t>(kMaxHeaderBytes) || length > static_cast<uint64_t>(file_.size() - 8))
    refuse(path, "bad header length",
           fmt::format("it says {} bytes; the file has {}, the limit is {}", length, file_.size(),
                       kMaxHeaderBytes));
  std::string header(length, '\0');
  file_.read(header.data(), 8, static_cast<int64_t>(length));
  if (header.empty() || header[0] != '{') refuse(path, "bad header", "it does not begin with '{'");
  parse_header(header, 8 + static_cast<int64_t>(length));
  check_tiling(8 + static_cast<int64_t>(length));
  for (auto& [tensor, info] : tensors_) info.file = name;
}

void SafetensorsFile::parse_header(std::string_view header, int64_t data_begin) {
  for_each_member(header, file_.path(), [&](const std::string& key, std::string_view text) {
    const Json value = parse_json(text, file_.path() + ": header entry " + quote_name(key), kMemberLimits);
    if (key == "__metadata__") {
      metadata_ = parse_metadata(value, file_.path());
      return;
    }
    tensors_.emplace(key, parse_entry(value, file_.path(), key, data_begin, file_.size() - data_begin));
    if (static_cast<int64_t>(tensors_.size()) > kMaxTensors)
      refuse(file_.path(), "too many tensors", fmt::format("the limit is {} per file", kMaxTensors));
  });
}

void SafetensorsFile::check_tiling(int64_t data_begin) const {
  using Entry = std::pair<const std::string, TensorInfo>;
  std::vector<const Entry*> order;
  for (const Entry& entry : tensors_) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  int64_t at = data_begin;
  for (const Entry* entry : order) {
    if (entry->second.begin != at)
      refuse_tensor(file_.path(), entry->first,
                    fmt::format("it begins at data byte {}, the tensor before it ends at {}: {}",
                                entry->second.begin - data_begin, at - data_begin,
                                entry->second.begin < at ? "they overlap" : "a hole lies between them"));
    at = entry->second.end;
  }
  if (at != file_.size())
    refuse(file_.path(), "bytes after the last tensor",
           fmt::format("the last tensor ends at byte {}, the file has {}", at, file_.size()));
}

int64_t TensorToWrite::num_elements() const { return checked_product(shape); }

int64_t TensorToWrite::bytes() const { return num_elements() * dtype_bits(dtype) / 8; }

void write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string header = header_of(tensors, metadata);
  unsigned char raw[8];
  for (int i = 0; i < 8; ++i) raw[i] = static_cast<unsigned char>(uint64_t{header.size()} >> (8 * i));
  OutputFile file(path, OutputFile::Mode::create_new);
  file.write(raw, 8);
  file.write(header);
  for (const TensorToWrite& t : tensors) {
    const int64_t before = file.written();
    t.write(file);
    CHECK(file.written() - before == t.bytes(), "{} bytes written for {}, not {}", file.written() - before,
          t.name, t.bytes());
  }
  file.close();
}

}  // namespace temper
