#include "core/plan/given_schedule.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace pipewright::core {
namespace {

// As the file calls it.
std::string label_in_file(const GivenSchedule& given, Op op) {
  op.virtual_stage = static_cast<std::uint16_t>(given.seating().number_in_file(op.virtual_stage, op.micro_batch));
  return label(op);
}

// One op with its place in the lists.
struct Entry {
  Op op;
  std::uint32_t worker = 0, index = 0;
};

bool before(const Entry& a, const Entry& b) {
  const auto key = [](const Entry& e) {
    return std::tuple(e.op.virtual_stage, e.op.micro_batch, e.op.kind, e.worker, e.index);
  };
  return key(a) < key(b);
}

class Settled {
 public:
  explicit Settled(GivenSchedule& given) : given_(given) {
    for (std::size_t worker = 0; worker < given.compute.size(); ++worker)
      for (std::size_t i = 0; i < given.compute[worker].size(); ++i)
        entries_.push_back(
            {given.compute[worker][i], static_cast<std::uint32_t>(worker), static_cast<std::uint32_t>(i)});
    std::ranges::sort(entries_, before);
  }

  void all() {
    if (entries_.empty()) throw InputError(Place{given_.file, 0, 0}, "holds no forward and no backward; " + kForm);
    owners();
    chunks_per_worker();
    order_of_chunks();
    complete();
    forwards_first();
  }

 private:
  static inline const std::string kForm =
      "a schedule has one row per rank, with cells such as 0F3 (forward of micro-batch 3 on stage 0), 0B3, 0I3, 0W3";

  std::string label(const Op& op) const { return label_in_file(given_, op); }
  Place place(const Entry& entry) const { return given_.place(entry.worker, entry.index); }
  Place row(std::size_t worker) const {
    return given_.compute[worker].empty() ? Place{given_.file, 0, 0} : given_.place(worker, 0);
  }

  using Next = std::vector<Entry>::const_iterator;

  // Every chunk on one worker, and no gap in their numbers.
  void owners() {
    for (const Entry& entry : entries_) {
      const std::size_t v = entry.op.virtual_stage;
      if (v > owner_.size())
        throw InputError(Place{given_.file, 0, 0}, "stage " + std::to_string(std::ssize(owner_)) +
                                                       " never runs, but stage " + std::to_string(std::int64_t(v)) +
                                                       " does (" + head(place(entry)) + label(entry.op) +
                                                       "); stages are numbered from 0 without gaps");
      if (v == owner_.size()) owner_.push_back(entry.worker);
      if (owner_[v] != entry.worker)
        throw InputError(place(entry), label(entry.op) + " runs on rank " + std::to_string(entry.worker) +
                                           ", but stage " + std::to_string(std::int64_t(v)) + " lies on rank " +
                                           std::to_string(owner_[v]) + "; a stage runs on one rank");
    }
  }

  void chunks_per_worker() {
    const std::size_t workers = given_.compute.size();
    std::vector<std::int64_t> count(workers);
    for (const std::uint32_t worker : owner_)
      ++count[worker];
    for (std::size_t worker = 0; worker < workers; ++worker) {
      if (count[worker] == count[0]) continue;
      throw InputError(row(worker), "rank " + std::to_string(std::int64_t(worker)) + " runs " +
                                        std::to_string(count[worker]) + (count[worker] == 1 ? " stage" : " stages") +
                                        ", rank 0 runs " + std::to_string(count[0]) +
                                        "; as many on every rank can be simulated");
    }
    given_.stages = static_cast<int>(workers);
    given_.virtual_stages = static_cast<int>(count[0]);
    for (const Entry& entry : entries_)
      given_.micro_batches = std::max(given_.micro_batches, static_cast<int>(entry.op.micro_batch) + 1);
  }

  void order_of_chunks() {
    const auto follows = [&](ChunkOrder order) {
      given_.chunk_order = order;
      for (std::size_t v = 0; v < owner_.size(); ++v)
        if (given_.seating().stage_of(static_cast<int>(v)) != static_cast<int>(owner_[v])) return false;
      return true;
    };
    if (follows(ChunkOrder::Loop)) return;
    const bool to_and_fro = follows(ChunkOrder::V);
    if (pipelines() || to_and_fro) return;
    std::string ranks;
    for (std::size_t v = 0; v < std::min<std::size_t>(owner_.size(), 16); ++v)
      ranks += (v == 0 ? "" : " ") + std::to_string(owner_[v]);
    throw InputError(
        Place{given_.file, 0, 0},
        "stages 0, 1, ... lie on ranks " + ranks + (owner_.size() > 16 ? " ..." : "") +
            "; these orders can be simulated: stage mod ranks (0 1 0 1), to and fro (0 1 1 0), and pipelines "
            "in opposite directions, each with stages and micro-batches of its own");
  }

  // P pipelines in opposite directions: chunks lie as those of such a Seating do, and no micro-batch runs stages of two.
  bool pipelines() {
    const int P = given_.virtual_stages, K = given_.stages;
    if (P % 2 != 0 || (P > 2 && K % P != 0)) return false;
    Seating seating{
        .stages = K, .chunk_order = ChunkOrder::InTurns, .micro_batches = given_.micro_batches, .pipelines = P};
    for (std::size_t v = 0; v < owner_.size(); ++v) {
      const auto [chunk, way] = seating.of_number_in_file(static_cast<int>(v));
      if (seating.stage_of(chunk, way) != static_cast<int>(owner_[v])) return false;
    }
    std::vector<int> dealt(at(given_.micro_batches), -1);
    for (const Entry& entry : entries_) {
      int& pipeline = dealt[entry.op.micro_batch];
      const int here = seating.of_number_in_file(entry.op.virtual_stage).way;
      if (pipeline >= 0 && pipeline != here && P == 2) return false;  // one pipeline, there and back
      if (pipeline >= 0 && pipeline != here)
        throw InputError(place(entry), label(entry.op) + " is of pipeline " + std::to_string(here) +
                                           ", but micro-batch " + std::to_string(entry.op.micro_batch) +
                                           " runs through pipeline " + std::to_string(pipeline) +
                                           ", whose stages are " +
                                           std::to_string(seating.number_in_file({0, pipeline})) + " to " +
                                           std::to_string(seating.number_in_file({K - 1, pipeline})));
      pipeline = here;
    }
    if (K % 2 != 0)
      throw InputError(Place{given_.file, 0, 0}, "has two directions on " + std::to_string(K) +
                                                     " ranks; their number must be even, so that no rank "
                                                     "holds the same stage for both");
    if (const auto none = std::ranges::find(dealt, -1); none != dealt.end())
      throw InputError(Place{given_.file, 0, 0}, "micro-batch " + std::to_string(none - dealt.begin()) +
                                                     " never runs, but micro-batch " +
                                                     std::to_string(given_.micro_batches - 1) +
                                                     " does; micro-batches are numbered from 0 without gaps");
    for (Entry& entry : entries_) {
      entry.op.virtual_stage = static_cast<std::uint16_t>(seating.of_number_in_file(entry.op.virtual_stage).chunk);
      given_.compute[entry.worker][entry.index] = entry.op;
    }
    std::ranges::sort(entries_, before);
    owner_.resize(at(K));
    given_.virtual_stages = 1, given_.pipelines = P;
    deal(seating, std::move(dealt));
    return true;
  }

  // The rule that deals micro-batches to pipelines in this way; else the list itself.
  void deal(Seating seating, std::vector<int> dealt) {
    const auto deals = [&](ChunkOrder order) {
      if (given_.pipelines > 2 && order != ChunkOrder::InTurns) return false;
      seating.chunk_order = given_.chunk_order = order;
      for (std::size_t m = 0; m < dealt.size(); ++m)
        if (seating.holder_of(0, static_cast<std::int64_t>(m)) != dealt[m]) return false;
      return true;
    };
    if (deals(ChunkOrder::BothWays) || deals(ChunkOrder::InTurns) || deals(ChunkOrder::Alternate)) return;
    given_.chunk_order = ChunkOrder::Listed;
    given_.dealing.emplace(std::move(dealt), given_.pipelines);
  }

  // Walks the sorted entries beside what has to be there.
  void complete() {
    const auto last = static_cast<std::uint32_t>(given_.micro_batches) - 1;
    const Entry of_last = *std::ranges::find_if(entries_, [&](const Entry& e) { return e.op.micro_batch == last; });
    Next next = entries_.cbegin();
    for (std::size_t v = 0; v < owner_.size(); ++v)
      for (std::uint32_t m = 0; m <= last; ++m)
        next = one_micro_batch(static_cast<std::uint16_t>(v), m, next, of_last);
  }

  Next one_micro_batch(std::uint16_t v, std::uint32_t m, Next next, const Entry& of_last) const {
    std::uint32_t kinds = 0;
    const auto bit = [](Kind kind) { return std::uint32_t{1} << static_cast<unsigned>(kind); };
    const Next first = next;
    for (; next != entries_.end() && next->op.virtual_stage == v && next->op.micro_batch == m; ++next) {
      if (kinds & bit(next->op.kind))
        throw InputError(place(*next), label(next->op) + " stands in the file twice, first at " + where(*(next - 1)) +
                                           "; every action once");
      kinds |= bit(next->op.kind);
    }
    const bool whole = kinds & bit(Kind::BW), input = kinds & bit(Kind::B), weights = kinds & bit(Kind::W);
    if (whole && (input || weights)) {
      const auto half =
          std::find_if(first, next, [](const Entry& e) { return e.op.kind == Kind::B || e.op.kind == Kind::W; });
      throw InputError(place(*half), label(half->op) + " is part of a backward that " + label({Kind::BW, v, m, 0}) +
                                         " does as a whole; write B, or I and W");
    }
    const auto missing = [&](Kind kind) {
      const auto rank = at(given_.seating().position_of(v, m));
      std::string message = label({kind, v, m, 0}) + " is missing on rank " + std::to_string(std::int64_t(rank));
      if (of_last.op.micro_batch > m)
        message += ", but micro-batch " + std::to_string(of_last.op.micro_batch) + " runs (" + head(place(of_last)) +
                   label(of_last.op) + ")";
      throw InputError(row(rank).line > 0 ? Place{given_.file, row(rank).line, 1} : Place{given_.file, 0, 0},
                       message + "; every micro-batch runs once through every stage, forward and backward");
    };
    if (!(kinds & bit(Kind::F))) missing(Kind::F);
    if (!whole && !input) missing(weights ? Kind::B : Kind::BW);
    if (!whole && !weights) missing(Kind::W);
    return next;
  }

  std::string where(const Entry& entry) const {
    const Place here = place(entry);
    return here.line > 0 ? "line " + std::to_string(here.line) + ", column " + std::to_string(here.column)
                         : "place " + std::to_string(entry.index) + " of rank " + std::to_string(entry.worker);
  }

  // F before its backward, I before W, within each worker.
  void forwards_first() const {
    std::vector<std::uint32_t> seen;  // by chunk and micro-batch of entries_: 1 forward, 2 input gradient
    seen.resize(owner_.size() * at(given_.micro_batches));
    for (std::size_t worker = 0; worker < given_.compute.size(); ++worker)
      for (std::size_t i = 0; i < given_.compute[worker].size(); ++i) {
        const Op& op = given_.compute[worker][i];
        std::uint32_t& state = seen[op.virtual_stage * at(given_.micro_batches) + op.micro_batch];
        const auto needs = [&](std::uint32_t what, Kind kind) {
          if (!(state & what))
            throw InputError(given_.place(worker, i), label(op) + " comes before " +
                                                          label({kind, op.virtual_stage, op.micro_batch, 0}) +
                                                          " of its own rank, which it needs; change their order");
        };
        if (op.kind == Kind::F) state |= 1;
        if (op.kind == Kind::B || op.kind == Kind::BW) needs(1, Kind::F), state |= 2;
        if (op.kind == Kind::W) needs(2, Kind::B);
      }
  }

  GivenSchedule& given_;
  std::vector<Entry> entries_;        // sorted
  std::vector<std::uint32_t> owner_;  // worker of each chunk
};

// The lists run without a clock; where nobody can go on, the cycle of who waits for whom.
class GivenRun {
 public:
  explicit GivenRun(const GivenSchedule& given)
      : given_(given),
        next_(given.compute.size()),
        done_(at(std::int64_t{given.stages} * given.virtual_stages) * at(given.micro_batches)) {}

  void check() {
    std::vector<std::size_t> ready(next_.size());
    for (std::size_t worker = 0; worker < ready.size(); ++worker)
      ready[worker] = worker;
    while (!ready.empty()) {
      const std::size_t worker = ready.back();
      ready.pop_back();
      for (std::size_t& i = next_[worker]; i < list(worker).size() && !missing(list(worker)[i]).second; ++i) {
        const Op& op = list(worker)[i];
        const int v = op.virtual_stage;
        if (op.kind == Kind::F) done_[slot(v, op.micro_batch)] |= 1, wake(v + 1, op.micro_batch, worker, ready);
        if (op.kind == Kind::B || op.kind == Kind::BW)
          done_[slot(v, op.micro_batch)] |= 2, wake(v - 1, op.micro_batch, worker, ready);
      }
    }
    for (std::size_t worker = 0; worker < next_.size(); ++worker)
      if (next_[worker] < list(worker).size()) name_cycle(worker);
  }

 private:
  const std::vector<Op>& list(std::size_t worker) const { return given_.compute[worker]; }
  std::size_t slot(int v, std::uint32_t m) const { return at(v) * at(given_.micro_batches) + m; }
  std::size_t owner(int v, std::uint32_t m) const { return at(given_.seating().position_of(v, m)); }
  int chunks() const { return given_.stages * given_.virtual_stages; }
  void wake(int v, std::uint32_t m, std::size_t by, std::vector<std::size_t>& ready) const {
    if (v >= 0 && v < chunks() && owner(v, m) != by) ready.push_back(owner(v, m));
  }
  std::size_t owner(const Op& op) const { return owner(op.virtual_stage, op.micro_batch); }
  std::string label(const Op& op) const { return label_in_file(given_, op); }

  // The op that `op` waits for, and whether there is one.
  std::pair<Op, bool> missing(const Op& op) const {
    const int v = op.virtual_stage;
    if (op.kind == Kind::F && v > 0 && !(done_[slot(v - 1, op.micro_batch)] & 1))
      return {{Kind::F, static_cast<std::uint16_t>(v - 1), op.micro_batch, 0}, true};
    if ((op.kind == Kind::B || op.kind == Kind::BW) && v + 1 < chunks() && !(done_[slot(v + 1, op.micro_batch)] & 2))
      return {{Kind::BW, static_cast<std::uint16_t>(v + 1), op.micro_batch, 0}, true};
    return {{}, false};
  }

  // Where the op stands that gives what `wanted` asks for: B counts as BW.
  std::size_t find(std::size_t worker, const Op& wanted) const {
    for (std::size_t i = 0; i < list(worker).size(); ++i) {
      const Op& op = list(worker)[i];
      const bool kind = op.kind == wanted.kind || (wanted.kind == Kind::BW && op.kind == Kind::B);
      if (kind && op.virtual_stage == wanted.virtual_stage && op.micro_batch == wanted.micro_batch) return i;
    }
    return 0;
  }
  std::string at_place(std::size_t worker, std::size_t i) const {
    const Place here = given_.place(worker, i);
    return here.line > 0 ? " (" + std::to_string(here.line) + ":" + std::to_string(here.column) + ")" : "";
  }

  [[noreturn]] void name_cycle(std::size_t worker) const {
    std::vector<bool> met(next_.size());
    while (!met[worker])
      met[worker] = true, worker = owner(missing(list(worker)[next_[worker]]).first);
    const std::size_t start = worker;
    std::string message = "deadlock: ";
    for (int links = 0;; ++links) {
      const Op& stuck = list(worker)[next_[worker]];
      const Op wanted = missing(stuck).first;
      const std::size_t other = owner(wanted), there = find(other, wanted);
      message += label(stuck) + " on rank " + std::to_string(std::int64_t(worker)) + " waits for " +
                 label(list(other)[there]) + ", which rank " + std::to_string(std::int64_t(other)) + " runs" +
                 at_place(other, there) + " after " + label(list(other)[next_[other]]) + at_place(other, next_[other]);
      worker = other;
      if (worker == start) break;
      message += links == 5 ? ", and so on back to rank " + std::to_string(std::int64_t(start)) : "; ";
      if (links == 5) break;
    }
    throw InputError(given_.place(start, next_[start]), message + "; change the order on one of these ranks");
  }

  const GivenSchedule& given_;
  std::vector<std::size_t> next_;
  std::vector<std::uint8_t> done_;  // by chunk and micro-batch: 1 forward, 2 gradient of the input
};

}  // namespace

Dealing::Dealing(std::vector<int> pipeline, int pipelines) : pipeline_(std::move(pipeline)), of_(at(pipelines)) {
  for (const int i : pipeline_) {
    turn_.push_back(static_cast<int>(of_[at(i)].size()));
    of_[at(i)].push_back(static_cast<int>(turn_.size()) - 1);
  }
}

const Dealing* dealing_of(const GivenSchedule& given) {
  return given.dealing ? &*given.dealing : nullptr;
}

int pipelines_of(const GivenSchedule& given) {
  return given.pipelines;
}

std::int64_t GivenSchedule::overlapped() const {
  std::int64_t all = 0;
  for (const std::vector<Op>& ops : compute)
    all += overlapped_cells(ops);
  return all;
}

Place GivenSchedule::place(std::size_t worker, std::size_t op) const {
  if (cells.empty()) return {file, 0, 0};
  return {file, cells[worker][op].line, cells[worker][op].column};
}

void settle(GivenSchedule& given) {
  Settled(given).all();
  GivenRun(given).check();
}

}  // namespace pipewright::core
