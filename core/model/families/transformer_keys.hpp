// What families of transformers share: parameters, and their keys both ways, from a scenario to a Transformer and back.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/model/families/transformer_families.hpp"

namespace pipewright::core {

inline constexpr std::int64_t kLongest = 100'000'000;  // tokens, words: beyond any in use

// ---- parameters that several families share -------------------------------------------------------------------------

inline constexpr FamilyParameter kLayers{"layers", "blocks", 1, 100'000};
constexpr FamilyParameter kSequence(std::int64_t otherwise) {
  return {"sequence_length", "tokens per sample", 1, kLongest, otherwise};
}
constexpr FamilyParameter kVocabulary(std::int64_t otherwise) {
  return {"vocabulary", "words (or word pieces) of the embedding's table", 2, kLongest, otherwise};
}
constexpr FamilyParameter kHidden(std::optional<std::int64_t> otherwise = {}) {
  return {"hidden", "features of a token", 1, 1'000'000, otherwise};
}
constexpr FamilyParameter kHeads(std::optional<std::int64_t> otherwise = {}) {
  return {"heads", "attention heads", 1, 100'000, otherwise};
}
inline constexpr FamilyParameter kHeadSize{"head_size", "features of a head; default: hidden / heads", 1, 1'000'000, 0};
inline constexpr FamilyParameter kFeedForward{"feed_forward", "features between the two products; default: 4 hidden", 1,
                                              100'000'000, 0};
inline constexpr FamilyParameter kMaterialised{
    .name = "attention",
    .meaning = "materialised: scores are stored; flash: a fused kernel, masked pairs are not computed",
    .choices = "materialised | flash"};
inline constexpr FamilyParameter kFlash{
    .name = "attention",
    .meaning = "flash: a fused kernel, masked pairs are not computed; materialised: scores are stored",
    .choices = "flash | materialised"};
inline constexpr FamilyParameter kDropout{.name = "dropout",
                                          .meaning = "of embeddings, attention probabilities and both parts of a block",
                                          .choices = "yes | no"};
inline constexpr FamilyParameter kNoDropout{
    .name = "dropout",
    .meaning = "of embeddings, attention probabilities and both parts of a block",
    .choices = "no | yes"};
inline constexpr FamilyParameter kTied{
    .name = "tied", .meaning = "the head uses the embedding's table", .choices = "yes | no"};
inline constexpr FamilyParameter kUntied{
    .name = "tied", .meaning = "the head uses the embedding's table", .choices = "no | yes"};

// ---- keys, both ways ------------------------------------------------------------------------------------------------

// Which key is which member of a Transformer stands once, in the functions `x_keys` below: `Reading` fills the members,
// `Form` tells the keys whose members differ from `otherwise`, or from the first of the words.
template <class E>
using Words = std::initializer_list<std::pair<std::string_view, E>>;
inline const Words<bool> kStoredOrFused = {{"materialised", false}, {"flash", true}};
inline const Words<bool> kFusedOrStored = {{"flash", true}, {"materialised", false}};

class Reading {
 public:
  explicit Reading(const FamilyValues& values) : values_(values) {}
  void number(const char* name, std::int64_t& member, std::int64_t otherwise = 0) const {
    member = values_[name] > 0 ? values_[name] : otherwise;
  }
  void yes(const char* name, bool& member, bool = false) const { member = values_.is(name, "yes"); }
  template <class E>
  void word(const char* name, E& member, Words<E> words) const {
    for (const auto& [word, value] : words)
      if (values_.is(name, word)) member = value;
  }

 private:
  const FamilyValues& values_;
};

class Form {
 public:
  explicit Form(const Family& family) { form_.family = family.name; }
  void number(const char* name, std::int64_t member, std::int64_t otherwise = 0) {
    if (member != otherwise) form_.arguments.emplace_back(name, std::to_string(member));
  }
  void yes(const char* name, bool member, bool otherwise = false) {
    if (member != otherwise) form_.arguments.emplace_back(name, member ? "yes" : "no");
  }
  template <class E>
  void word(const char* name, const E& member, Words<E> words) {
    for (const auto& [word, value] : words)
      if (value == member && word != words.begin()->first) form_.arguments.emplace_back(name, word);
  }
  void text(const char* name, const std::string& member) {
    if (!member.empty()) form_.arguments.emplace_back(name, member);
  }
  FamilyForm done() { return std::move(form_); }

 private:
  FamilyForm form_;
};

void common_keys(auto&& keys, auto& t, Words<bool> attention, bool dropout) {
  keys.number("layers", t.layers);
  keys.number("hidden", t.hidden);
  keys.number("heads", t.heads);
  keys.word("attention", t.flash, attention);
  keys.yes("dropout", t.dropout, dropout);
}

inline Transformer common(const FamilyValues& values, std::string name) {
  Transformer t;
  t.name = std::move(name);
  common_keys(Reading(values), t, kStoredOrFused, true);
  t.key_heads = t.heads;
  t.embedding_dropout = t.attention_dropout = t.dropout;
  return t;
}

inline std::int64_t head_size(const FamilyValues& values, std::int64_t given) {
  if (given > 0) return given;
  const std::int64_t hidden = values["hidden"], heads = values["heads"];
  if (hidden % heads != 0)
    values.refuse("heads", "does not divide hidden " + std::to_string(hidden) + "; use a divisor, or give head_size");
  return hidden / heads;
}

template <Transformer (*of)(const FamilyValues&)>
Model built(const FamilyValues& values) {
  return build(of(values));
}

// The keys of a decoder, but for those of all families.
void decoder_form(Form& form, const Transformer& t);

}  // namespace pipewright::core
