#include "sim/stream_links.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "sim/stream_edges.hpp"

namespace pipewright::sim {
namespace {

constexpr std::uint32_t kNoOp = std::numeric_limits<std::uint32_t>::max(), kWanted = kNoOp - 1;

constexpr bool is(const Op& op, Kinds kinds) {
  return (only(op.kind) & kinds) != 0;
}

// Finds the anchors of all ops of a list at once, in time that is linear in both lists.
class Anchors {
 public:
  Anchors(const Schedule& schedule, PositionId position)
      : shape_(schedule.shape), rounds_(schedule.rounds()), lane_(schedule.positions[position]) {
    const Seating& seating = rounds_.seating;
    first_pass_.resize(at(seating.chunks())), first_round_.resize(at(seating.chunks()));
    for (int i = 0; i < seating.held(); ++i) {
      const VirtualStageId v = seating.chunk_of(seating.stage_at(position), i);
      first_pass_[at(v)] = std::exchange(passes_, passes_ + static_cast<std::uint32_t>(shape_.micro_batches));
      first_round_[at(v)] = std::exchange(all_rounds_, all_rounds_ + static_cast<std::uint32_t>(rounds_.count(v)) + 1);
    }
  }

  const std::vector<Op>& list(StreamId stream) const {
    return stream == kCompute ? lane_.compute : lane_.communication[stream];
  }

  // For each of `ops`; kNoOp: it has none.
  std::vector<std::uint32_t> of(const std::vector<Op>& ops, const Anchor& anchor) const {
    std::vector<std::uint32_t> found(ops.size(), kNoOp);
    if (anchor.same == Same::Number)
      std::iota(found.begin(), found.end(), std::uint32_t{0});
    else if (anchor.same == Same::Table)
      find_tables(ops, anchor, found);
    else
      find_keys(ops, anchor, found);
    return found;
  }

 private:
  // Over the ops that may be the anchor, until all are found.
  void walk(const Anchor& anchor, const auto& found_all) const {
    const std::vector<Op>& ops = list(anchor.in);
    for (std::size_t n = 0; n < ops.size(); ++n)
      if (const std::size_t i = anchor.last ? ops.size() - 1 - n : n; is(ops[i], anchor.kinds))
        if (found_all(ops[i], static_cast<std::uint32_t>(i))) return;
  }

  // Tables are few, and a chunk may have several.
  void find_tables(const std::vector<Op>& ops, const Anchor& anchor, std::vector<std::uint32_t>& found) const {
    for (std::size_t i = 0; i < ops.size(); ++i)
      walk(anchor, [&](const Op& other, std::uint32_t place) {
        const bool has = has_table(shape_, ops[i].bucket, other.virtual_stage);
        if (has) found[i] = place;
        return has;
      });
  }

  void find_keys(const std::vector<Op>& ops, const Anchor& anchor, std::vector<std::uint32_t>& found) const {
    const bool of_round = anchor.same == Same::Round || anchor.same == Same::Update || anchor.same == Same::NextUpdate;
    std::vector<std::uint32_t> by_key(of_round ? all_rounds_ : 2 * passes_, kNoOp);
    std::size_t wanted = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      found[i] = key(anchor.same, ops[i]);
      wanted += std::exchange(by_key[found[i]], kWanted) == kWanted ? 0 : 1;
    }
    walk(anchor, [&](const Op& other, std::uint32_t place) {
      std::uint32_t& here = by_key[key(anchor.same, other)];
      if (here == kWanted) here = place, --wanted;
      return wanted == 0;
    });
    for (std::uint32_t& one : found)
      one = by_key[one] == kWanted ? kNoOp : by_key[one];
  }

  // The same number for ops that have this in common. Micro-batches of updates, and of what is exchanged for them, are rounds.
  std::uint32_t key(Same same, const Op& op) const {
    const bool computes = rule(op.kind).stream == kCompute;
    const std::uint32_t v = op.virtual_stage, m = op.micro_batch;
    if (same == Same::Worker) return 0;
    if (same == Same::MicroBatch) return first_pass_[v] + m;
    if (same == Same::Pass)
      return 2 * (first_pass_[v] + m) + static_cast<std::uint32_t>(computes ? pass_of(op.kind) : pass_of_gather(op));
    if (same == Same::Round) return first_round_[v] + (computes ? static_cast<std::uint32_t>(rounds_.of(v, m)) : m);
    const auto update = static_cast<std::uint32_t>(rounds_.update_of(static_cast<int>(m)));
    return first_round_[v] + update + (same == Same::NextUpdate && !computes ? 1 : 0);
  }

  const ScheduleShape& shape_;
  const Rounds rounds_;
  const Lane& lane_;
  std::vector<std::uint32_t> first_pass_, first_round_;  // by chunk: its first number
  std::uint32_t passes_ = 0, all_rounds_ = 0;            // behind the last round of a chunk one that never comes
};

// Walks the lists of a worker by the rows of kStreamEdges, and knows no kind itself.
class Linker {
 public:
  Linker(const Schedule& schedule, PositionId position)
      : anchors_(schedule, position),
        lane_(schedule.positions[position]),
        may_leave_(static_cast<std::uint32_t>(schedule.shape.leaving_under_forward())) {}

  StreamLinks run() {
    for (auto row = std::begin(kStreamEdges); row != std::end(kStreamEdges);) {
      const StreamId stream = rule(row->kind).stream;
      const auto first = row;
      while (row != std::end(kStreamEdges) && rule(row->kind).stream == stream)
        ++row;
      if (!lane_.communication[stream].empty()) link(stream, {first, row});
    }
    return std::move(links_);
  }

 private:
  struct Run {  // ops of a stream, all by one row
    StreamId stream;
    std::uint32_t from, until;
  };

  void link(StreamId stream, std::span<const StreamEdge> rows) {
    const std::vector<Op>& ops = lane_.communication[stream];
    const std::size_t triggers = links_.triggers.size(), gates = links_.gates.size();
    links_.triggers.reserve(triggers + ops.size());
    links_.waits[stream].resize(ops.size()), begun_[stream].resize(ops.size(), kNoOp);
    found_.clear();
    const auto row_of = [rows](const Op& op) {
      return std::ranges::find_if(
          rows, [&op](const StreamEdge& row) { return row.kind == op.kind && (op.bucket & row.bits) == row.bits; });
    };
    for (Run run{stream, 0, 0}; run.from < ops.size(); run.from = run.until) {
      const auto row = row_of(ops[run.from]);
      PP_CHECK(row != rows.end());
      while (run.until < ops.size() && row_of(ops[run.until]) == row)
        ++run.until;
      begin(run, row->begins);
      for (const StreamEdge::Waits& waits : row->waits)
        wait(run, waits);
      for (std::size_t which = 0; which < row->follows.size(); ++which)
        follow(run, row->follows[which], which);
    }
    for (std::uint32_t op = 0; op < last_for_.size(); ++op)
      if (last_for_[op] > 0) gate(stream, op, last_for_[op]);
    last_for_.clear();
    merge(links_.triggers, triggers), merge(links_.gates, gates);
  }

  // Those of a stream, from this one on, stand behind those of others at the same op.
  template <class Link>
  static void merge(std::vector<Link>& all, std::size_t from) {
    const auto by_op = [](const Link& a, const Link& b) { return a.op < b.op; };
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(from);
    if (!std::is_sorted(middle, all.end(), by_op)) std::stable_sort(middle, all.end(), by_op);
    std::inplace_merge(all.begin(), middle, all.end(), by_op);
  }

  // By op of the stream, looked up once.
  const std::vector<std::uint32_t>& find(StreamId stream, const Anchor& anchor) {
    for (const Found& one : found_)
      if (one.anchor == anchor) return one.ops;
    return found_.emplace_back(anchor, anchors_.of(lane_.communication[stream], anchor)).ops;
  }

  void begin(const Run& run, const StreamEdge::Begins& begins) {
    if (begins.anchor.kinds == 0) return;
    const std::vector<std::uint32_t>& found = find(run.stream, begins.anchor);
    for (std::uint32_t i = run.from; i < run.until; ++i) {
      if (found[i] == kNoOp || found[i] < begins.ahead) continue;
      const std::uint32_t op = found[i] - begins.ahead;
      const Op &own = lane_.compute[op], &anchor = lane_.compute[found[i]];
      const bool behind =
          begins.given_away && is(own, begins.anchor.kinds) && own.virtual_stage == anchor.virtual_stage;
      links_.waits[run.stream][i] = 1, begun_[run.stream][i] = op;
      links_.triggers.push_back(
          {op, i, static_cast<std::uint8_t>(run.stream), behind ? StreamLinks::From::End : begins.from});
    }
  }

  void wait(const Run& run, const StreamEdge::Waits& waits) {
    if (waits.anchor.kinds == 0) return;
    const std::vector<std::uint32_t>& found = find(run.stream, waits.anchor);
    const std::size_t further = waits.under_way ? may_leave_ : 0, end = lane_.compute.size();
    if (waits.once) last_for_.resize(end);
    for (std::uint32_t i = run.from; i < run.until && i + further < found.size(); ++i) {
      if (found[i + further] == kNoOp) continue;
      std::uint32_t op = found[i + further] + waits.behind;
      while (waits.next != 0 && op < end && !is(lane_.compute[op], waits.next))
        ++op;
      if (op >= end) continue;
      waits.once ? static_cast<void>(last_for_[op] = i + 1) : gate(run.stream, op, i + 1);
    }
  }

  void gate(StreamId stream, std::uint32_t op, std::uint32_t count) {
    links_.gates.push_back({op, count, static_cast<std::uint8_t>(stream)});
  }

  // Where there is none, as far as the op before.
  void follow(const Run& run, const StreamEdge::Follows& follows, std::size_t which) {
    const StreamId other = follows.anchor.in;
    const std::vector<Op>& others = anchors_.list(other);
    if (follows.anchor.kinds == 0 || others.empty() || !is(others.front(), follows.anchor.kinds)) return;
    const std::vector<std::uint32_t>&found = find(run.stream, follows.anchor), &begun = begun_[other];
    auto& after = links_.after[run.stream];
    after.resize(found.size());
    for (std::uint32_t i = run.from, count = 0; i < run.until; ++i) {
      if (found[i] != kNoOp) count = found[i] + 1;
      const auto before =
          follows.room && may_leave_ == 0 ? std::ranges::lower_bound(begun, begun_[run.stream][i]) - begun.begin() : 0;
      after[i][which] = {std::max(count, static_cast<std::uint32_t>(before)), static_cast<std::uint8_t>(other)};
    }
  }

  struct Found {
    Anchor anchor;
    std::vector<std::uint32_t> ops;
  };

  const Anchors anchors_;
  const Lane& lane_;
  const std::uint32_t may_leave_;               // offloads, under a forward
  std::vector<Found> found_;                    // of one stream
  ByStream<std::vector<std::uint32_t>> begun_;  // by op of a stream: with which compute op
  std::vector<std::uint32_t> last_for_;         // by compute op: how many of one stream it waits for, once
  StreamLinks links_;
};

}  // namespace

StreamLinks stream_links(const Schedule& schedule, PositionId position) {
  const auto none = [](const std::vector<Op>& ops) { return ops.empty(); };
  if (std::ranges::all_of(schedule.positions[position].communication, none)) return {};
  return Linker(schedule, position).run();
}

}  // namespace pipewright::sim
