#pragma once
// Expects an Error with a given exit code whose text names given words.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/core/check.h"

namespace temper {

template <class F>
void expect_error(Exit code, const std::vector<std::string>& words, const std::string& label, F&& f) {
  try {
    f();
    ADD_FAILURE() << label << ": accepted";
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << label << ": " << e.what();
    for (const std::string& word : words)
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos)
          << label << ": no \"" << word << "\" in: " << e.what();
    EXPECT_FALSE(e.problem().where.empty()) << label;
    EXPECT_FALSE(e.problem().why.empty()) << label;
  } catch (const std::exception& e) {
    ADD_FAILURE() << label << ": another exception: " << e.what();
  }
}

}  // namespace temper
