// What joins the streams of a worker: a row for each use of a kind of communication. It says when an op of the stream begins,
// which compute ops wait for it, and what of another stream it follows. sim/stream_links walks the lists by these rows.
#pragma once

#include <array>
#include <cstdint>

#include "core/plan/schedule.hpp"
#include "sim/stream_links.hpp"

namespace pipewright::sim {

using Kinds = std::uint32_t;  // a bit a kind
constexpr Kinds only(Kind kind) {
  return Kinds{1} << static_cast<unsigned>(kind);
}
constexpr Kinds those_that(bool KindRule::*trait) {
  Kinds all = 0;
  for (int kind = 0; kind < kKinds; ++kind)
    if (rule(static_cast<Kind>(kind)).*trait) all |= only(static_cast<Kind>(kind));
  return all;
}

// What another op has in common with an op of a stream.
enum class Same : std::uint8_t {
  Pass,        // chunk, micro-batch and direction
  MicroBatch,  // chunk and micro-batch
  Round,       // chunk and round of reductions
  Update,      // chunk, and the update that closes the round
  NextUpdate,  // chunk, and the update behind that one
  Table,       // the table that it sums is one of the chunk's
  Number,      // the place in the list
  Worker       // nothing else
};

// The other op: in its list the first, or the last, of these kinds with this in common.
struct Anchor {
  Kinds kinds = 0;  // 0: there is none
  Same same{};
  bool last = false;
  StreamId in = kCompute;
  bool operator==(const Anchor&) const = default;
};
inline constexpr Kinds kCompleting = those_that(&KindRule::gradients), kUpdating = those_that(&KindRule::updates);
inline constexpr Anchor kForward{those_that(&KindRule::forward), Same::MicroBatch},
    kReader{those_that(&KindRule::weights), Same::Pass},
    kStashReader{those_that(&KindRule::rebuilds) | those_that(&KindRule::backward), Same::MicroBatch},
    kGradients{kCompleting, Same::Round, true}, kLastGradients{kCompleting, Same::Worker, true},
    kTableGradients{kCompleting, Same::Table, true}, kUpdate{kUpdating, Same::Update, true},
    kNextUpdate{kUpdating, Same::NextUpdate}, kTableUpdate{kUpdating, Same::Table},
    kFirstUpdate{kUpdating, Same::Worker};
inline constexpr Anchor kOwnFetch{only(Kind::Fetch), Same::Pass, false, kIn},
    kOwnOffload{only(Kind::Offload), Same::MicroBatch, false, kOut},
    kOwnReduction{only(Kind::AllReduce), Same::Number, false, kReductions},
    kTableReductions{only(Kind::AllReduce), Same::Table, true, kReductions},
    kLastReduction{only(Kind::AllReduce), Same::Worker, true, kReductions},
    kLastTable{only(Kind::TableReduce), Same::Worker, true, kTables};

struct StreamEdge {
  Kind kind{};
  std::uint32_t bits = 0;  // for ops that have them in Op::bucket; of several rows that fit, the first
  // With the op so many places ahead of the anchor, at this point of it; from the start where there is none.
  struct Begins {
    Anchor anchor{};
    StreamLinks::From from{};
    std::uint32_t ahead = 0;
    bool given_away = false;  // at its end where it reads the anchor's weights: it gives them away first
  } begins{};
  // The op so many places behind the anchor waits for it, or the next one of some kinds from there on.
  struct Waits {
    Anchor anchor{};
    std::uint32_t behind = 0;
    Kinds next = 0;
    bool under_way = false;  // the anchor is that of the op as many places on as may be under way beside a forward
    bool once = false;       // for the last op only of those that it is to wait for
  };
  std::array<Waits, 2> waits{};
  struct Follows {
    Anchor anchor{};
    bool room = false;  // and, where none may be under way beside a forward, all there that begin before it does
  };
  std::array<Follows, 2> follows{};
};

// Rows of a stream stand together. Triggers and gates of one compute op come in the order of the rows.
//                                                                                          tests/sim/stream_links_test.cpp
inline constexpr StreamEdge kStreamEdges[] = {
    {.kind = Kind::AllReduce,
     .begins = {.anchor = kGradients, .from = StreamLinks::From::Part},
     .waits = {{{.anchor = kUpdate, .once = true}}}},
    // Behind the update of a round, and before the next one.
    {.kind = Kind::AllGather,
     .bits = kBehindUpdate,
     .begins = {.anchor = kUpdate, .from = StreamLinks::From::End},
     .waits = {{{.anchor = kNextUpdate}}}},
    // One behind the other from the start: nothing has to be made room for.
    {.kind = Kind::AllGather, .bits = kBeforeForward, .waits = {{{.anchor = kForward}}}},
    {.kind = Kind::AllGather, .bits = kBesideForward, .waits = {{{.anchor = kForward, .behind = 1}}}},
    // One op ahead of the reader.
    {.kind = Kind::AllGather,
     .begins = {.anchor = kReader, .from = StreamLinks::From::Start, .ahead = 1, .given_away = true},
     .waits = {{{.anchor = kReader}}},
     .follows = {{{.anchor = kOwnFetch}}}},
    // Of every chunk here that shares the table: behind all gradients, before the first update.
    {.kind = Kind::TableReduce,
     .begins = {.anchor = kTableGradients, .from = StreamLinks::From::End},
     .waits = {{{.anchor = kTableUpdate}}},
     .follows = {{{.anchor = kTableReductions}}}},
    // Behind all gradients here and all their sums, before the first update.
    {.kind = Kind::NormReduce,
     .begins = {.anchor = kLastGradients, .from = StreamLinks::From::End},
     .waits = {{{.anchor = kFirstUpdate}}},
     .follows = {{{.anchor = kLastReduction}, {.anchor = kLastTable}}}},
    // Behind its forward. As many as may leave under the next one do so.
    {.kind = Kind::Offload,
     .begins = {.anchor = kForward, .from = StreamLinks::From::End},
     .waits = {{{.anchor = kForward, .behind = 1, .next = kForward.kinds, .under_way = true}}}},
    // When it is reduced. Where the host adds it to what it has, the op behind its backward waits for that.
    {.kind = Kind::Store,
     .bits = 1,
     .waits = {{{.anchor = kGradients, .behind = 1}, {.anchor = kFirstUpdate, .once = true}}},
     .follows = {{{.anchor = kOwnReduction}}}},
    {.kind = Kind::Store,
     .waits = {{{.anchor = kFirstUpdate, .once = true}}},
     .follows = {{{.anchor = kOwnReduction}}}},
    // One op ahead of whoever reads it first.
    {.kind = Kind::Reload,
     .begins = {.anchor = kStashReader, .from = StreamLinks::From::Start, .ahead = 1},
     .waits = {{{.anchor = kStashReader}}},
     .follows = {{{.anchor = kOwnOffload, .room = true}}}},
    // Two ops ahead of the reader: its gather waits for it.
    {.kind = Kind::Fetch, .begins = {.anchor = kReader, .from = StreamLinks::From::Start, .ahead = 2}}};

}  // namespace pipewright::sim
