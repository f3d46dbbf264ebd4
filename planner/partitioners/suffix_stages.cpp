#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/check.hpp"
#include "planner/partitioners/suffix_dp.hpp"

namespace pipewright::planner {
namespace {

// sums[i]: of layers 0..i-1.
template <class Unit>
std::vector<std::int64_t> prefix_sums(const std::vector<Unit>& values, std::size_t layers) {
  PP_CHECK(values.empty() || values.size() == layers);
  std::vector<std::int64_t> sums(layers + 1);
  for (std::size_t i = 0; i < values.size(); ++i) {
    PP_CHECK(values[i].value >= 0);
    sums[i + 1] = checked_sum(sums[i], values[i].value, "a sum over layers");
  }
  return sums;
}

std::int64_t rounded_up(double time) {
  if (time >= 9e18) throw OverflowError("the time of a stage's transfers is larger than this tool can hold");
  return static_cast<std::int64_t>(std::ceil(time - 1e-6));  // 1e-6: what sums of doubles add
}

double per_ns(Bandwidth bandwidth) {
  return bandwidth.value * 1e-9;
}

}  // namespace

SuffixStages::SuffixStages(const SuffixProblem& problem)
    : layers_(static_cast<int>(problem.compute.size())),
      problem_(problem),
      compute_(prefix_sums(problem.compute, problem.compute.size())),
      apart_(prefix_sums(problem.apart, problem.compute.size())),
      resident_(prefix_sums(problem.resident, problem.compute.size())),
      stash_(prefix_sums(problem.stash, problem.compute.size())),
      gradients_(prefix_sums(problem.gradients, problem.compute.size())),
      entry_(problem.compute.size()),
      cut_(problem.compute.size() + 1) {
  PP_CHECK(layers_ >= 1 && problem.bandwidth.value > 0 && problem.inside.value > 0);
  PP_CHECK(problem.boundary.empty() || problem.boundary.size() == at(layers_));
  PP_CHECK(problem.entry.empty() || problem.entry.size() == at(layers_));
  PP_CHECK(problem.devices_per_node >= 0 && problem.micro_batches >= 0);
  PP_CHECK(!problem.flush || problem.micro_batches > 0);
  PP_CHECK(!problem.flush || problem.apart.empty());
  for (std::size_t i = 0; i < problem.entry.size(); ++i)
    entry_[i] = problem.entry[i].value;
  for (std::size_t i = 0; i + 1 < problem.boundary.size(); ++i)
    cut_[i + 1] = problem.boundary[i].value;
  if (problem.devices_per_node > 0) add_seats();
}

int SuffixStages::residues() const {
  return problem_.devices_per_node > 0 && problem_.places == StagePlaces::Backwards ? problem_.devices_per_node : 1;
}

std::int64_t SuffixStages::compute_of(int begin, int end) const {
  return compute_[at(end)] - compute_[at(begin)];
}

std::int64_t SuffixStages::compute(int begin, int end) const {
  return checked_sum(compute_[at(end)] - compute_[at(begin)], problem_.per_stage.value, "the time of a stage");
}

std::int64_t SuffixStages::time(int begin, int end, int replicas, int behind, Neighbours neighbours) const {
  const double link =
      link_time(static_cast<double>(cut_[at(begin)]), static_cast<double>(cut_[at(end)]),
                static_cast<double>(gradients_[at(end)] - gradients_[at(begin)]), replicas, behind, neighbours);
  return std::max({ceil_div(compute(begin, end), replicas), rounded_up(link), waiting(begin, end, replicas, behind)});
}

std::int64_t SuffixStages::waiting(int begin, int end, int replicas, int behind) const {
  if (problem_.apart.empty() || replicas == 1) return 0;
  const double reduce =
      link_time(0, 0, static_cast<double>(gradients_[at(end)] - gradients_[at(begin)]), replicas, behind, {});
  return rounded_up(static_cast<double>(apart_[at(end)] - apart_[at(begin)]) / replicas + reduce);
}

std::int64_t SuffixStages::memory(int begin, int end, std::int64_t in_flight) const {
  return checked_sum(resident(begin, end), checked_product(in_flight, held(begin, end), "a stash"), "a stage's memory");
}

std::int64_t SuffixStages::most_in_flight(int begin, int end) const {
  const std::int64_t room = capacity() - resident(begin, end), each = held(begin, end);
  if (room < 0) return 0;
  return each == 0 ? kLargest : room / each;
}

std::int64_t SuffixStages::in_flight(int replicas, int behind) const {
  return std::min(replica_in_flight(replicas, behind), of_a_run(replicas));
}

std::int64_t SuffixStages::of_a_run(int replicas) const {
  return problem_.micro_batches == 0 ? kLargest : ceil_div(problem_.micro_batches, replicas);
}

std::int64_t SuffixStages::resident(int begin, int end) const {
  const std::int64_t buffers = checked_product(problem_.buffered, cut_[at(begin)] + cut_[at(end)], "a stage's buffers");
  return checked_sum(resident_[at(end)] - resident_[at(begin)], buffers, "a stage's memory");
}

std::int64_t SuffixStages::held(int begin, int end) const {
  return checked_sum(stash_[at(end)] - stash_[at(begin)], entry_[at(begin)], "a stash");
}

// Per micro-batch, of a stage with these messages over its cuts and these gradients; without messages its all-reduce.
double SuffixStages::link_time(double in, double out, double bytes, int replicas, int behind,
                               Neighbours neighbours) const {
  const double r = replicas, moved = 2 * (r - 1) / r * bytes;
  const double every = problem_.flush ? static_cast<double>(problem_.micro_batches) : r;
  if (problem_.devices_per_node == 0) {
    const double rate = per_ns(problem_.bandwidth);
    if (problem_.one_link) return ((in + out) / r + moved / every) / rate;
    return std::max(std::max(in, out) / r, moved / every) / rate;
  }
  if (problem_.places == StagePlaces::Anywhere) return anywhere((in + out) / r, moved / every, bytes / every, replicas);
  return on_nodes(in / r, out / r, bytes / every, moved / every, replicas, behind, neighbours);
}

double SuffixStages::anywhere(double messages, double moved, double bytes, int replicas) const {
  const double inside = per_ns(problem_.inside), between = per_ns(problem_.bandwidth);
  const double p = static_cast<double>(ceil_div(replicas, problem_.devices_per_node));
  const double device = problem_.one_link ? std::max(inside, between) : inside + between;
  return std::max((messages + moved) / device, 2 * (p - 1) / p * bytes / between);
}

// Where the replicas of a stage lie, for every number of replicas and of devices behind it.
void SuffixStages::add_seats() {
  const int g = problem_.devices_per_node, nodes = (problem_.devices + g - 1) / g;
  for (int r = 1; r <= problem_.devices; ++r)
    for (int behind = 0; behind < residues(); ++behind) {
      if (problem_.places == StagePlaces::Spread) {
        const int here = (r + nodes - 1) / nodes;
        const bool even = r % nodes == 0;  // then a micro-batch stays in its node, if it does so on the stages around
        seats_.push_back({std::min(r, nodes), even && here > 1, {Seats::Row{here, !even, !even}}});
        continue;
      }
      const int end = behind + r, last = (end - 1) / g;
      const int of_first = std::min(g, end) - behind, of_last = end - last * g;
      Seats seats;
      seats.nodes = last + 1;
      seats.equal = last > 0 && of_first == of_last && of_first > 1 && (last == 1 || of_first == g);
      seats.rows = {Seats::Row{of_first, last > 0 || end == g, behind == 0},
                    Seats::Row{last > 0 ? of_last : 0, end == (last + 1) * g, true},
                    Seats::Row{last > 1 ? g : 0, true, true}};
      seats_.push_back(seats);
    }
}

// `in`, `out`: bytes that one replica gets and sends per micro-batch of the stage; `bytes`, `moved`: of its
// all-reduce.
double SuffixStages::on_nodes(double in, double out, double bytes, double moved, int replicas, int behind,
                              Neighbours neighbours) const {
  const double inside = per_ns(problem_.inside), between = per_ns(problem_.bandwidth);
  const Seats& seats = seats_[at((replicas - 1) * residues() + behind % residues())];
  double time = (in + out + moved) / inside;
  double shared = 0;  // by the all-reduce, on the link of each of its nodes
  if (seats.nodes > 1) {
    const double p = seats.nodes, c = replicas / p;
    const double ring = moved / std::min(inside, between);
    const double rings = 2 * (c - 1) / c * bytes / inside + 2 * (p - 1) / p * bytes / between;
    shared = seats.equal && rings < ring ? 2 * (p - 1) / p * bytes : moved;
    time = std::max(time, seats.equal ? std::min(ring, rings) : ring);
  }
  for (const Seats::Row& row : seats.rows)
    if (row.here > 0) {
      const bool comes = row.in || !neighbours.in_front, leaves = row.out || !neighbours.behind;
      time = std::max(time, (row.here * ((comes ? in : 0) + (leaves ? out : 0)) + shared) / between);
    }
  return time;
}

Time stage_time(const SuffixProblem& problem, LayerRange layers, int replicas, int behind) {
  return {SuffixStages(problem).time(layers.begin, layers.end, replicas, behind)};
}

Bytes stage_memory(const SuffixProblem& problem, LayerRange layers, std::int64_t in_flight) {
  return {SuffixStages(problem).memory(layers.begin, layers.end, in_flight)};
}

std::int64_t replica_in_flight(int replicas, int behind) {
  return ceil_div(std::int64_t{replicas} + behind, replicas);
}

}  // namespace pipewright::planner
