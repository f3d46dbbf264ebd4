// One row per worker, comma separated, quoted as in RFC 4180. Units stand in the names.
#include <fmt/format.h>

#include "io/text/format_quantity.hpp"
#include "io/text/quote.hpp"
#include "io/writers/drawing.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::io {
std::string csv_report(const Answer& answer) {
  std::string text =
      "worker,copy,stage,replica,device,layers,busy_s,forward_s,backward_s,recompute_s,update_s,idle_s,fill_s,"
      "imbalance_s,communication_s,stall_s,drain_s,busy_fraction";
  for (const auto name : kMemoryCategories)
    text += fmt::format(",{}_bytes", name);
  text +=
      ",peak_memory_bytes,rounding_bytes,with_reserve_bytes,capacity_bytes,peak_at_s,peak_owner,weight_versions,in_"
      "flight,fits\n";
  for (const WorkerReport& w : answer.report.workers) {
    const auto& layers = answer.report.stages[at(w.stage)].layers;
    text +=
        fmt::format("{},{},{},{},{},{}", w.id, w.copy, w.stage, w.replica, w.device, csv_field(layer_ranges(layers)));
    for (const Time time : {w.busy, w.forward, w.backward, w.recompute, w.update, w.idle.total(), w.idle.fill,
                            w.idle.imbalance, w.idle.communication, w.idle.stall, w.idle.drain})
      text += "," + exact_seconds(time);
    text += fmt::format(",{:.6f}", ratio(w.busy, answer.timeline.makespan));
    for (std::size_t i = 0; i < kMemoryCategories.size(); ++i)
      text += fmt::format(",{}", category(w.memory.bytes, i).value);
    text += fmt::format(",{},{},{},{},{},{},{},{},{}\n", w.memory.bytes.total().value, w.need.rounding.value,
                        w.need.with_reserve.value, w.need.capacity.value, exact_seconds(w.memory.at),
                        label(w.memory.owner), w.memory.weight_versions, w.memory.in_flight, w.fits ? 1 : 0);
  }
  return text;
}

}  // namespace pipewright::io
