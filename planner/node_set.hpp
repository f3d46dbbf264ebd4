// Sets of nodes of one cell, as bits: what the enumeration of down-sets keeps and looks up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pipewright {

using NodeSet = std::vector<std::uint64_t>;  // one bit per node, 64 to a word

struct NodeSetHash {
  std::size_t operator()(const NodeSet& set) const {
    std::uint64_t hash = 0x9e3779b97f4a7c15;
    for (const std::uint64_t word : set)
      hash = (hash ^ word) * 0xff51afd7ed558ccd, hash ^= hash >> 32;
    return hash;
  }
};

inline NodeSet no_nodes(int of) {
  return NodeSet(static_cast<std::size_t>(of) / 64 + 1);
}
inline bool has(const NodeSet& set, int node) {
  return (set[static_cast<std::size_t>(node) / 64] >> (node % 64) & 1) != 0;
}
inline void insert(NodeSet& set, int node) {
  set[static_cast<std::size_t>(node) / 64] |= std::uint64_t{1} << (node % 64);
}

}  // namespace pipewright
