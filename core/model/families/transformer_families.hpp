// The transformer families that scenarios name, each a short list of parameters for `Transformer`.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/model/families/table.hpp"
#include "core/model/families/transformer.hpp"

namespace pipewright::core {

extern const Family kTransformerFamily;    // GPipe's Transformer-L
extern const Family kTransformerMtFamily;  // GPipe's T(L, H, A) for translation
extern const Family kGptFamily;
extern const Family kBertFamily;
extern const Family kT5Family;
extern const Family kVitFamily;
extern const Family kDecoderFamily;  // Llama-like, also with experts and latent attention

// The descriptions behind them.
Transformer transformer_of(const FamilyValues& values);
Transformer transformer_mt_of(const FamilyValues& values);
Transformer gpt_of(const FamilyValues& values);
Transformer bert_of(const FamilyValues& values);
Transformer t5_of(const FamilyValues& values);
Transformer vit_of(const FamilyValues& values);
Transformer decoder_of(const FamilyValues& values);

// The family, and the arguments other than its defaults, that describe this very transformer; nothing where no family
// does (a list of blocks without a rule).
struct FamilyForm {
  std::string family;
  std::vector<std::pair<std::string, std::string>> arguments;
};
std::optional<FamilyForm> family_form(const Transformer& transformer);

}  // namespace pipewright::core
