#include "calibrate/numeric_check.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/cost/cost_model.hpp"
#include "kernels/storage.hpp"

namespace pipewright::calibrate {
namespace {

constexpr double kSingle = 2e-5, kTf32 = 1e-3;

int storings(const DeviceMeasurement& m) {
  if (m.operation != "attention") return 2;
  return m.pass == MeasuredPass::Forward ? 3 : 5;
}

// Tensor cores cut sums instead of rounding them [Fasi21]: what a sum is off by grows with its terms. 2100 of them are
// off by 2e-6 to 4e-6 of the whole, cut as an A100's cores do.
double single(const DeviceMeasurement& m) {
  return kSingle * std::max(1.0, static_cast<double>(std::max(m.size.rows, m.size.depth)) / 1000);
}

template <class Stored>
double one(const std::byte* at) {
  Stored value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<double>(static_cast<float>(value));
}

}  // namespace

double numeric_limit(const DeviceMeasurement& m, bool stored_in_fp32) {
  if (!computed(m.work)) return 0;
  const double fp32 = m.size.depth > 0 ? single(m) : kSingle;
  switch (m.precision) {
    case Precision::Tf32: return m.size.depth > 0 ? storings(m) / 2.0 * kTf32 : kSingle;
    case Precision::Bf16: return fp32 + (stored_in_fp32 ? 0 : 2 * 0x1p-9 * storings(m));
    case Precision::Fp16: return fp32 + (stored_in_fp32 ? 0 : 2 * 0x1p-12 * storings(m));
    case Precision::Fp32: return kSingle;
    case Precision::Fp8:
    case Precision::Fp4: break;  // not measured
  }
  return 0;
}

void widened(const std::byte* from, std::int64_t values, Precision precision, double* to) {
  const std::int64_t each = weight_bytes(precision).value;
  for (std::int64_t i = 0; i < values; ++i) {
    const std::byte* const at = from + each * i;
    to[i] = precision == Precision::Bf16   ? one<Bf16>(at)
            : precision == Precision::Fp16 ? one<Fp16>(at)
                                           : one<float>(at);
  }
}

double relative_off(std::span<const double> a, std::span<const double> b) {
  PP_CHECK(a.size() == b.size());
  double off = 0, all = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    off += (a[i] - b[i]) * (a[i] - b[i]), all += b[i] * b[i];
  return all > 0 ? std::sqrt(off / all) : std::sqrt(off);
}

std::string wrong_result(const DeviceMeasurement& m, const NumericCheck& check) {
  constexpr std::array<std::string_view, 3> passes = {"forward", "input gradient", "weight gradient"};
  if (collective(m.work)) {
    const std::string who = m.virtual_devices > 1 ? fmt::format("{} virtual devices", m.members)
                            : m.from != m.to      ? fmt::format("GPU {} to {}", m.from, m.to)
                                                  : fmt::format("{} GPUs", m.members);
    return fmt::format("its result is wrong ({}, {} B: off by {:.2g}, allowed {:.2g})", who, m.size.values, check.error,
                       check.limit);
  }
  const std::string size =
      m.size.depth > 0 ? fmt::format("{} x {} x {} x {}", m.size.count, m.size.rows, m.size.columns, m.size.depth)
                       : fmt::format("{} values", m.size.values);
  return fmt::format("its result is wrong ({} of {}{}: off by {:.2g}, allowed {:.2g})",
                     passes[static_cast<std::size_t>(m.pass)], size,
                     m.virtual_devices > 1 ? fmt::format(", 1 of {} virtual devices", m.virtual_devices) : "",
                     check.error, check.limit);
}

}  // namespace pipewright::calibrate
