// A JSON document and its JSON Schema (draft-07), from one statement of its members:
//
//   void write(JsonFields& json, const Fleet& fleet) {
//     json.field("name", fleet.name).maybe("price", fleet.price, [](double price) { return price / 100; });
//     json.list("ships", fleet.ships, [&](const Ship& ship) { json.field("length_m", ship.length); });
//   }
//   constinit const JsonDocument kFleet{"pipewright.fleet/1", [](JsonFields& json) { write(json, {}); }};
//   kFleet.text([&](JsonFields& json) { write(json, fleet); })    kFleet.schema()
//
// The schema has the kinds of the values: of a bool, a whole number, an enumeration with names. For it every body that
// returns nothing runs once, with an empty value and whatever its condition says; a value that would need what an empty
// one lacks is given as a function, which is then not called. Objects are closed: a key that is not stated is refused,
// and one that is must be there, unless it is stated in `when`.
// tests/docs/schema_test.py holds the documents that the program writes against their schemas.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/folds.hpp"
#include "io/text/names.hpp"
#include "io/writers/json_text.hpp"

namespace pipewright::io {

// Of an element of a list: its members are those of one kind, or of another.
struct JsonEither {
  bool first;
  std::function<void()> one, other;
};

class JsonFields {
 public:
  // A value, or a function that returns it: a number, a quantity, a text, a flag, an enumeration (io/text/names.hpp), or a
  // list, a map (of pairs; keys are data) or an optional (null) of them.
  template <class T>
  JsonFields& field(std::string_view name, const T& value) {
    key(name);
    if constexpr (std::invocable<T>)
      returned<std::invoke_result_t<T>>(value);
    else
      put(schema_ ? nullptr : &value);
    return *this;
  }
  // A text that is one of these.
  JsonFields& word(std::string_view name, std::string_view text, const std::vector<std::string_view>& all) {
    key(name);
    one_of(text, all);
    return *this;
  }
  JsonFields& maybe_word(std::string_view name, std::optional<std::string_view> text,
                         const std::vector<std::string_view>& all) {
    key(name);
    open_maybe();
    if (schema_ || text) one_of(text.value_or(""), all);
    close_maybe(text.has_value());
    return *this;
  }
  template <class Body>
  JsonFields& object(std::string_view name, const Body& members) {
    key(name);
    open_object();
    members();
    close_object();
    return *this;
  }
  // `each`: takes an element; writes members of an object, or returns a value.
  template <class Range, class Body>
  JsonFields& list(std::string_view name, const Range& range, const Body& each) {
    key(name);
    open_list();
    if (schema_)
      element<std::ranges::range_value_t<Range>>(nullptr, each);
    else
      for (const auto& one : range)
        element(&one, each);
    close();
    return *this;
  }
  // Likewise of what there may be; null: nothing.
  template <class T, class Body>
  JsonFields& maybe(std::string_view name, const T* value, const Body& of) {
    key(name);
    open_maybe();
    if (schema_ || value != nullptr) element(value, of);
    close_maybe(value != nullptr);
    return *this;
  }
  template <class T, class Body>
  JsonFields& maybe(std::string_view name, const std::optional<T>& value, const Body& of) {
    return maybe(name, value ? &*value : nullptr, of);
  }
  // Members that are there only then.
  template <class Body>
  JsonFields& when(bool then, const Body& members) {
    const bool outer = schema_ && std::exchange(objects_.back().optional, true);
    if (schema_ || then) members();
    if (schema_) objects_.back().optional = outer;
    return *this;
  }
  template <class T>
  JsonFields& when(bool then, std::string_view name, const T& value) {
    return when(then, [&] { field(name, value); });
  }
  template <class T>  // only where it is stated
  JsonFields& given(std::string_view name, const std::optional<Placed<T>>& stated) {
    return when(stated.has_value(), name, stated.value_or(Placed<T>{}).value);
  }
  // An object about which the schema says nothing.
  JsonFields& anything(std::string_view name, const std::function<void(JsonText&)>& members);

 private:
  friend struct JsonDocument;
  explicit JsonFields(bool schema) : schema_(schema) {}

  template <class T>
  static constexpr bool kText = std::convertible_to<T, std::string_view>;
  template <class T>
  static constexpr bool kMap = requires {
    typename std::ranges::range_value_t<T>::second_type;
  };

  // A value; of null: its schema.
  template <class T>
  void put(const T* value) {
    if constexpr (Enumeration<T>) {
      if (value != nullptr) return text_.value(name(*value)), void();
      auto all = mapped<std::string_view>(kNames<T>, [](const auto& each) { return each.first; });
      one_of("", all);
    } else if constexpr (kText<T>) {
      value ? (void)text_.value(std::string_view(*value)) : type("string");
    } else if constexpr (kMap<T>) {
      open_map();
      if (value == nullptr) put<typename std::ranges::range_value_t<T>::second_type>(nullptr);
      for (const auto& [named, one] : value ? *value : T{})
        text_.key(named), put(&one);
      close();
    } else if constexpr (std::ranges::range<T>) {
      open_list();
      if (value == nullptr) put<std::ranges::range_value_t<T>>(nullptr);
      for (const auto& one : value ? *value : T{})
        put(&one);
      close();
    } else if constexpr (requires { value->has_value(); }) {
      open_maybe();
      if (value == nullptr || *value) put<typename T::value_type>(value ? &**value : nullptr);
      close_maybe(value == nullptr || *value);
    } else if constexpr (std::same_as<T, bool>) {
      value ? (void)text_.value(*value) : type("boolean");
    } else if constexpr (std::same_as<T, Time> || std::floating_point<T>) {
      value ? (void)text_.value(*value) : type("number");
    } else if constexpr (std::convertible_to<T, std::int64_t>) {  // also an id
      value ? (void)text_.value(static_cast<std::int64_t>(*value)) : type("integer");
    } else {
      put<typename T::rep>(value ? &value->value : nullptr);
    }
  }

  template <class Result>
  void returned(const auto& function) {
    if (schema_) return put<std::decay_t<Result>>(nullptr);
    const auto& value = function();
    put(&value);
  }

  template <class T, class Body>
  void element(const T* value, const Body& body) {
    using Result = std::invoke_result_t<Body, const T&>;
    if constexpr (std::same_as<Result, JsonEither>) {
      alternatives(schema_ ? body(T{}) : body(*value));
    } else if constexpr (!std::is_void_v<Result>) {
      returned<Result>([&] { return body(*value); });
    } else {
      open_object();
      schema_ ? body(T{}) : body(*value);
      close_object();
    }
  }

  void key(std::string_view name);
  void one_of(std::string_view text, const std::vector<std::string_view>& all);
  void type(std::string_view name);
  void open_object();
  void close_object();
  void alternatives(const JsonEither& either);
  void open_members();  // a schema's "properties"; close_members adds which of them must be there
  void close_members();
  void open_list();
  void open_map();
  void close();  // either
  void open_maybe();
  void close_maybe(bool there);

  struct Object {
    std::vector<std::string> required;
    bool optional = false;  // within `when`
  };

  JsonText text_;
  bool schema_;
  std::vector<Object> objects_;  // of a schema: those that are open
};

// By what its key "schema" says.
struct JsonDocument {
  std::string_view name;
  // The members of an empty one; of a document of two forms those of the other, too.
  void (*empty)(JsonFields&), (*other)(JsonFields&) = nullptr;
  bool tool = true;  // with the version of the program

  std::string text(const std::function<void(JsonFields&)>& members) const;
  std::string schema() const;

 private:
  void begin(JsonFields& json) const;
};

inline std::optional<std::string> unless_empty(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

// A figure of both.
template <class T>
void write_compared(JsonFields& json, std::string_view name, const T& predicted, const T& measured) {
  json.object(name, [&] { json.field("predicted", predicted).field("measured", measured); });
}

}  // namespace pipewright::io
