#include "src/agents/sessions/turn_key.h"

#include "src/core/digest/hash.h"

namespace temper {
namespace {

std::string digest_of(const std::string& text) { return digest_hex(text.data(), std::ssize(text)); }
uint64_t number_of(const std::string& digest) { return std::stoull(digest.substr(0, 16), nullptr, 16); }

}  // namespace

std::string request_digest(std::span<const int32_t> prompt, const TurnAsk& ask) {
  Digest digest;
  std::string rest = fmt::format("{} {} {}", prompt.size(), ask.trained, ask.max_new_tokens);
  for (const std::string& stop : ask.stop) rest += fmt::format(" {}:{}", stop.size(), stop);
  digest.update(prompt.data(), std::ssize(prompt) * static_cast<int64_t>(sizeof(int32_t)));
  digest.update(rest.data(), std::ssize(rest));
  return digest.hex();
}

uint64_t turn_seed(uint64_t run_seed, const std::string& request, int32_t repetition) {
  return number_of(digest_of(fmt::format("seed {} {} {}", run_seed, request, repetition)));
}

std::string turn_key(const SessionSetup& setup, const std::string& request, int32_t repetition) {
  return digest_of(
      fmt::format("key {} {} {} {} {}", setup.seed, setup.data_position, setup.sample, request, repetition));
}

std::string call_id_of(const std::string& key, size_t index) {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  uint64_t number = number_of(digest_of(fmt::format("call {} {}", key, index)));
  std::string id;
  for (; id.size() < 9; number /= kDigits.size()) id += kDigits[number % kDigits.size()];
  return id;
}

}  // namespace temper
