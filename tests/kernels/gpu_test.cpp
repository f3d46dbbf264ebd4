// Kernels and virtual devices on a GPU. Without one the program ends with status 77 (skipped) and the reason.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "kernels/cublas_lt.hpp"
#include "kernels/gpu_api.hpp"
#include "kernels/gpu_graph.hpp"
#include "kernels/gpu_kernels.hpp"
#include "kernels/library_products.hpp"
#include "kernels/probes.hpp"
#include "tests/kernels/kernel_cases.hpp"
#include "tests/kernels/kernel_runs.hpp"
#include "tests/kernels/reference.hpp"

namespace pipewright::tests::kernel_test {
namespace {

// What is to be left out under compute-sanitizer (docs/how-it-works/gpu.md): there everything takes longer, and a call
// that is refused on purpose is none of its findings.
const char* const kNotUnderSanitizer = "not under compute-sanitizer";

// A block on the GPU with the contents of a vector.
template <class V>
GpuMemory uploaded(GpuStream stream, const std::vector<V>& values) {
  const Bytes bytes{static_cast<std::int64_t>(std::max<std::size_t>(1, values.size()) * sizeof(V))};
  GpuMemory block(0, bytes);
  if (!values.empty())
    gpu_copy(stream, block.data(), values.data(), {static_cast<std::int64_t>(values.size() * sizeof(V))},
             GpuCopy::HostToDevice);
  return block;
}
template <class V>
void download(GpuStream stream, const GpuMemory& block, std::vector<V>& values) {
  if (values.empty()) return;
  gpu_copy(stream, values.data(), block.data(), {static_cast<std::int64_t>(values.size() * sizeof(V))},
           GpuCopy::DeviceToHost);
  gpu_finish(stream);
}

// As HostRun, on GPU 0.
template <class T>
class GpuRun {
 public:
  template <class Call>
  GpuRun(const KernelCase& kernel, const Call& call, const grid_kernels::Queue& queue)
      : arrays(host_arrays<T, T>(kernel)), positions(static_cast<std::size_t>(kernel.positions)) {
    std::vector<GpuMemory> blocks;
    KernelArguments<T> arguments{&kernel, {}, nullptr, nullptr, nullptr};
    for (const HostArray<T>& array : arrays) {
      const Bytes bytes{static_cast<std::int64_t>(array.bytes())};
      blocks.emplace_back(0, bytes + Bytes{1});
      if (bytes.value > 0) gpu_copy(queue.stream, blocks.back().data(), array.data(), bytes, GpuCopy::HostToDevice);
      arguments.p.push_back(blocks.back().data());
    }
    const GpuMemory index = uploaded(queue.stream, kernel.index), places = uploaded(queue.stream, positions);
    const GpuMemory order = uploaded(queue.stream, std::vector<I>(static_cast<std::size_t>(kernel.order)));
    arguments.index = static_cast<const I*>(index.data());
    arguments.positions = static_cast<std::int32_t*>(places.data());
    arguments.order = static_cast<I*>(order.data());
    call(queue, arguments);
    gpu_finish(queue.stream);
    for (std::size_t i = 0; i < arrays.size(); ++i)
      if (const Bytes bytes{static_cast<std::int64_t>(arrays[i].bytes())}; bytes.value > 0)
        gpu_copy(queue.stream, arrays[i].data(), blocks[i].data(), bytes, GpuCopy::DeviceToHost);
    gpu_finish(queue.stream);
    download(queue.stream, places, positions);
  }

  std::vector<HostArray<T>> arrays;
  std::vector<std::int32_t> positions;
};

template <class T>
void check_kernels_stored_as() {
  const VirtualDevices whole(0, 1, 1);
  visit_kernels([&](const KernelCase& kernel, const auto& call) {
    CAPTURE(kernel.name);
    const HostRun<double, T> expected(kernel, call, reference::Reference{});
    const GpuRun<T> one_block(kernel, call, grid_kernels::Queue{whole.stream(0), 1});
    CHECK(largest_difference<T>(kernel, one_block, expected) < 1);
    for (const int blocks : {3, 8 * whole.sms(0)}) {
      const GpuRun<T> other(kernel, call, grid_kernels::Queue{whole.stream(0), blocks});
      CHECK(same_bits(kernel, one_block, other));
    }
  });
}

TEST_CASE("Every kernel computes what the CPU backend computes in double, and has the same bits on any grid") {
  check_kernels_stored_as<float>();
}
TEST_CASE("Stored in bf16, every kernel is off by its roundings alone") {
  check_kernels_stored_as<Bf16>();
}
TEST_CASE("Stored in fp16, every kernel is off by its roundings alone") {
  check_kernels_stored_as<Fp16>();
}

// Floats over the whole range, those near the ends of the formats among them.
template <class T>
void check_conversions() {
  const VirtualDevices whole(0, 1, 1);
  std::vector<float> floats;
  for (std::uint32_t i = 0; i < 1u << 20; ++i)
    floats.push_back(std::bit_cast<float>(i * 4097u));  // wraps around: every exponent, many fractions
  std::vector<T> stored(floats.size());
  std::vector<float> back(floats.size());
  const auto n = static_cast<I>(floats.size());
  const GpuMemory from = uploaded(whole.stream(0), floats), to = uploaded(whole.stream(0), stored);
  const GpuMemory again = uploaded(whole.stream(0), back);
  grid_kernels::convert(grid_kernels::Queue{whole.stream(0), 64}, n, static_cast<const float*>(from.data()),
                        static_cast<T*>(to.data()));
  grid_kernels::convert(grid_kernels::Queue{whole.stream(0), 64}, n, static_cast<const T*>(to.data()),
                        static_cast<float*>(again.data()));
  download(whole.stream(0), to, stored);
  download(whole.stream(0), again, back);
  int differing = 0;
  for (std::size_t i = 0; i < floats.size(); ++i) {
    const T here(floats[i]);
    const float value = here;
    differing += here.bits == stored[i].bits && (value == back[i] || value != value) ? 0 : 1;
  }
  CHECK(differing == 0);
}

TEST_CASE("A GPU rounds to 16 bits, and reads them, as the host does") {
  check_conversions<Bf16>();
  check_conversions<Fp16>();
}

// What moves values over more than 2^31 of them: the last row is what it is in a tensor of its own.
TEST_CASE("Kernels reach the last row of a tensor of more than 2^31 values" * doctest::test_suite(kNotUnderSanitizer)) {
  constexpr I f = 1024, rows = (I{1} << 31) / f + 1, n = rows * f;
  const Bytes whole_tensor{n * I{sizeof(Bf16)}}, row{f * I{sizeof(Bf16)}};
  if (gpu_free_memory(0) < Bytes{3 * whole_tensor.value}) {
    MESSAGE("not tried: two tensors of 4 GiB do not fit beside the rest");
    return;
  }
  const VirtualDevices whole(0, 1, 1);
  const GpuStream stream = whole.stream(0);
  const grid_kernels::Queue queue = grid_kernels::queue_of(stream, whole.sms(0));
  std::vector<Bf16> values;
  for (I i = 0; i < f; ++i)
    values.push_back(Bf16(1 + grid_kernels::unit_of(grid_kernels::random_bits(1, static_cast<std::uint64_t>(i)))));
  const GpuMemory x(0, whole_tensor), y(0, whole_tensor), one = uploaded(stream, values), result(0, row);
  gpu_zero(stream, x.data(), whole_tensor);
  const auto last = [](const GpuMemory& tensor) { return static_cast<Bf16*>(tensor.data()) + (n - f); };
  gpu_copy(stream, last(x), one.data(), row, GpuCopy::DeviceToDevice);
  const auto bits_at = [&](const void* at) {
    std::vector<std::uint16_t> bits(static_cast<std::size_t>(f));
    gpu_copy(stream, bits.data(), at, row, GpuCopy::DeviceToHost);
    gpu_finish(stream);
    return bits;
  };
  const auto check = [&](const std::string& name, const auto& call) {
    CAPTURE(name);
    gpu_zero(stream, last(y), row);
    call(rows, static_cast<const Bf16*>(x.data()), static_cast<Bf16*>(y.data()));
    call(I{1}, static_cast<const Bf16*>(one.data()), static_cast<Bf16*>(result.data()));
    CHECK(bits_at(last(y)) == bits_at(result.data()));
  };
  check("copy", [&](I r, const Bf16* from, Bf16* to) { grid_kernels::copy_values(queue, r * f, from, to); });
  check("gelu",
        [&](I r, const Bf16* from, Bf16* to) { grid_kernels::activation(queue, GpuFunction::Gelu, r * f, from, to); });
  check("softmax", [&](I r, const Bf16* from, Bf16* to) { grid_kernels::softmax(queue, r, f, from, to); });
}

// The SMs that blocks of a stream run on.
std::set<std::uint32_t> sms_of(GpuStream stream, int sms) {
  std::vector<std::uint32_t> ids(static_cast<std::size_t>(64 * sms));
  const GpuMemory block = uploaded(stream, ids);
  launch_sm_probe(stream, 64 * sms, Time{200'000}, static_cast<std::uint32_t*>(block.data()));
  gpu_finish(stream);
  download(stream, block, ids);
  return {ids.begin(), ids.end()};
}

TEST_CASE("Virtual devices are disjoint sets of SMs, none larger than it says") {
  for (const int groups : {2, 4, 8}) {
    CAPTURE(groups);
    const VirtualDevices devices(0, groups, 1);
    std::set<std::uint32_t> seen;
    for (int i = 0; i < devices.count(); ++i) {
      const std::set<std::uint32_t> own = sms_of(devices.stream(i), devices.sms(i));
      CHECK(static_cast<int>(own.size()) <= devices.sms(i));
      for (const std::uint32_t sm : own)
        CHECK(seen.insert(sm).second);
    }
  }
}

TEST_CASE("A graph does what was recorded, as often as it is launched, on the SMs of the stream that recorded it") {
  const VirtualDevices devices(0, 2, 1);
  const GpuStream stream = devices.stream(0);
  const grid_kernels::Queue queue = grid_kernels::queue_of(stream, devices.sms(0));
  constexpr I n = 10'000;
  std::vector<float> values(n, 1.0F);
  const GpuMemory one = uploaded(stream, values), sum = uploaded(stream, values);
  const auto add_one = [&] {
    float* const to = static_cast<float*>(sum.data());
    grid_kernels::add(queue, n, static_cast<const float*>(one.data()), static_cast<const float*>(to), to);
  };
  add_one();  // 2
  gpu_finish(stream);
  const GpuGraph graph(stream, [&] { add_one(), add_one(); });
  download(stream, sum, values);
  CHECK(values == std::vector<float>(n, 2.0F));  // recording runs nothing
  for (int i = 0; i < 3; ++i)
    graph.launch(stream);
  download(stream, sum, values);
  CHECK(values == std::vector<float>(n, 8.0F));
  // What fails while it is recorded is told, and leaves a stream that takes work.
  CHECK_THROWS_WITH_AS(GpuGraph(stream, [] { throw GpuError("not this"); }), "not this", GpuError);
  add_one();
  download(stream, sum, values);
  CHECK(values == std::vector<float>(n, 9.0F));

  const int blocks = 64 * devices.sms(0);
  std::vector<std::uint32_t> ids(static_cast<std::size_t>(blocks));
  const GpuMemory there = uploaded(stream, ids);
  const auto probe = [&] { launch_sm_probe(stream, blocks, Time{200'000}, static_cast<std::uint32_t*>(there.data())); };
  probe();
  gpu_finish(stream);
  const GpuGraph probes(stream, probe);
  gpu_zero(stream, there.data(), there.bytes());
  probes.launch(stream);
  download(stream, there, ids);
  const std::set<std::uint32_t> own(ids.begin(), ids.end());
  CHECK(static_cast<int>(own.size()) <= devices.sms(0));
  for (const std::uint32_t sm : sms_of(devices.stream(1), devices.sms(1)))
    CHECK(own.count(sm) == 0);
}

TEST_CASE("Delays of all virtual devices run at once" * doctest::test_suite(kNotUnderSanitizer)) {
  const VirtualDevices devices(0, 4, 1);
  GpuEvent begin(0), end(0);
  for (int i = 0; i < 4; ++i)
    launch_delay(devices.stream(i), Time{1000});  // the first launch loads the kernel
  for (int i = 0; i < 4; ++i)
    gpu_finish(devices.stream(i));
  begin.record(devices.stream(0));
  for (int i = 1; i < 4; ++i)
    begin.wait_on(devices.stream(i));
  for (int i = 0; i < 4; ++i)
    launch_delay(devices.stream(i), Time{20'000'000});
  std::vector<GpuEvent> ends;
  for (int i = 1; i < 4; ++i) {
    ends.emplace_back(0);
    ends.back().record(devices.stream(i));
    ends.back().wait_on(devices.stream(0));
  }
  end.record(devices.stream(0));
  end.wait();
  CHECK(elapsed(begin, end) >= Time{20'000'000});
  CHECK(elapsed(begin, end) < Time{40'000'000});  // two after one another
}

TEST_CASE("The clock probe reads a clock below 10 GHz, and a gate holds its stream until it is opened" *
          doctest::test_suite(kNotUnderSanitizer)) {
  const VirtualDevices whole(0, 1, 1);
  std::vector<SmClockReading> readings(1);
  const GpuMemory block = uploaded(whole.stream(0), readings);
  launch_clock_probe(whole.stream(0), Time{1'000'000}, static_cast<SmClockReading*>(block.data()));
  download(whole.stream(0), block, readings);
  CHECK(readings[0].nanoseconds >= 1'000'000);
  CHECK(readings[0].cycles > readings[0].nanoseconds / 10);
  CHECK(readings[0].cycles < readings[0].nanoseconds * 10);

  launch_empty(whole.stream(0));  // loads it
  gpu_finish(whole.stream(0));
  StreamGate gate(0);
  GpuEvent behind(0);
  gate.close(whole.stream(0));
  launch_empty(whole.stream(0));
  behind.record(whole.stream(0));
  CHECK_FALSE(behind.passed());
  gate.open();
  behind.wait();
  CHECK(behind.passed());
  L2Flush flush(0);
  flush.launch(whole.stream(0));
  gpu_finish(whole.stream(0));
}

TEST_CASE("cuBLASLt computes the products of a linear layer, each way round, where it is there") {
  bool there = false;
  for (const GpuLibrary& library : gpu_system().libraries)
    there = there || (library.name == "cuBLASLt" && !library.path.empty());
  if (!there) {
    CHECK_THROWS_AS(Matmul(GpuPrecision::Fp32, {8, 8, 8}, 1, Bytes{}), GpuError);
    return;
  }
  constexpr I rows = 64, in = 32, out = 48;
  const KernelCase kernel = {"cublas", {{Role::In, rows * in}, {Role::In, out * in}, {Role::In, rows * out}}};
  const auto exact = first_contents<float>(kernel);
  std::vector<std::vector<float>> floats;
  for (const std::vector<double>& values : exact)
    floats.emplace_back(values.begin(), values.end());
  std::vector<double> y(rows * out), dx(rows * in), dw(out * in, 1.0);
  cpu_kernels::linear<double>(rows, in, out, exact[0].data(), exact[1].data(), nullptr, y.data());
  cpu_kernels::linear_input_gradient<double>(rows, in, out, exact[2].data(), exact[1].data(), dx.data());
  cpu_kernels::linear_weight_gradient<double>(rows, in, out, exact[0].data(), exact[2].data(), dw.data(), nullptr);
  const VirtualDevices whole(0, 1, 1);
  const GpuStream stream = whole.stream(0);
  const auto check = [&](const MatmulShape& shape, std::size_t a, std::size_t b, const std::vector<double>& expected,
                         bool add) {
    // What docs/how-it-works/gpu.md allows for |difference| / |right|: fp32 1e-5, tf32 1e-3.
    for (const auto& [precision, allowed] :
         {std::pair{GpuPrecision::Fp32, 1e-5}, std::pair{GpuPrecision::Tf32, 1e-3}}) {
      const Matmul product(precision, shape, whole.sms(0), Bytes{32 << 20});
      const GpuMemory left = uploaded(stream, floats[a]), right = uploaded(stream, floats[b]);
      const GpuMemory workspace(0, product.workspace() + Bytes{1});
      std::vector<float> c(expected.size(), 1.0f);
      const GpuMemory into = uploaded(stream, c);
      product.launch(stream, left.data(), right.data(), static_cast<float*>(into.data()), add, workspace.data());
      download(stream, into, c);
      double difference = 0, norm = 0;
      for (std::size_t i = 0; i < c.size(); ++i) {
        difference += std::pow(static_cast<double>(c[i]) - expected[i], 2);
        norm += std::pow(expected[i], 2);
      }
      CHECK(std::sqrt(difference / norm) < allowed);
    }
  };
  CHECK(Matmul(GpuPrecision::Fp32, {4096, 4096, 4096, false, true}, whole.sms(0), Bytes{32 << 20}).algorithm().waves >
        0);
  check({rows, out, in, false, true}, 0, 1, y, false);
  check({rows, in, out, false, false}, 2, 1, dx, false);
  check({out, in, rows, true, false}, 2, 0, dw, true);
}

// Linear layers alone; other kernels have no library behind them.
template <class T>
void check_library_stored_as(GpuPrecision precision) {
  const VirtualDevices whole(0, 1, 1);
  LibraryProducts library(precision, whole.sms(0));
  visit_products([&](const KernelCase& kernel, const auto& call) {
    if (kernel.name.rfind("linear", 0) != 0) return;
    CAPTURE(kernel.name);
    KernelCase twice = kernel;
    twice.roundings = 2;  // the product, and with the bias
    const HostRun<double, T> expected(twice, call, reference::Reference{});
    const GpuRun<T> by_library(twice, call, grid_kernels::Queue{whole.stream(0), 8 * whole.sms(0), false, &library});
    CHECK(largest_difference<T>(twice, by_library, expected) < 1);
  });
}

TEST_CASE("A queue with the library computes linear layers as one without, within the roundings") {
  if (!has_library_products()) return;
  check_library_stored_as<float>(GpuPrecision::Fp32);
  check_library_stored_as<Bf16>(GpuPrecision::Bf16);
  check_library_stored_as<Fp16>(GpuPrecision::Fp16);
}

TEST_CASE("An all-reduce around virtual devices sums in the ring's order") {
  for (const int members : {2, 4}) {
    constexpr std::size_t n = 10007;
    const VirtualDevices devices(0, members, 1);
    const auto count = static_cast<std::size_t>(members);
    std::vector<std::vector<float>> before(count, std::vector<float>(n));
    std::vector<GpuMemory> blocks;
    std::vector<float*> buffers;
    std::vector<grid_kernels::Queue> queues;
    for (std::size_t m = 0; m < count; ++m) {
      for (std::size_t i = 0; i < n; ++i)
        before[m][i] = 2 * grid_kernels::unit_of(grid_kernels::random_bits(m + 1, i)) - 1;
      const auto group = static_cast<int>(m);
      queues.push_back(grid_kernels::queue_of(devices.stream(group), devices.sms(group)));
      blocks.push_back(uploaded(devices.stream(group), before[m]));
      buffers.push_back(static_cast<float*>(blocks.back().data()));
    }
    grid_kernels::ring_all_reduce(0, queues, buffers, static_cast<I>(n));
    for (std::size_t m = 0; m < count; ++m) {
      std::vector<float> got(n);
      download(devices.stream(static_cast<int>(m)), blocks[m], got);
      std::size_t wrong = 0;
      for (std::size_t chunk = 0; chunk < count; ++chunk)
        for (std::size_t i = n * chunk / count; i < n * (chunk + 1) / count; ++i) {
          float sum = before[chunk][i];
          for (std::size_t k = 1; k < count; ++k)
            sum += before[(chunk + k) % count][i];
          wrong += got[i] == sum ? 0 : 1;
        }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("Memory that is not there is refused with its size, and the next call is not blamed" *
          doctest::test_suite(kNotUnderSanitizer)) {
  CHECK_THROWS_WITH_AS(GpuMemory(0, Bytes{std::int64_t{1} << 50}),
                       "cudaMalloc of 1125899906842624 bytes on GPU 0: out of memory (cudaErrorMemoryAllocation)",
                       GpuError);
  CHECK(GpuMemory(0, Bytes{1024}).data() != nullptr);
}

}  // namespace
}  // namespace pipewright::tests::kernel_test

int main(int argc, char** argv) {
  if (pipewright::kernels::gpu_count() == 0) {
    std::printf("skipped: %s\n", pipewright::kernels::gpu_status().c_str());
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
