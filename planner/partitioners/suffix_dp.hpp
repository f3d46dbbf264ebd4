// Contiguous stages with replicas, the least bottleneck among those that fit, by dynamic programming from the last
// stage backwards.
//
// Backwards, because the devices behind a stage fix how many micro-batches are in flight on it. Under 1F1B with
// round-robin replicas every device from the stage to the end of the pipeline works on a micro-batch of its own; those
// that a stage's r replicas share, with n' devices behind it, are per replica
//     in flight = ceil((r + n') / r)                              [PipeDream19] section 3.2: NOAM at the input stage
// r = 2 with 3 devices behind: ceil(5 / 2) = 3.                    tests/planner/suffix_dp_test.cpp "in flight"
// So whether layers i..j fit is known when the stage is placed, and memory is a hard constraint:
//     memory = sum resident + buffered (a_in + a_out) + in flight (sum stash + entry_i)  <=  capacity
//
// Time per micro-batch of layers i..j on r replicas: work, all-reduce and messages side by side, each replica with a
// link of its own in either direction,
//     T(i..j, r) = max( ceil(sum compute / r),                    each replica takes every r-th micro-batch
//                       ceil(ring(r, sum gradients) / r),         one all-reduce per round of r micro-batches
//                       ceil(a_in / B / r), ceil(a_out / B / r) ) the messages over its two cuts
//     ring(r, S) = 2 (r - 1) / r S / B                            [Thakur05], without latency
// A cut between r and s replicas thus takes a / (B min(r, s)). [PipeDream19] section 3.1 prints m times that ring, and
// 2 a / B for both directions of a cut whatever the replicas (tests/papers/pipedream_optimizer.hpp keeps its rules).
//     compute 60 ns, r = 2, gradients 100 B, a_in = 40 B, a_out = 0, B = 1 GB/s: max(30, 100/2, 40/2) = 50 ns
// Where a round's update waits for its all-reduce (gradient_sync: at_once or blocking), what a replica computes outside
// the backward (`apart`: forward, a recomputation, the update; blocking: all) cannot run beside that all-reduce, since
// no gradient is there before the backward begins and nothing is computed between its end and the update:
//     T(i..j, r) >= ceil((sum apart + ring(r, sum gradients)) / r)
//     the same with 20 ns apart: (20 + 100) / 2 = 60 ns             tests/planner/suffix_dp_test.cpp "waits"
// With the work that is a round of apart + max(backward, all-reduce); nothing is added for gradients that come late.
//
// Where a device has one link for everything it sends (`one_link`), full duplex, its traffic adds up: of both cuts the
// activations one way and the gradients the other way, and the all-reduce:
//     link = (a_in + a_out + 2 (r - 1) / r S) / B / r             instead of the last three terms
//     the same example: (40 + 0 + 100) / 2 = 70 ns
//
// Nodes of g devices (`devices_per_node`): b is the bandwidth of a device's link inside its node, B that of the node's
// link to the others, which its devices share. Stages are placed from the last device of the last node backwards, so n
// devices behind a stage of r say where it lies: on devices n .. n + r - 1 from the end, c_q of them in node q of p
// nodes. Messages and all-reduces load
//     a device   (a_in + a_out + 2 (r - 1) / r S) / b / r
//     node q     (c_q / r (a_in + a_out) + moved / r) / B
// where a message to or from a stage that has devices in the same node is taken to stay inside, and moved is
// 2 (r - 1) / r S by one ring, 2 (p - 1) / p S by rings inside and between,
// and an all-reduce alone takes ring(r, S, b) for p = 1, else the less of ring(r, S, min(b, B)) and, where every
// c_q = c > 1, 2 (c - 1) / c S / b + 2 (p - 1) / p S / B  (core/cost/collectives.hpp), once per round of r
// micro-batches. For a lower bound over every placement (`StagePlaces::Anywhere`) only what no placement avoids counts:
//     a device   (a_in + a_out + 2 (r - 1) / r S) / R / r, R = max(b, B) with one link, b + B else
//     a node     2 (p - 1) / p S / B / r, p = ceil(r / g)         no all-reduce over p groups sends less from each
//     g = 2, b = 4, B = 1 B/ns, r = 2, S = 100, no messages: with 0 devices behind one node, 100 / 4 / 2 = 13 ns;
//     with 1 two nodes, 100 / 1 / 2 = 50 ns.                       tests/planner/suffix_dp_test.cpp "two levels"
// `StagePlaces::Spread`: p = min(r, nodes) and c_q = ceil(r / nodes), wherever the stage begins. Micro-batch m runs on
// replica m mod r, so where r is a multiple of the nodes it stays in one node (taken so whatever the stages around it
// are); else all its messages leave the node.
//
// Device classes (`others`): each stage lies on devices of one class, has that class's times and must fit its memory.
// What is behind a stage is then a number of devices per class, n = (n1, n2, n3): their sum says what is in flight, and
// the stage's own of them where it lies among the devices of its class, whose last node ends with its last stage. Its
// neighbours of another class are in other nodes. Orders of the classes need no list: every stage takes any class that
// has devices left.                                                       [Park20] runs pipelines over such classes
//     8 layers of 6 ns, three devices A and one B of half the speed: 7 layers on three replicas A, 42 / 3 = 14 ns, and
//     1 layer on B, 12 ns: the bottleneck is 14; without replicas 2 2 3 layers and 1, so 18.
//                                                                   tests/planner/suffix_classes_test.cpp
//
// D(i, n), the least bottleneck of layers i..L-1 on n devices:
//     D(L, 0) = 0,   D(i, n) = min over j, r of max( T(i..j, r), D(j + 1, n - r) ),   if i..j fits with n - r behind it
// and D_q(i, n) with exactly q stages where the number of stages is given. It is the steady state that is minimised:
// fill and drain, and hops that 1F1B leaves exposed, are the simulator's business (planner/partitioners/exact.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/units.hpp"

namespace pipewright::planner {

constexpr std::int64_t kNoPlan = kNever.value;  // a label that no plan has reached

enum class StagePlaces {
  Backwards,  // as above
  Spread,     // worker w of the pipeline in node w mod nodes
  Anywhere,   // what no placement avoids
};

// Devices of a further class: their number, their times and their memory, as in SuffixProblem.
struct SuffixClass {
  std::vector<Time> compute, apart;
  Time per_stage{};
  Bytes capacity{kLargest};
  int devices = 1;
};

// A chain of layers (or cells), figures of one micro-batch. Lists have one entry per layer, or none: all zero.
struct SuffixProblem {
  std::vector<Time> compute;     // forward + backward, and the recomputation if any; never empty
  std::vector<Time> apart;       // of it, what cannot run beside an all-reduce; none: no worker waits for its gradients
  Time per_stage{};              // added to the compute of every stage: overhead of its ops
  std::vector<Bytes> resident;   // held once per replica: weights, gradients, optimizer state, working set
  std::vector<Bytes> stash;      // held per micro-batch in flight; a stashed version of the weights belongs here, too
  std::vector<Bytes> entry;      // held per micro-batch in flight by a stage that begins with this layer: its input
  std::vector<Bytes> gradients;  // all-reduced between the replicas
  std::vector<Bytes> boundary;   // over the cut behind this layer, in either direction; the last is not used
  std::int64_t buffered = 0;     // messages of each of its cuts that a stage holds in buffers, whatever is in flight
  Bytes capacity{kLargest};      // of every device
  Bandwidth bandwidth{std::numeric_limits<double>::infinity()};  // of a device's link, per direction
  bool one_link = false;                                         // all traffic of a device passes that link
  int devices_per_node = 0;                                      // g; 0: flat
  Bandwidth inside{std::numeric_limits<double>::infinity()};     // b, with nodes only
  StagePlaces places = StagePlaces::Backwards;                   // with nodes only
  std::int64_t micro_batches = 0;  // of a run: a replica has at most ceil(M / r) in flight; 0: endless
  bool flush = false;              // gradients are all-reduced once per `micro_batches`, not once per round
  Time limit = kNever;             // stages that take longer are left out
  int devices = 1;                 // at most so many are used
  std::vector<int> replicas;       // that a stage may have, ascending; none: any number
  int stages = 0;                  // exactly; 0: any number
  // Classes 1, 2: at most so many of each are used. `devices`, `compute`, `apart`, `per_stage` and `capacity` above are
  // then class 0's.
  std::vector<SuffixClass> others;

  int classes() const { return 1 + static_cast<int>(others.size()); }
  // The devices of one class alone.
  SuffixProblem of_class(int device_class) const;
};

// Whether the stages in front of and behind one lie on devices of its class: else their messages leave the node.
struct Neighbours {
  bool in_front = true, behind = true;
};

// The figures of stages on devices of class 0, each in O(1). Keeps a reference to the problem, whose capacity alone may
// change meanwhile. `behind`: devices behind the stage, for `time` and `waiting` those of its class.
class SuffixStages {
 public:
  explicit SuffixStages(const SuffixProblem& problem);

  int layers() const { return layers_; }
  std::int64_t capacity() const { return problem_.capacity.value; }
  // Numbers of devices behind a stage that differ by a multiple of it give the same time.
  int residues() const;
  std::int64_t compute_of(int begin, int end) const;  // of the layers alone
  std::int64_t compute(int begin, int end) const;     // with what every stage adds
  std::int64_t time(int begin, int end, int replicas, int behind, Neighbours neighbours = {}) const;
  // Of it, what a replica spends that waits for its all-reduces (`apart`); 0 where none waits.
  std::int64_t waiting(int begin, int end, int replicas, int behind) const;
  std::int64_t memory(int begin, int end, std::int64_t in_flight) const;
  // Most micro-batches in flight with which the range fits; 0: not even one.
  std::int64_t most_in_flight(int begin, int end) const;
  std::int64_t in_flight(int replicas, int behind) const;
  // Most micro-batches that one of the replicas ever gets.
  std::int64_t of_a_run(int replicas) const;

 private:
  std::int64_t resident(int begin, int end) const;
  std::int64_t held(int begin, int end) const;
  double link_time(double in, double out, double gradients, int replicas, int behind, Neighbours neighbours) const;
  double anywhere(double messages, double moved, double bytes, int replicas) const;
  double on_nodes(double in, double out, double bytes, double moved, int replicas, int behind,
                  Neighbours neighbours) const;
  void add_seats();

  struct Seats {
    struct Row {
      int here = 0;                  // replicas in the node
      bool in = false, out = false;  // messages to that side leave the node
    };
    int nodes = 1;
    bool equal = false;       // all nodes hold the same number, more than one
    std::array<Row, 3> rows;  // the node of the last replica, that of the first, those between
  };

  int layers_;
  const SuffixProblem& problem_;
  std::vector<std::int64_t> compute_, apart_, resident_, stash_, gradients_, entry_, cut_;
  std::vector<Seats> seats_;  // [replicas - 1][devices behind, of one node]
};

struct SuffixStage {
  LayerRange layers;
  int replicas = 1;
  std::int64_t in_flight = 1;  // per replica
  Time time;                   // T, per micro-batch
  Bytes memory;                // of one replica
  int device_class = 0;
  bool operator==(const SuffixStage&) const = default;
};

struct SuffixAnswer {
  std::vector<SuffixStage> stages;  // in order; none: nothing fits
  Time bottleneck;
  int devices = 0;  // used
  // Where nothing fits: of the plan whose hungriest stage needs least, that stage. With `missing` more on every device
  // it fits, with less nothing does. None where the numbers of replicas cannot be combined at all.
  std::optional<SuffixStage> hungriest;
  Bytes missing;
  std::int64_t states = 0;  // (stages,) first layer and devices for which a plan was found
};

// Ties: fewest stages, then the earliest cuts, then the fewest devices, then fewest replicas on the early stages; with
// several classes fewest stages, then fewest devices, of those fewest of the last class and of the one before it, then
// stage by stage from the first one the earliest cut, the first class and the fewest replicas.
// O(L^2 N R) for L layers, N devices and R numbers of replicas, times `stages` where given; O(L N) memory, times the
// same. Equal to brute force, and to min_max without replicas: tests/planner/suffix_dp_test.cpp
SuffixAnswer suffix_dp(const SuffixProblem& problem);

// The same for every number of stages q <= `most_stages` at once (problem.stages is not looked at): for each q,
// ascending, the plan with the least bottleneck, then for every entry of `devices` the one on exactly so many, where
// there is one within problem.limit. Ties: the fewest devices, the earliest cuts by the way back from the first stage,
// of those the fewest replicas; `hungriest`, `missing` and `states` are left empty. O(L^2 N R most_stages) time, O(L N
// most_stages) memory. With several classes `devices` is not looked at, and ties are broken as above.
std::vector<SuffixAnswer> suffix_dp_by_stages(const SuffixProblem& problem, int most_stages,
                                              const std::vector<int>& devices = {});

// T(layers, replicas) with `behind` devices behind the stage, and the memory of one replica, as above.
Time stage_time(const SuffixProblem& problem, LayerRange layers, int replicas, int behind = 0);
Bytes stage_memory(const SuffixProblem& problem, LayerRange layers, std::int64_t in_flight);

// ceil((replicas + behind) / replicas)
std::int64_t replica_in_flight(int replicas, int behind);

}  // namespace pipewright::planner
