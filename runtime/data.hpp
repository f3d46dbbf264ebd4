// The samples that a run is trained on: which sample a micro-batch holds depends on its number alone, so every cut,
// schedule and number of workers sees the same data in the same order.
//
//     synthetic   token numbers follow a fixed random map of the vocabulary, with one token in eight drawn at random,
//                 and the label of a token is the one that follows; values are the mean of their class, alike in runs
//                 of 14, plus noise. A network can learn both.
//     file        bytes of a text: windows of tokens, the label is the next byte; or images with labels in IDX
//
// All numbers come from a counter (SplitMix64 [Steele14] of seed, sample and position), never from a shared state.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/chunk_code.hpp"

namespace pipewright::runtime {

// SplitMix64: the finaliser of a counter, uniform over 64 bits.
std::uint64_t mixed(std::uint64_t counter);

// What samples look like, as the model's first and last layer say.
struct SampleShape {
  std::int64_t values = 0;      // of the input
  bool indices = false;         // token numbers, else values
  std::int64_t vocabulary = 0;  // token numbers lie below it
  std::int64_t label_rows = 0, classes = 0;
};
SampleShape sample_shape(const std::vector<ChunkCode>& code);

class Data {
 public:
  virtual ~Data() = default;
  virtual std::string name() const = 0;  // "synthetic, seed 1"
  // Sample `sample` of the run, counted over all steps: shape.values of int64 or float; label_rows of int64.
  virtual void input(std::int64_t sample, void* to) const = 0;
  virtual void labels(std::int64_t sample, std::int64_t* to) const = 0;
  virtual std::uint64_t contents() const = 0;  // a hash of all that samples are drawn from
};

// A sample as it is loaded: the same, and every token and label is looked at, since a device cannot. Throws
// std::runtime_error "token 300 of sample 17 lies outside of the vocabulary of 256".
//                                                              tests/runtime/data_test.cpp
void read_input(const Data& data, const SampleShape& shape, std::int64_t sample, void* to);
void read_labels(const Data& data, const SampleShape& shape, std::int64_t sample, std::int64_t* to);

std::unique_ptr<Data> synthetic_data(const SampleShape& shape, std::uint64_t seed);
// Of a run that reads no samples.
std::unique_ptr<Data> no_data();
// Tokens from the bytes of a text; windows begin at positions drawn by the seed. Throws InputError when the text is
// shorter than a window, or the vocabulary smaller than 256.
std::unique_ptr<Data> text_data(std::vector<unsigned char> text, const SampleShape& shape, std::uint64_t seed,
                                const std::string& name);
// Images and labels in the IDX format [LeCun98]: unsigned bytes, scaled to 0 ... 1. Throws InputError for a broken file
// or another size.
std::unique_ptr<Data> image_data(std::vector<unsigned char> images, std::vector<unsigned char> labels,
                                 const SampleShape& shape, std::uint64_t seed, const std::string& name);

// The initial value of element i of parameter tensor `parameter` (its number within the layer) of a layer.
float initial_value(const ParameterTensor& tensor, std::uint64_t seed, LayerId layer, int parameter, std::int64_t i);

}  // namespace pipewright::runtime
