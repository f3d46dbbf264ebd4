#include "tests/support/pictures.hpp"

#include "core/check.hpp"

namespace pipewright::tests {
namespace {

char symbol(const Op& op) {
  switch (op.kind) {
    case Kind::F: return static_cast<char>('0' + op.micro_batch % 10);
    case Kind::B:
    case Kind::BW: return static_cast<char>('a' + op.micro_batch % 26);
    case Kind::R: return static_cast<char>('A' + op.micro_batch % 26);
    case Kind::W: return 'w';
    case Kind::Update: return 'u';
    default: return '?';
  }
}

}  // namespace

std::string picture(const Schedule& schedule, const Timeline& timeline, Time unit) {
  std::string drawing = "\n";
  for (std::size_t worker = 0; worker < timeline.workers.size(); ++worker) {
    std::string row(static_cast<std::size_t>(timeline.makespan.value / unit.value), '.');
    const auto& ops = schedule.lane_of(WorkerId{worker}).compute;
    const auto& spans = timeline.workers[worker].compute;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      PP_CHECK(spans[i].start.value % unit.value == 0 && spans[i].end.value % unit.value == 0);
      for (auto t = spans[i].start.value / unit.value; t < spans[i].end.value / unit.value; ++t)
        row[static_cast<std::size_t>(t)] = symbol(ops[i]);
    }
    drawing += row + "\n";
  }
  return drawing;
}

}  // namespace pipewright::tests
