// Names for positions in the lists that everything else is stored in. All are 0-based.
//
// Each kind is a type: it is an int that comes from ints and becomes one again by itself, as results of arithmetic do, but
// never from another kind. Swapped arguments, a stage as the index of a table by chunk, a position compared to a worker:
// none of them compiles.                                                              tests/core/ids_test.cpp
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/rooms.hpp"

namespace pipewright::core {

template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr Id(int number) : number_(number) {}
  template <std::integral Number>  // a wider one has to be cast, as to int
  explicit constexpr Id(Number number) : number_(static_cast<int>(number)) {}
  template <class Other>
  Id(Id<Other>) = delete;

  constexpr operator int() const { return number_; }
  constexpr Id& operator++() { return ++number_, *this; }
  constexpr Id& operator--() { return --number_, *this; }
  constexpr Id operator++(int) { return number_++; }
  constexpr Id operator--(int) { return number_--; }
  constexpr Id& operator+=(int steps) { return number_ += steps, *this; }
  constexpr Id& operator-=(int steps) { return number_ -= steps, *this; }
  friend constexpr int format_as(Id id) { return id.number_; }  // fmt from 10 on; before, it takes what becomes an int

 private:
  int number_ = 0;
};

template <class A, class B>
requires(!std::same_as<A, B>) bool operator==(Id<A>, Id<B>) = delete;
template <class A, class B>
requires(!std::same_as<A, B>) bool operator<=>(Id<A>, Id<B>) = delete;

using LayerId = Id<struct LayerTag>;            // position in Model::layers, which is the execution order
using StageId = Id<struct StageTag>;            // stage k: consecutive layers on one device
using VirtualStageId = Id<struct ChunkTag>;     // chunk: stage k holds k, k + K, k + 2K, ... of an interleaved schedule
using MicroBatchId = Id<struct MicroBatchTag>;  // micro-batch m within one copy of the pipeline
using CopyId = Id<struct CopyTag>;              // copy d of the whole pipeline (data parallelism)
using PositionId =
    Id<struct PositionTag>;             // worker inside one copy: the replicas of stage 0 first, then of stage 1, ...
using WorkerId = Id<struct WorkerTag>;  // copy * positions + position
using DeviceId = Id<struct DeviceTag>;  // device of the cluster: node * devices per node + place in the node

// The same number as another kind: where one is the other, which whoever writes this knows.
template <class To, class From>
constexpr To as(Id<From> id) {
  return To{int{id}};
}

// As an index.
constexpr std::size_t at(std::int64_t number) {
  return static_cast<std::size_t>(number);
}
template <class Enumeration>
requires std::is_enum_v<Enumeration>
constexpr std::size_t at(Enumeration value) {
  return static_cast<std::size_t>(value);
}

// A vector with one element for each id of a kind, which alone is its index.
template <class Key, class T>
class Indexed : public std::vector<T> {
 public:
  using std::vector<T>::vector;
  Indexed(std::vector<T> values) : std::vector<T>(std::move(values)) {}

  decltype(auto) operator[](Key key) { return std::vector<T>::operator[](at(key)); }
  decltype(auto) operator[](Key key) const { return std::vector<T>::operator[](at(key)); }
};

}  // namespace pipewright::core

template <class Tag>
struct std::numeric_limits<pipewright::core::Id<Tag>> : std::numeric_limits<int> {};
