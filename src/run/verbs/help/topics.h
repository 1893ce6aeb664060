#pragma once
// Pages of `temper help TOPIC` that are written by hand: each is a text of topics/, which the program
// contains.

#include <span>
#include <string_view>

namespace temper {

struct TopicPage {
  std::string_view name;
  std::string_view text;  // its first line is "NAME: SUMMARY"

  std::string_view summary() const { return text.substr(name.size() + 2, text.find('\n') - name.size() - 2); }
};

/// In the order in which a newcomer wants them.
std::span<const TopicPage> topic_pages();

/// The text of a page; empty where there is none of this name.
std::string_view topic_text(std::string_view name);

}  // namespace temper
