#include "src/agents/server/request_head.h"

#include <algorithm>
#include <charconv>
#include <vector>

namespace temper {
namespace {

constexpr size_t kMaxLengthDigits = 18;
constexpr size_t kMaxMethod = 16;
constexpr size_t kMaxKey = 4096;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return lower(c); });
  return out;
}

bool equal_folded(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return lower(c) >= 'a' && lower(c) <= 'z'; }
bool is_printable(char c) { return c > 0x20 && c < 0x7f; }

/// A token of RFC 9110, 5.6.2.
bool is_word(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return is_digit(c) || is_letter(c) || kMarks.find(c) != kMarks.npos;
  });
}

bool is_value(std::string_view text) {
  return std::ranges::none_of(text, [](char c) { return (c >= 0 && c < 0x20 && c != '\t') || c == 0x7f; });
}

/// The head while its lines are looked at; the first fault stays.
class HeadReader {
 public:
  HeadReader(std::string_view version, CheckedHead& checked) : version_(version), checked_(checked) {}

  void read(std::span<const HeaderLine> lines) {
    for (const HeaderLine& line : lines) {
      if (!is_word(line.name)) return fault("the name of a header is no word");
      if (!is_value(line.value)) return fault("the value of a header has control characters");
      read(lower(line.name), trimmed(line.value));
    }
    if (hosts_ > 1 || (hosts_ == 0 && version_ == "HTTP/1.1")) fault("one Host header is needed");
    if (lengths_ > 1) fault("there are two Content-Length headers");
    if (transfers_ > 1) fault("there are two Transfer-Encoding headers");
    if (lengths_ + transfers_ > 1) fault("a Content-Length stands beside a Transfer-Encoding");
    if (transfers_ > 0 && version_ != "HTTP/1.1") fault("HTTP/1.0 has no Transfer-Encoding");
    if (bearers_ > 1 || api_keys_ > 1) fault("there are two keys");
    checked_.head.key = !bearer_.empty() ? bearer_ : api_key_;
  }

  void fault(std::string why, int status = 400) {
    if (checked_.status != 0) return;
    checked_.status = status;
    checked_.fault = std::move(why);
  }

 private:
  void read(const std::string& name, std::string_view value) {
    if (std::ranges::find(kHttpHeaders, name) != kHttpHeaders.end())
      checked_.head.headers.emplace(name, std::string(value));
    if (name == "host") ++hosts_;
    if (name == "content-length") read_length(value);
    if (name == "transfer-encoding") read_transfer(value);
    if (name == "authorization") read_bearer(value);
    if (name == "x-api-key") read_api_key(value);
    if (name == "expect") read_expectation(value);
    if (name == "content-encoding" && !equal_folded(value, "identity"))
      fault("a body that is packed is not taken", 415);
  }

  void read_length(std::string_view value) {
    ++lengths_;
    int64_t length = 0;
    if (value.empty() || value.size() > kMaxLengthDigits || !std::ranges::all_of(value, is_digit))
      return fault("the Content-Length is no number of bytes");
    std::from_chars(value.data(), value.data() + value.size(), length);
    checked_.head.content_length = length;
  }

  void read_transfer(std::string_view value) {
    ++transfers_;
    if (!equal_folded(value, "chunked")) return fault("the only Transfer-Encoding that is taken is chunked");
    checked_.head.content_length = -1;
  }

  void read_bearer(std::string_view value) {
    constexpr std::string_view kScheme = "bearer ";
    ++bearers_;
    if (equal_folded(value.substr(0, kScheme.size()), kScheme))
      bearer_ = key_of(value.substr(kScheme.size()));
  }

  void read_api_key(std::string_view value) {
    ++api_keys_;
    api_key_ = key_of(value);
  }

  std::string key_of(std::string_view value) {
    const std::string_view key = trimmed(value);
    if (key.size() > kMaxKey || !std::ranges::all_of(key, is_printable)) fault("the key is no word");
    return std::string(key);
  }

  void read_expectation(std::string_view value) {
    if (!equal_folded(value, "100-continue")) return fault("what is expected is not known here", 417);
    checked_.expects_continue = version_ == "HTTP/1.1";
  }

  std::string_view version_;
  CheckedHead& checked_;
  int hosts_ = 0, lengths_ = 0, transfers_ = 0, bearers_ = 0, api_keys_ = 0;
  std::string bearer_, api_key_;
};

}  // namespace

CheckedHead check_head(std::string_view method, std::string_view target, std::string_view version,
                       std::span<const HeaderLine> lines) {
  CheckedHead checked;
  HeadReader reader(version, checked);
  if (!is_word(method) || method.size() > kMaxMethod) {
    reader.fault("the method is no word");
  } else if (target.empty() || target[0] != '/' || !std::ranges::all_of(target, is_printable)) {
    reader.fault("the target is no path");
  } else if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    reader.fault("the version is neither HTTP/1.1 nor HTTP/1.0", 505);
  } else {
    checked.head.method = method;
    checked.head.path = target.substr(0, target.find('?'));
    reader.read(lines);
  }
  return checked;
}

bool is_json_type(std::string_view content_type) {
  return equal_folded(trimmed(content_type.substr(0, content_type.find(';'))), "application/json");
}

}  // namespace temper
