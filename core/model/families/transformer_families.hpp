// The transformer families that scenarios name, each a short list of parameters for `Transformer`.
#pragma once

#include "core/model/families/table.hpp"
#include "core/model/families/transformer.hpp"

namespace pipewright {

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

}  // namespace pipewright
