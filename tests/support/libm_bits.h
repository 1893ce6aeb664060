#pragma once
// Which functions of this system's libm round otherwise than those of the system where digests were frozen.
// A run takes exp, log, sin, cos, pow, logf, for its KL terms expm1 and for gates of delta nets log1pf from
// libm; glibc may give another last bit from one version to the next.

#include <cmath>
#include <functional>
#include <set>
#include <string>

#include "src/core/digest/hash.h"
#include "src/core/json.h"
#include "tests/support/random.h"

namespace temper {

/// The digest of each function over arguments of the kind that runs give it.
inline Json libm_digests() {
  constexpr int64_t kArguments = 20000;
  Json digests;
  const auto add = [&](const char* name, double low, double high, const std::function<double(double)>& f) {
    std::vector<double> results = uniform_values(kArguments, 77, low, high);
    for (double& x : results) x = f(x);
    digests[name] = digest_hex(results.data(), kArguments * static_cast<int64_t>(sizeof(double)));
  };
  add("exp", -30, 5, [](double x) { return std::exp(x); });
  add("log", 1e-6, 100, [](double x) { return std::log(x); });
  add("logf", 1, 7000, [](double x) { return static_cast<double>(std::log(static_cast<float>(x))); });
  add("sin", 0, 300, [](double x) { return std::sin(x); });
  add("cos", 0, 300, [](double x) { return std::cos(x); });
  add("pow", 0, 100, [](double x) { return std::pow(0.95, std::floor(x)) + std::pow(5e5, x / 100); });
  add("expm1", -3, 3, [](double x) { return std::expm1(x); });
  add("log1pf", 0, 1, [](double x) { return static_cast<double>(std::log1p(static_cast<float>(x))); });
  return digests;
}

/// "exp, log": those whose digests are not the frozen ones, but for functions that are not called.
inline std::string other_libm(const Json& frozen, const std::set<std::string>& uncalled) {
  const Json here = libm_digests();
  std::string names;
  for (const auto& [name, digest] : here.items())
    if (digest != frozen.at(name) && !uncalled.contains(name)) names += (names.empty() ? "" : ", ") + name;
  return names;
}

}  // namespace temper
