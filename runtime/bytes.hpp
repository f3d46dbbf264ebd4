// Values as bytes, for ranks that run the same program on the same kind of processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "core/rooms.hpp"

namespace pipewright::runtime {

using Blob = std::vector<std::byte>;

class BytesOut {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T> BytesOut& put(const T& value) { return put(&value, sizeof value); }
  template <class T>
  requires std::is_trivially_copyable_v<T> BytesOut& put(const std::vector<T>& values) {
    put(static_cast<std::uint64_t>(values.size()));
    return put(values.data(), values.size() * sizeof(T));
  }
  BytesOut& put(const std::string& text) {
    put(static_cast<std::uint64_t>(text.size()));
    return put(text.data(), text.size());
  }
  Blob bytes() const { return bytes_; }

 private:
  BytesOut& put(const void* from, std::size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), begin, begin + bytes);
    return *this;
  }
  Blob bytes_;
};

// Throws std::runtime_error behind the end.
class BytesIn {
 public:
  explicit BytesIn(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  requires std::is_trivially_copyable_v<T> T get() {
    T value;
    std::memcpy(static_cast<void*>(&value), take(sizeof value), sizeof value);
    return value;
  }
  template <class T>
  std::vector<T> list() {
    const std::uint64_t count = counted(sizeof(T));
    std::vector<T> values(count);
    if (count > 0) std::memcpy(static_cast<void*>(values.data()), take(count * sizeof(T)), count * sizeof(T));
    return values;
  }
  std::string text() {
    const std::uint64_t count = counted(1);
    const auto* const begin = reinterpret_cast<const char*>(take(count));
    return {begin, begin + count};
  }
  std::uint64_t counted(std::size_t each) {  // a count of things that are all there
    const auto count = get<std::uint64_t>();
    if (count > bytes_.size() / each) throw std::runtime_error("a message of another rank is cut off");
    return count;
  }

 private:
  const std::byte* take(std::size_t count) {
    if (count > bytes_.size()) throw std::runtime_error("a message of another rank is cut off");
    const std::byte* const at = bytes_.data();
    bytes_ = bytes_.subspan(count);
    return at;
  }
  std::span<const std::byte> bytes_;
};

}  // namespace pipewright::runtime
