#include "core/cost/sources/work_passes.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/cost/contention.hpp"
#include "core/cost/framework_kernels.hpp"
#include "core/cost/issue_times.hpp"

namespace pipewright::core {

WorkPasses::WorkPasses(const Scenario& scenario, int device_class, const Topology& topology)
    : scenario_(scenario),
      device_(scenario.cluster.device_of(device_class)),
      times_(scenario, device_class),
      tensor_(scenario, topology),
      context_(scenario, topology),
      sent_(scenario, topology) {
  if (!in_bulk() || !device_.contention.takes()) return;
  const auto slowed = std::make_shared<Scenario>(scenario);
  set_beside_collectives(slowed->cluster.device);
  for (DeviceClass& other : slowed->cluster.others)
    set_beside_collectives(other.device);
  slowed_ = slowed, beside_.emplace(*slowed_, device_class);
}

bool WorkPasses::host_limits() const {
  const HostTimes& host = device_.host;
  return host.operation.value > 0 || host.backward.value_or(Time{}).value > 0 || host.collective.value > 0;
}

bool WorkPasses::overlaps() const {
  const TensorOverlap overlap = scenario_.plan.tensor_overlap.value;
  const TensorParallel& split = times_.split();
  return overlap != TensorOverlap::None && (split.sequence_parallel || overlap == TensorOverlap::Backward) &&
         split.degree > 1;
}

bool WorkPasses::in_parts() const {
  return overlaps() && scenario_.plan.tensor_overlap.value != TensorOverlap::Backward;
}

bool WorkPasses::in_bulk() const {
  return overlaps() && scenario_.plan.tensor_overlap.value != TensorOverlap::Ring;
}

// Gathering in parts is done by copy engines; scattering in parts sums up, by multiprocessors.       [TransformerEngine26]
double WorkPasses::left_of(const PassKernels& pass, double exchanged, int count) const {
  const double skew = count * static_cast<double>(device_.host.skew.value), sent = exchanged - skew;
  if (!in_parts() || count == 0 || sent <= 0) return 1;
  const double half = sent / count / 2;
  const int t = times_.split().degree;
  const double left = left_of_exchanges(pass.gathers, count, half, half, t) +
                      left_of_exchanges(pass.scatters, count, half, half * slowed_exchange(), t);
  return (left + skew) / exchanged;
}

LeftOfBackward WorkPasses::left_of(const PassKernels& input, const std::vector<ColumnGradients>& columns,
                                   double exchanged, int count) const {
  const double skew = count * static_cast<double>(device_.host.skew.value), sent = exchanged - skew;
  if (!in_bulk() || count == 0 || sent <= 0) return {exchanged * left_of(input, exchanged, count), 0, 0};
  const bool halves = times_.split().sequence_parallel;
  const double one = sent / count / (halves ? 2 : 1), slowed = one * slowed_exchange();
  LeftOfBackward left = in_parts()
                            ? left_of_backward(input.scatters, columns, count, one, slowed, times_.split().degree)
                            : left_without_parts(columns, count, one, slowed, halves);
  left.input += skew;
  return left;
}

double WorkPasses::collectives(const Work& work, const Amount& reduced, int reductions, double samples) const {
  const double weight = times_.weight();
  double bytes = reduced.on_device(Bytes{static_cast<std::int64_t>(weight)}, TensorParallel{}) * samples;
  const LowPrecisionRule* low = times_.low();
  if (low && times_.split().sequence_parallel &&
      std::any_of(work.operators.begin(), work.operators.end(), low_precision_product))
    bytes *= (weight + low->bytes) / (2 * weight);
  return tensor_.time(bytes, reductions, static_cast<double>(device_.host.skew.value));
}

double WorkPasses::exchange_time(const Operator& op, double samples) const {
  if (op.sent.tokens <= 0) return 0;
  const bool out = op.name == "dispatch";
  const double each = out && scenario_.plan.expert_dispatch_fp8 ? 1 + 4.0 / 128 : times_.weight();
  return sent_.time(op.sent, op.sent.tokens * samples / times_.split().degree, op.sent.features * each);
}

// The kernels of every pass over one work, operator by operator.
class PassesOfWork {
 public:
  PassesOfWork(const WorkPasses& of, const Work& work, double samples)
      : of_(of),
        times_(of.times_),
        plan_(of.scenario_.plan),
        split_(times_.split()),
        work_(work),
        whole_(samples),
        here_(samples / of.context_.degree()),
        host_(issue_times(of.device_.host, of.scenario_.training.execution)),
        repeated_(of.scenario_.training.checkpoint_early_stop ? repeated_until_read(work) : work.operators.size()) {
    if (plan_.shared_experts_beside.value)
      for (const Operator& op : work.operators)
        if (of_shared_expert(op) && op.weights != Weights::Adapter) add_beside_exchanges(on_device(op));
    for (const Operator& op : work.operators)
      if (of.context_.divides() && op.attention.heads > 0)
        add_divided_attention(op);
      else
        add(op);
    std::reverse(input_.list.begin(), input_.list.end());
    std::reverse(weight_.list.begin(), weight_.list.end());
    const int exchanges = times(work.reductions_backward);
    left_ =
        of.left_of(input_, columns_, of.collectives(work, of_all(work.reduced_backward), exchanges, here_), exchanges);
  }

  // What the gradient of the input takes more where those of weights come later.
  Time apart() const { return Time{rounded(left_.apart, "a layer's time")}; }

  IssuedPasses issued() const {
    Amount within;  // the modules that are run again
    int reductions = 0;
    for (std::size_t module = 0; module < work_.reduced_within.size(); ++module)
      if (with_experts(plan_.recompute_modules).has(static_cast<Module>(module)))
        within += work_.reduced_within[module].bytes, reductions += work_.reduced_within[module].times;
    if (split_.sends_tokens() && plan_.recompute_modules.has(Module::Experts) && reductions >= work_.expert_layers)
      within = of_all(within), reductions = times(reductions);
    IssuedPasses issued{
        reduced(forward_, of_all(work_.reduced_forward), times(work_.reductions_forward)),
        input_.with(times(work_.reductions_backward), host_.collective, left_.input),
        weight_.with(columns_.empty() ? 0 : times(work_.reductions_backward), 0, left_.weight),
        plan_.recompute_modules.has(Module::Operators) ? replayed() : reduced(core_, within, reductions),
        {}};
    issued.again = issued.forward;
    if (repeated_ == work_.operators.size()) return issued;
    // The last product's all-reduce goes with it.
    const int all = times(work_.reductions_forward), left = std::max(0, all - 1);
    const double time = all == 0 ? 0 : of_.collectives(work_, of_all(work_.reduced_forward), all, here_) * left / all;
    issued.again = again_.with(left, host_.collective, time * of_.left_of(again_, time, left));
    return issued;
  }

 private:
  // What is computed beside one exchange: in a forward, in one that recomputes modules, in one that stops early, backwards.
  struct Beside {
    double forward = 0, rebuilt = 0, again = 0, backward = 0;
  };
  // An operator on one device.
  struct Here {
    const Operator& op;
    bool at_experts, repeats;
    double samples;     // whose tokens it gets: at experts those of the fullest device
    double flops;       // of one sample's, the factor
    double parameters;  // that it reads
    KernelsOfOperator by;
  };

  // Attention over a sequence that devices share: each pass, and what exchanges add that attention does not hide.
  void add_divided_attention(const Operator& op) {
    add_attention(op, PassKind::Forward, host_.forward, forward_);
    if (is_repeated(op)) add_attention(op, PassKind::Forward, host_.forward, again_);
    add_attention(op, PassKind::Input, host_.backward, input_);
  }
  void add_attention(const Operator& op, PassKind pass, double host, PassKernels& kernels) const {
    const ContextAttention& context = of_.context_;
    const bool backward = pass == PassKind::Input;
    Operator part = op;
    part.attention = context.kernel(op.attention);
    const double flops = (backward ? op.input_flops + op.rebuilt_flops : op.forward_flops) * whole_ *
                         context.flops_share(op.attention) / (op.divided ? split_.degree : 1);
    const double bytes = (backward ? op.input_bytes : op.forward_bytes).on_device(value(), split_) * whole_ *
                         context.bytes_share(op.attention);
    const double one = times_.time(part, pass, whole_, flops, bytes);
    const ContextTensors own = context_tensors(op, plan_, whole_, times_.weight());
    const double all = backward ? context.backward(one, own) : context.forward(one, own);
    kernels.add(host, one * context.kernels(), context.kernels());
    kernels.add_exchanges(host_.collective, all - one * context.kernels(), context.calls(backward));
  }

  void add(const Operator& op) {
    if (op.name == "scores") scores_ = op.shape;
    if (op.sent.experts > 0) experts_here_ = op.sent.experts / split_.experts;
    const Here here = on_device(op);
    add_forward(here);
    add_backward(here);
  }

  Here on_device(const Operator& op) const {
    const double t = split_.degree;
    const bool at_experts = op.expert && split_.sends_tokens();
    const double samples = op.expert ? here_ * plan_.expert_load(split_) : here_;
    const bool shared = op.divided || (split_.sequence_parallel && !op.gathered) || at_experts;
    const std::int64_t dense = op.parameters - op.gathered_parameters;
    const std::int64_t sharded = std::min(dense, op.sharded_parameters);
    const double parameters =
        static_cast<double>(dense - sharded) +
        std::ceil(static_cast<double>(sharded) / (at_experts ? static_cast<double>(split_.expert_devices()) : t));
    KernelsOfOperator by;
    if (op.module == Module::StateSpace)
      by = scan_kernels(op);
    else if (of_.scenario_.training.framework.megatron())
      by = megatron_kernels(op, scores_, samples, split_, experts_here_);
    return {op, at_experts, is_repeated(op), samples, samples / (shared ? t : 1.0), parameters, by};
  }

  double forward_time(const Here& here) const {
    return std::max(
        here.by.forward_ns,
        times_.time(here.op, PassKind::Forward, here.samples, here.op.forward_flops * here.flops,
                    bytes(here, here.op.forward_bytes, times_.weight()) * here.by.forward, here.by.kernels));
  }
  double input_time(const Here& here) const { return input_time(here, times_); }
  double input_time(const Here& here, const OperatorTimes& times) const {
    return std::max(
        here.by.backward_ns,
        times.time(here.op, PassKind::Input, here.samples, (here.op.input_flops + here.op.rebuilt_flops) * here.flops,
                   bytes(here, here.op.input_bytes, times_.weight()) * here.by.backward, here.by.kernels_back));
  }

  double weight_time(const Here& here, const OperatorTimes& times) const {
    return times.time(here.op, PassKind::Weight, here.samples, here.op.weight_flops * here.flops,
                      bytes(here, here.op.weight_bytes, times_.gradient()));
  }

  // The first products of a shared expert run while tokens are sent, its last while they come back; backwards the other
  // way round, gradients of inputs alone: those of weights may be left for later.
  void add_beside_exchanges(const Here& here) {
    const double layers = std::max(1, work_.expert_layers);
    Beside& of = columns(here.op) ? beside_dispatch_ : beside_combine_;
    const double forward = forward_time(here) / layers;
    of.forward += forward, of.backward += input_time(here) / layers;
    if (rebuilt_with(here.op, plan_.recompute_modules)) of.rebuilt += forward;
    if (here.repeats) of.again += forward;
  }

  void add_forward(const Here& here) {
    const Operator& op = here.op;
    // Rows come back before they are summed; sent ones leave behind the copy.
    if (returns(op)) add_exchanges(here);
    if (const auto of = times_.casts(op, PassKind::Forward, here.samples, here.parameters); of.kernels > 0)
      to_forward(here, [&](PassKernels& pass) { pass.add(host_.forward, of.time, of.kernels); });
    const double once = forward_time(here);
    to_forward(here, [&](PassKernels& pass) { pass.add(host_.forward, once, here.by.kernels); });
    if (beside(op)) {
      const OperatorTimes& times = columns(op) ? times_ : of_.beside_collectives();
      const DividedProduct product = in_parts(here, PassKind::Forward, once, op.forward_flops, op.forward_bytes, times);
      to_forward(here, [&](PassKernels& pass) {
        auto& products = columns(op) ? pass.gathers : pass.scatters;
        // Several products read what was gathered once, up to the one whose output is scattered.
        const bool joins = columns(op) && pass.gathers.size() > pass.scatters.size();
        if (!joins) return products.push_back(product);
        products.back().whole += product.whole, products.back().parts += product.parts;
      });
    }
    if (counts_rows(op)) to_forward(here, [](PassKernels& pass) { pass.wait(); });
    if (!returns(op)) add_exchanges(here);
  }

  // Of a block, what its checkpoint does not save. Of an exchange of sequence parallelism the reduce-scatter is saved and the
  // all-gather is not; the exchanges are waited for.
  KernelQueue replayed() const {
    PassKernels pass;
    for (std::size_t i = 0; i < std::min(repeated_, work_.replay.size()); ++i) {
      const double again = work_.replay[i].again;
      if (again <= 0) continue;
      Operator part = work_.operators[i];
      if (again < 1) {
        part.forward_bytes -= work_.replay[i].saved;
        part.forward_flops *= again, part.shape.columns *= again;
        for (std::int64_t* parameters : {&part.parameters, &part.sharded_parameters})
          *parameters = std::llround(static_cast<double>(*parameters) * again);
      }
      const Here here = on_device(part);
      pass.add(host_.forward, times_.time(part, PassKind::Forward, here.samples, part.forward_flops * here.flops,
                                          bytes(here, part.forward_bytes, times_.weight())));
    }
    const bool halves = split_.sequence_parallel;
    const int all = work_.replay.empty() ? 0 : work_.reductions_forward;
    const int left = all - (repeated_ < work_.operators.size() && !halves && all > 0 ? 1 : 0);
    if (left == 0) return pass.with();
    const double time = of_.collectives(work_, work_.reduced_forward, all, here_) * left / all;
    return pass.with(left, host_.collective, halves ? time / 2 : time);
  }

  // In the order of the forward: the lists are turned round in the end.
  void add_backward(const Here& here) {
    const Operator& op = here.op;
    if (returns(op)) add_exchange(here, host_.backward, input_, &Beside::backward);
    const double of_input = input_time(here);
    input_.add(host_.backward, of_input, here.by.kernels_back);
    const double of_weight = weight_time(here, times_);
    if (beside(op) && of_input > 0) {
      const DividedProduct product = in_parts(here, PassKind::Input, of_input, op.input_flops, op.input_bytes, times_);
      (columns(op) ? input_.gathers : input_.scatters).push_back(product);
      const OperatorTimes& slowed = of_.beside_collectives();
      if (columns(op) && of_.in_bulk())
        columns_.push_back({product, of_weight, input_time(here, slowed), weight_time(here, slowed)});
    }
    if (!returns(op)) add_exchange(here, host_.backward, input_, &Beside::backward);
    if (const auto of = times_.casts(op, PassKind::Input, here.samples, here.parameters); of.kernels > 0)
      input_.add(host_.backward, of.time, of.kernels);
    weight_.add(host_.backward, of_weight);
  }

  // What a forward adds is added to what repeats it, too.
  template <class Add>
  void to_forward(const Here& here, const Add& add) {
    add(forward_);
    if (rebuilt_with(here.op, plan_.recompute_modules)) add(core_);
    if (here.repeats) add(again_);
  }

  void add_exchanges(const Here& here) {
    add_exchange(here, host_.forward, forward_, &Beside::forward);
    if (rebuilt_with(here.op, plan_.recompute_modules)) add_exchange(here, host_.forward, core_, &Beside::rebuilt);
    if (here.repeats) add_exchange(here, host_.forward, again_, &Beside::again);
  }

  // Tokens on their way to their experts or back.
  void add_exchange(const Here& here, double host, PassKernels& pass, double Beside::*direction) const {
    if (!here.at_experts || here.op.sent.tokens <= 0) return;
    const double time = of_.exchange_time(here.op, here_);
    const double hidden = (returns(here.op) ? beside_combine_ : beside_dispatch_).*direction;
    if (returns(here.op)) add_sorting(here, host, pass);
    if (time > 0) pass.add_exchanges(host_.collective, std::max(0.0, time - hidden), of_.sent_.calls());
    if (!returns(here.op)) add_sorting(here, host, pass);
  }

  // Rows arrive by sender and are sorted by expert, where a device has several, and the other way round on their way back; an
  // all-gather picks them out. Once per node, a device gets fewer rows than it makes of them, but those are first copied out
  // of the buffers that others write to: of 394 MB on 16 B300 all of it took 0.47 ms there and 0.79 ms back, over the
  // exchange alone (HybridEP; github.com/deepseek-ai/DeepEP/issues/590).
  void add_sorting(const Here& here, double host, PassKernels& pass) const {
    const ExpertExchange kind = plan_.expert_exchange.value;
    if (experts_here_ <= 1 || kind == ExpertExchange::AllGather || kind == ExpertExchange::Unpriced) return;
    const ExpertTokens& sent = here.op.sent;
    const double rows = here.samples * sent.tokens * sent.active * split_.expert_split() / split_.degree;
    pass.add(host,
             times_.time(here.op, PassKind::Forward, here.samples, 0, 2 * rows * sent.features * times_.weight()));
  }

  double bytes(const Here& here, const Amount& amount, double of_weights) const {
    const double tensors = amount.on_device(value(), split_) * here.samples;
    return tensors > 0 ? tensors + here.parameters * of_weights : 0;
  }

  // A pass that takes `whole`: also in t parts, of as many rows each.
  DividedProduct in_parts(const Here& here, PassKind pass, double whole, double flops, const Amount& amount,
                          const OperatorTimes& times) const {
    const double t = split_.degree;
    const double moved = amount.on_device(value(), split_) * here.samples / t + here.parameters * times_.weight();
    return {whole, times.time(here.op, pass, here.samples / t, flops * here.flops / t, moved) * t};
  }

  KernelQueue reduced(const PassKernels& pass, const Amount& amount, int count) const {
    const double exchanged = of_.collectives(work_, amount, count, here_);
    return pass.with(count, host_.collective, exchanged * of_.left_of(pass, exchanged, count));
  }
  // Where tokens are sent to their experts, no group sums up what these make.
  Amount of_all(Amount amount) const { return split_.sends_tokens() ? amount - work_.reduced_by_experts : amount; }
  int times(int count) const { return split_.sends_tokens() ? count - work_.expert_layers : count; }

  bool is_repeated(const Operator& op) const { return &op < work_.operators.data() + repeated_; }
  // The host reads how many rows each expert gets before it can go on, unless shapes do not depend on it.    [Megatron26]
  bool counts_rows(const Operator& op) const {
    return op.name == "dispatch" && !plan_.expert_padding && of_.scenario_.training.execution != Execution::Graphs;
  }
  static bool returns(const Operator& op) { return op.name == "combine"; }
  static bool columns(const Operator& op) { return op.shape.divided == ProductOfLayer::Divided::Columns; }
  bool beside(const Operator& op) const {
    return of_.overlaps() && !op.expert && op.weights != Weights::Adapter &&
           (columns(op) || op.shape.divided == ProductOfLayer::Divided::Depth);
  }
  Bytes value() const { return {static_cast<std::int64_t>(times_.weight())}; }

  const WorkPasses& of_;
  const OperatorTimes& times_;
  const PlanRequest& plan_;
  const TensorParallel& split_;
  const Work& work_;
  double whole_, here_;  // samples: whose tokens devices share, and those of so many tokens as this one has
  IssueTimes host_;
  std::size_t repeated_;  // operators of a forward that is repeated
  PassKernels forward_, input_, weight_, core_, again_;
  std::vector<ColumnGradients> columns_;  // beside exchanges in one piece
  LeftOfBackward left_;                   // to wait for
  ProductOfLayer scores_;
  Beside beside_dispatch_, beside_combine_;
  double experts_here_ = 1;  // of the layer's, that a device holds
};

CostSource::Passes WorkPasses::price(const Work& work, double samples) const {
  const PassesOfWork of(*this, work, samples);
  const IssuedPasses issued = of.issued();
  CostSource::Passes passes;
  passes.forward = issued.forward.device;
  passes.backward_input = issued.input.device;
  passes.backward_weight = issued.weight.device;
  passes.rebuild = issued.rebuild.device;
  passes.again = issued.again.device;
  passes.apart = of.apart();
  if (host_limits()) passes.issued = issued;
  return passes;
}

}  // namespace pipewright::core
