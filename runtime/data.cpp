#include "runtime/data.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include <fmt/format.h>

#include "runtime/hash.hpp"

namespace pipewright::runtime {
namespace {

std::uint64_t drawn(std::uint64_t seed, std::uint64_t stream, std::uint64_t a, std::uint64_t b) {
  return mixed(mixed(mixed(seed + 0x632be59bd9b4e019ULL * stream) + a) + b);
}

// Uniform in (0, 1), 53 bits.
double unit(std::uint64_t bits) {
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

// Box and Muller's normal number from two uniform ones.
double normal(std::uint64_t bits) {
  return std::sqrt(-2 * std::log(unit(bits))) * std::cos(2 * std::numbers::pi * unit(mixed(bits)));
}

std::uint64_t checksum(const std::vector<unsigned char>& bytes, std::uint64_t seed) {
  return mixed(seed ^ Checksum().add(std::as_bytes(std::span(bytes))).value());
}

enum RandomStream : std::uint64_t { kClass = 1, kMean, kNoise, kFirst, kMap, kSurprise, kWindow, kWeights };

class None final : public Data {
 public:
  std::string name() const override { return "no data"; }
  void input(std::int64_t, void*) const override {}
  void labels(std::int64_t, std::int64_t*) const override {}
  std::uint64_t contents() const override { return 0; }
};

class Synthetic : public Data {
 public:
  Synthetic(const SampleShape& shape, std::uint64_t seed) : shape_(shape), seed_(seed) {}

  std::string name() const override { return fmt::format("synthetic, seed {}", seed_); }
  std::uint64_t contents() const override { return mixed(seed_); }

  void input(std::int64_t sample, void* to) const override {
    if (shape_.indices) {
      auto* const tokens = static_cast<std::int64_t*>(to);
      std::int64_t token = first(sample);
      for (std::int64_t i = 0; i < shape_.values; ++i, token = after(sample, i, token))
        tokens[i] = token;
      return;
    }
    auto* const values = static_cast<float*>(to);
    const std::int64_t kind = kind_of(sample);
    for (std::int64_t i = 0; i < shape_.values; ++i) {
      // Runs of equal means: what windows see is alike, as in an image.
      const double mean =
          normal(drawn(seed_, kMean, static_cast<std::uint64_t>(kind), static_cast<std::uint64_t>(i / kRun)));
      const double noise =
          normal(drawn(seed_, kNoise, static_cast<std::uint64_t>(sample), static_cast<std::uint64_t>(i)));
      values[i] = static_cast<float>(mean + 0.5 * noise);
    }
  }

  void labels(std::int64_t sample, std::int64_t* to) const override {
    if (!shape_.indices || shape_.label_rows != shape_.values) {
      std::fill_n(to, shape_.label_rows, kind_of(sample));
      return;
    }
    std::int64_t token = first(sample);
    for (std::int64_t i = 0; i < shape_.values; ++i)
      to[i] = std::min((token = after(sample, i, token)), shape_.classes - 1);
  }

 private:
  static constexpr std::int64_t kRun = 14;

  std::int64_t kind_of(std::int64_t sample) const {
    return static_cast<std::int64_t>(drawn(seed_, kClass, static_cast<std::uint64_t>(sample), 0) %
                                     static_cast<std::uint64_t>(std::max<std::int64_t>(1, shape_.classes)));
  }
  std::int64_t below_vocabulary(std::uint64_t bits) const {
    return static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(shape_.vocabulary));
  }
  std::int64_t first(std::int64_t sample) const {
    return below_vocabulary(drawn(seed_, kFirst, static_cast<std::uint64_t>(sample), 0));
  }
  std::int64_t after(std::int64_t sample, std::int64_t position, std::int64_t token) const {
    const std::uint64_t surprise =
        drawn(seed_, kSurprise, static_cast<std::uint64_t>(sample), static_cast<std::uint64_t>(position));
    if (surprise % 8 == 0) return below_vocabulary(surprise >> 3);
    return below_vocabulary(drawn(seed_, kMap, static_cast<std::uint64_t>(token), 0));
  }

  SampleShape shape_;
  std::uint64_t seed_;
};

class Text : public Data {
 public:
  Text(std::vector<unsigned char> text, const SampleShape& shape, std::uint64_t seed, std::string name)
      : text_(std::move(text)), shape_(shape), seed_(seed), name_(std::move(name)) {}

  std::string name() const override { return name_; }
  std::uint64_t contents() const override { return checksum(text_, seed_); }
  void input(std::int64_t sample, void* to) const override { copy(begin(sample), static_cast<std::int64_t*>(to)); }
  void labels(std::int64_t sample, std::int64_t* to) const override { copy(begin(sample) + 1, to); }

 private:
  std::size_t begin(std::int64_t sample) const {
    return drawn(seed_, kWindow, static_cast<std::uint64_t>(sample), 0) %
           (text_.size() - static_cast<std::size_t>(shape_.values));
  }
  void copy(std::size_t from, std::int64_t* to) const {
    for (std::size_t i = 0; i < static_cast<std::size_t>(shape_.values); ++i)
      to[i] = text_[from + i];
  }
  std::vector<unsigned char> text_;
  SampleShape shape_;
  std::uint64_t seed_;
  std::string name_;
};

class Images : public Data {
 public:
  Images(std::vector<unsigned char> images, std::vector<unsigned char> labels, const SampleShape& shape,
         std::uint64_t seed, std::string name)
      : images_(std::move(images)), labels_(std::move(labels)), shape_(shape), seed_(seed), name_(std::move(name)) {
    count_ = static_cast<std::int64_t>(labels_.size()) - kLabelHead;
  }
  static constexpr std::int64_t kImageHead = 16, kLabelHead = 8;

  std::string name() const override { return name_; }
  std::uint64_t contents() const override { return checksum(images_, checksum(labels_, seed_)); }
  void input(std::int64_t sample, void* to) const override {
    const unsigned char* const pixels = images_.data() + kImageHead + drawn_image(sample) * shape_.values;
    for (std::int64_t i = 0; i < shape_.values; ++i)
      static_cast<float*>(to)[i] = static_cast<float>(pixels[i]) / 255.0F;
  }
  void labels(std::int64_t sample, std::int64_t* to) const override {
    std::fill_n(to, shape_.label_rows,
                std::int64_t{labels_[static_cast<std::size_t>(kLabelHead + drawn_image(sample))]});
  }

 private:
  std::int64_t drawn_image(std::int64_t sample) const {
    return static_cast<std::int64_t>(drawn(seed_, kWindow, static_cast<std::uint64_t>(sample), 0) %
                                     static_cast<std::uint64_t>(count_));
  }
  std::vector<unsigned char> images_, labels_;
  SampleShape shape_;
  std::uint64_t seed_;
  std::string name_;
  std::int64_t count_ = 0;
};

std::int64_t big_endian(const std::vector<unsigned char>& bytes, std::size_t at) {
  std::int64_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value = value * 256 + bytes[at + i];
  return value;
}

void check_below(std::span<const std::int64_t> values, std::int64_t end, std::int64_t sample, const char* what,
                 const char* of) {
  for (const std::int64_t value : values)
    if (value < 0 || value >= end)
      throw std::runtime_error(fmt::format(
          "{} {} of sample {} lies outside of the {} {}; the data do not fit the model", what, value, sample, of, end));
}

}  // namespace

std::uint64_t mixed(std::uint64_t counter) {
  std::uint64_t z = counter + 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

SampleShape sample_shape(const std::vector<ChunkCode>& code) {
  SampleShape shape;
  for (const ChunkCode& chunk : code) {
    if (chunk.sample_values > 0)
      shape.values = chunk.sample_values * chunk.part.of, shape.indices = chunk.sample_indices;
    if (chunk.label_rows > 0) shape.label_rows = chunk.label_rows * chunk.part.of, shape.classes = chunk.classes;
    for (const CodeStep& step : chunk.steps)
      if (const auto* table = std::get_if<Embedding>(&step.step->spec))
        shape.vocabulary = shape.vocabulary == 0 ? table->vocabulary : std::min(shape.vocabulary, table->vocabulary);
  }
  return shape;
}

void read_input(const Data& data, const SampleShape& shape, std::int64_t sample, void* to) {
  data.input(sample, to);
  if (shape.indices && shape.vocabulary > 0)
    check_below({static_cast<const std::int64_t*>(to), static_cast<std::size_t>(shape.values)}, shape.vocabulary,
                sample, "token", "vocabulary of");
}

void read_labels(const Data& data, const SampleShape& shape, std::int64_t sample, std::int64_t* to) {
  data.labels(sample, to);
  check_below({to, static_cast<std::size_t>(shape.label_rows)}, shape.classes, sample, "label", "classes, which are");
}

std::unique_ptr<Data> synthetic_data(const SampleShape& shape, std::uint64_t seed) {
  return std::make_unique<Synthetic>(shape, seed);
}

std::unique_ptr<Data> no_data() {
  return std::make_unique<None>();
}

std::unique_ptr<Data> text_data(std::vector<unsigned char> text, const SampleShape& shape, std::uint64_t seed,
                                const std::string& name) {
  if (!shape.indices || shape.label_rows != shape.values)
    throw InputError(name +
                     ": a text needs a model that reads tokens and predicts one per token; use images in IDX, "
                     "or synthetic data");
  if (shape.vocabulary < 256 || shape.classes < 256)
    throw InputError(fmt::format("{}: bytes of a text need a vocabulary of 256, the model has {}", name,
                                 std::min(shape.vocabulary, shape.classes)));
  if (static_cast<std::int64_t>(text.size()) <= shape.values)
    throw InputError(fmt::format("{}: {} bytes are fewer than one window of {} and its last label", name, text.size(),
                                 shape.values));
  return std::make_unique<Text>(std::move(text), shape, seed, name);
}

std::unique_ptr<Data> image_data(std::vector<unsigned char> images, std::vector<unsigned char> labels,
                                 const SampleShape& shape, std::uint64_t seed, const std::string& name) {
  if (shape.indices) throw InputError(name + ": images need a model that reads values, not tokens");
  if (images.size() < 16 || big_endian(images, 0) != 0x803)
    throw InputError(name + ": no IDX file of images (magic number 2051)");
  if (labels.size() < 8 || big_endian(labels, 0) != 0x801)
    throw InputError(name + ": its labels are not an IDX file of labels (magic number 2049)");
  const std::int64_t count = big_endian(images, 4), height = big_endian(images, 8), width = big_endian(images, 12);
  if (height > shape.values || width > shape.values || height * width != shape.values)
    throw InputError(fmt::format("{}: images of {} x {} do not fit the model's input of {} values", name, height, width,
                                 shape.values));
  if (count < 1 || count != big_endian(labels, 4) || static_cast<std::int64_t>(labels.size()) != 8 + count ||
      static_cast<std::int64_t>(images.size()) != 16 + count * height * width)
    throw InputError(fmt::format("{}: {} images of {} x {} and {} labels do not fill their files; one is cut short",
                                 name, count, height, width, big_endian(labels, 4)));
  if (*std::max_element(labels.begin() + 8, labels.end()) >= shape.classes)
    throw InputError(
        fmt::format("{}: a label is {} or more, the model has {} classes", name, shape.classes, shape.classes));
  return std::make_unique<Images>(std::move(images), std::move(labels), shape, seed, name);
}

float initial_value(const ParameterTensor& tensor, std::uint64_t seed, LayerId layer, int parameter, std::int64_t i) {
  const auto bits = [&] {
    return drawn(seed, kWeights, static_cast<std::uint64_t>(layer) * 1024 + static_cast<std::uint64_t>(parameter),
                 static_cast<std::uint64_t>(i));
  };
  switch (tensor.initial) {
    case Initial::Zero: return 0;
    case Initial::One: return 1;
    case Initial::Uniform: return static_cast<float>(tensor.bound * (2 * unit(bits()) - 1));
    case Initial::Normal: return static_cast<float>(tensor.bound * normal(bits()));
  }
  return 0;
}

}  // namespace pipewright::runtime
