#pragma once
// What most files call of our Json is compiled once, in members.cpp: nlohmann's templates are large, and
// hundreds of files would compile them again. `extern template` does not do that for members that are defined
// inside of their class, so they are declared here as specializations, whose names are those of the instances
// there. Therefore members.cpp alone is compiled without the precompiled header (Makefile).

#include <string>

#include "src/core/json/library.h"

/// X(what stands before it, a member of ordered_json or of what it calls): what members.cpp compiles.
#define TEMPER_JSON_MEMBERS(X)                                                                               \
  X(template <>, ordered_json::basic_json(initializer_list_t, bool, value_t))                                \
  X(template <>, ordered_json::basic_json(const ordered_json&))                                              \
  X(template <>, ordered_json::~basic_json())                                                                \
  X(template <>, ordered_json::json_value::json_value(value_t))                                              \
  X(template <>, void ordered_json::json_value::destroy(value_t))                                            \
  X(template <>, ordered_json::string_t ordered_json::dump(int, char, bool, error_handler_t) const)          \
  X(template <>, ordered_json& ordered_json::operator[](object_t::key_type))                                 \
  X(template <>, const ordered_json& ordered_json::operator[](const object_t::key_type&) const)              \
  X(template <>, ordered_json& ordered_json::at(const object_t::key_type&))                                  \
  X(template <>, const ordered_json& ordered_json::at(const object_t::key_type&) const)                      \
  X(template <>, void ordered_json::push_back(ordered_json&&))                                               \
  X(template <>, void ordered_json::push_back(const ordered_json&))                                          \
  X(template <>, bool ordered_json::operator==(const_reference) const noexcept)                              \
  X(template <>, ordered_json::const_reference ordered_json::const_iterator::operator*() const)              \
  X(template <>, ordered_json::reference ordered_json::iterator::operator*() const)                          \
  X(template <>, void ordered_json::update(const_iterator, const_iterator, bool))                            \
  X(template <>, ordered_json& ordered_json::operator[](size_type))                                          \
  X(template <>, const ordered_json& ordered_json::operator[](size_type) const)                              \
  X(template <> template <>, ordered_json& ordered_json::operator[](const char*))                            \
  X(template <> template <>, const ordered_json& ordered_json::operator[](const char*) const)                \
  X(template <>, void detail::from_json<ordered_json>(const ordered_json&, ordered_json::string_t&))         \
  X(template <>, void detail::from_json<ordered_json>(const ordered_json&, ordered_json::boolean_t&))        \
  X(template <>, void detail::get_arithmetic_value(const ordered_json&, double&))                            \
  X(template <>, void detail::get_arithmetic_value(const ordered_json&, int64_t&))                           \
  X(template <> template <>, ordered_json ordered_json::parse(std::string&, parser_callback_t, bool, bool))  \
  X(template <> template <>,                                                                                 \
    ordered_json ordered_json::parse(const std::string&, parser_callback_t, bool, bool))                     \
  X(template <> template <>, ordered_json ordered_json::parse(std::string&&, parser_callback_t, bool, bool)) \
  X(template <> template <>,                                                                                 \
    ordered_json ordered_json::parse(std::string_view&, parser_callback_t, bool, bool))                      \
  X(template <> template <>,                                                                                 \
    ordered_json ordered_json::parse(std::string_view&&, parser_callback_t, bool, bool))                     \
  X(template <>,                                                                                             \
    detail::type_error detail::type_error::create(int, const std::string&, const ordered_json*))             \
  X(template <>, detail::type_error detail::type_error::create(int, const std::string&, ordered_json*))      \
  X(template <>,                                                                                             \
    detail::invalid_iterator detail::invalid_iterator::create(int, const std::string&, const ordered_json*)) \
  X(template <>,                                                                                             \
    detail::invalid_iterator detail::invalid_iterator::create(int, const std::string&, ordered_json*))       \
  X(template <>,                                                                                             \
    detail::out_of_range detail::out_of_range::create(int, const std::string&, const ordered_json*))         \
  X(template <>, detail::out_of_range detail::out_of_range::create(int, const std::string&, ordered_json*))

#ifndef TEMPER_JSON_BODIES
namespace nlohmann {
#define TEMPER_DECLARED(specialization, member) specialization member;
TEMPER_JSON_MEMBERS(TEMPER_DECLARED)
#undef TEMPER_DECLARED
}  // namespace nlohmann
#endif
