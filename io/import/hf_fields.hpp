// The fields of one config.json. Inside io/import only.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/check.hpp"
#include "io/read/json_input.hpp"
#include "io/text/errors.hpp"
#include "io/text/utf8.hpp"

namespace pipewright::io {

constexpr std::int64_t kLargestHfCount = 100'000'000;  // products of two fit in 64 bits

// The fields of one configuration, each read by name; remembers which were.
class HfFields {
 public:
  HfFields(const Json& object, std::string prefix, const std::map<std::string, Place, std::less<>>& places,
           std::string file)
      : object_(object), prefix_(std::move(prefix)), places_(places), file_(std::move(file)) {}

  // A whole number >= 1. Without a default it must be there; null counts as absent.
  std::int64_t count(std::string_view key, std::optional<std::int64_t> otherwise = {},
                     std::int64_t most = kLargestHfCount) {
    const Json* value = find(key);
    if (!value) return otherwise ? *otherwise : missing(key, fmt::format("a whole number from 1 to {}", most));
    const bool whole = value->is_number_integer() &&
                       (!value->is_number_unsigned() || value->get<std::uint64_t>() <= std::uint64_t{1} << 62);
    if (!whole || value->get<std::int64_t>() < 1 || value->get<std::int64_t>() > most)
      refuse(key, fmt::format("is not a whole number from 1 to {}; correct it", most));
    return value->get<std::int64_t>();
  }
  // As above, and 0 is allowed.
  std::int64_t count_or_0(std::string_view key, std::int64_t otherwise = 0, std::int64_t most = kLargestHfCount) {
    const Json* value = find(key);
    if (value && value->is_number_unsigned() && value->get<std::uint64_t>() == 0) return 0;
    return count(key, otherwise, most);
  }
  bool flag(std::string_view key, bool otherwise) {
    const Json* value = find(key);
    if (!value) return otherwise;
    if (!value->is_boolean()) refuse(key, "is neither true nor false; correct it");
    return value->get<bool>();
  }
  // A share of values that are dropped: whether it is above 0.
  bool drops(std::string_view key, double otherwise) {
    const Json* value = find(key);
    if (!value) return otherwise > 0;
    if (!value->is_number() || value->get<double>() < 0 || value->get<double>() >= 1)
      refuse(key, "is not a probability below 1; correct it");
    return value->get<double>() > 0;
  }
  double share(std::string_view key, double otherwise) {
    const Json* value = find(key);
    if (!value) return otherwise;
    if (!value->is_number() || value->get<double>() < 0 || value->get<double>() > 1)
      refuse(key, "is not a share from 0 to 1; correct it");
    return value->get<double>();
  }
  // A number above 0, where it is stated.
  std::optional<double> positive(std::string_view key) {
    const Json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_number() || !(value->get<double>() > 0)) refuse(key, "is not a number above 0; correct it");
    return value->get<double>();
  }
  // The same of a field inside an object.
  std::optional<double> positive_within(std::string_view key, const Json& object, const char* inner) {
    const auto value = object.find(inner);
    if (value == object.end() || value->is_null()) return std::nullopt;
    if (!value->is_number() || !(value->get<double>() > 0))
      refuse(key, std::string("has a ") + inner + " that is not a number above 0; correct it");
    return value->get<double>();
  }
  // A share from 0 to 1 inside an object.
  double share_within(std::string_view key, const char* inner, double otherwise) {
    const Json* value = find(key);
    if (!value || !value->is_object() || !value->contains(inner) || (*value)[inner].is_null()) return otherwise;
    const Json& share = (*value)[inner];
    if (!share.is_number() || share.get<double>() < 0 || share.get<double>() > 1)
      refuse(key, std::string("has a ") + inner + " that is not a share from 0 to 1; correct it");
    return share.get<double>();
  }
  // A cap on logits: whether there is one. null and 0 mean none.
  bool caps(std::string_view key, bool otherwise) {
    if (!stated(key)) return otherwise;
    const Json* value = find(key);
    if (!value) return false;
    if (!value->is_number() || value->get<double>() < 0)
      refuse(key, "is not a number above 0; correct it, or write null");
    return value->get<double>() > 0;
  }
  std::string word(std::string_view key, std::optional<std::string> otherwise = {}) {
    const Json* value = find(key);
    if (!value) {
      if (otherwise) return *otherwise;
      missing(key, "a text");
    }
    if (!value->is_string()) refuse(key, "is not text; correct it");
    return value->get<std::string>();
  }
  // The fields of an object inside; where it is absent, an object without any.
  HfFields within(std::string_view key) {
    static const Json none = Json::object();
    const Json* value = find(key);
    if (value && !value->is_object()) refuse(key, "is not an object; correct it, or write null");
    return {value ? *value : none, prefix_ + std::string(key) + ".", places_, file_};
  }
  const Json* find(std::string_view key) {
    read_.insert(std::string(key));
    const auto found = object_.find(std::string(key));
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  bool has(std::string_view key) const {
    const auto found = object_.find(std::string(key));
    return found != object_.end() && !found->is_null();
  }
  // Whether the key is there, null or not: some defaults hold for absent keys only.
  bool stated(std::string_view key) const { return object_.contains(std::string(key)); }
  // A key without which the default of its publisher would hold, which is rarely the model at hand.
  void need_stated(std::string_view key, const std::string& what) const {
    if (!stated(key)) missing(key, what);
  }
  void ignore(std::initializer_list<std::string_view> keys) {
    for (const std::string_view key : keys)
      read_.insert(std::string(key));
  }

  Place place(std::string_view key) const {
    const auto found = places_.find(prefix_ + std::string(key));
    return found == places_.end() ? Place{file_, 0, 0} : found->second;
  }
  [[noreturn]] void refuse(std::string_view key, const std::string& message) const {
    const auto found = object_.find(std::string(key));
    const std::string value =
        found == object_.end() ? "" : found->dump(-1, ' ', false, Json::error_handler_t::replace) + " ";
    const std::string shown = value.size() > 80 ? printable(value.substr(0, 76)) + "... " : printable(value);
    throw InputError(place(key), fmt::format("{}{}: {}{}", prefix_, key, shown, message));
  }
  // A field that only makes sense with one value.
  void need_off(std::string_view key, const char* why) {
    if (flag(key, false)) refuse(key, why);
  }

  // Refuses fields that tell of experts, compressed attention or recurrences and that nobody read.
  void check_all_read(const std::string& type) const {
    constexpr std::array<std::string_view, 9> telling = {"expert", "moe",  "lora_rank", "nextn", "mtp",
                                                         "mamba",  "ssm_", "linear_",   "sparse"};
    for (const auto& [key, value] : object_.items()) {
      if (read_.contains(key) || value.is_null() || value == Json(false) || value == Json(0)) continue;
      for (const std::string_view part : telling)
        if (key.find(part) != std::string::npos)
          refuse(printable(key), fmt::format("is not known for model_type {}; without it the model would be another: "
                                             "remove it, or correct model_type",
                                             in_quotes(type)));
    }
  }

 private:
  [[noreturn]] std::int64_t missing(std::string_view key, const std::string& what) const {
    throw InputError(Place{file_, 0, 0}, fmt::format("{}{}: is missing; write {}", prefix_, key, what));
  }

  const Json& object_;
  std::string prefix_;
  const std::map<std::string, Place, std::less<>>& places_;
  std::string file_;
  std::set<std::string> read_;
};

}  // namespace pipewright::io
