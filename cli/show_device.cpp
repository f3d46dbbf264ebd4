#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "cli/show.hpp"
#include "core/check.hpp"
#include "io/read/read_scenario.hpp"
#include "io/text/errors.hpp"
#include "io/text/quantity.hpp"
#include "io/writers/shown_device.hpp"
#include "io/writers/writers.hpp"

namespace pipewright::cli {
namespace {

// The links that were given, else those of the first cluster preset of this device.
void find_links(ShownDevice& shown, const Arguments& arguments, const ReadOptions& options) {
  if (arguments.has("--links")) {
    const std::string text = arguments.last("--links", "");
    const auto parsed = parse_bandwidth(text);
    if (!parsed.value) throw InputError(Place{}, "--links", in_quotes(text) + " " + parsed.why);
    if (!(parsed.value->value > 0))
      throw InputError(Place{}, "--links",
                       in_quotes(text) + " moves nothing; write a bandwidth larger than 0, as 450 GB/s");
    shown.links = *parsed.value, shown.links_from = "--links";
    return;
  }
  for (const std::string& path : config_files("clusters", options)) {
    try {
      const Cluster cluster = read_cluster(path, options);
      if (cluster.device.name != shown.device.name || cluster.links.kind == LinkKind::Ideal) continue;
      shown.links = cluster.links.bandwidth, shown.links_from = "cluster " + cluster.name;
      return;
    } catch (const InputError&) {  // `show clusters` tells what is wrong with it
    }
  }
}

}  // namespace

int show_device(const Arguments& arguments, const std::function<std::string(const std::string& file)>& summary) {
  if (arguments.positional.size() < 2)
    throw InputError("show device: names no device; write a name of `pipewright show devices`, or a file of a device");
  const ReadOptions options{.set = {}, .config_path = config_path()};
  ShownDevice shown;
  shown.curve = arguments.has("--curve"), shown.points_file = arguments.last("--points", "");
  const std::vector<std::string> outputs = arguments.all("--output");
  const auto needs = [&](const char* option, bool there, const char* what) {
    if (arguments.has(option) && !there) throw InputError(fmt::format("{}: is for {}; add it", option, what));
  };
  needs("--links", shown.curve, "--curve");
  needs("--every", arguments.has("--points"), "--points FILE");
  needs("--output", shown.curve || arguments.has("--points"), "--curve or --points FILE");
  shown.every = static_cast<int>(option_number(arguments, "--every", {2, 1'000'000}, "5").value_or(0));
  const std::string& name = arguments.positional[1];
  const bool is_file = name.find('/') != std::string::npos || std::filesystem::exists(name);
  shown.file = is_file ? name : config_file("devices", name, options);
  shown.device = read_device(shown.file, options);
  shown.summary = summary(shown.file);
  shown.base = curve_base(shown.device);
  constexpr std::array<std::string_view, 1> kEndings = {".svg"};
  check_outputs(outputs, {shown.file, shown.points_file}, kEndings);
  const bool products = shown.base && product_curve(shown.device);
  if (arguments.has("--points") && !products)
    throw InputError(Place{}, "--points",
                     in_quotes(shown.device.name) +
                         " has no curve of matrix products (efficiency.matrix_product.tiles) to compare; leave it out");
  if (!outputs.empty() && !products && !(shown.base && !attention_kernels(shown.device).empty()) &&
      !(shown.device.collectives))
    throw InputError(Place{}, "--output", in_quotes(shown.device.name) + " has no curves to draw; leave it out");
  if (arguments.has("--points")) shown.points = read_measured_products(shown.points_file, shown.every);
  if (shown.curve && shown.device.collectives) find_links(shown, arguments, options);
  shown.written = outputs;
  print(arguments.has("--json") ? device_json(shown) : device_tables(shown, output_width(arguments)));
  for (const std::string& output : outputs)
    write_output(output, device_curve_svg(shown), "curves by size");
  return kDone;
}

}  // namespace pipewright::cli
