#include "study/compared_sides.hpp"

#include <cstddef>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "core/check.hpp"
#include "io/read/read_file.hpp"
#include "io/read/read_result.hpp"
#include "planner/answer.hpp"

namespace pipewright::study {
namespace {

constexpr std::size_t kLargestDocument = std::size_t{256} << 20;  // 4096 workers are 6 MB

std::string with_changes(const std::string& path, const std::vector<std::string>& set) {
  return set.empty() ? path : fmt::format("{} with {}", path, fmt::join(set, ", "));
}

LoadedSide from_document(const std::string& path, const std::vector<std::string>& set) {
  if (!set.empty())
    throw InputError("compare: " + path + " is a result, in which nothing can be changed; name its scenario instead");
  return {nullptr, nullptr, {path, parse_result(read_file(path, kLargestDocument), path), {}, nullptr}};
}

LoadedSide simulated_side(const std::string& path, ReadOptions how, const std::vector<std::string>& own) {
  how.set.insert(how.set.end(), own.begin(), own.end());
  LoadedSide loaded;
  loaded.scenario = std::make_unique<Scenario>(read_scenario(path, how));
  auto result = answer(*loaded.scenario, {.engine = Engine::Auto, .ignore_memory = true});
  loaded.answer = std::make_unique<Answer>(std::get<Answer>(std::move(result)));
  loaded.side = {with_changes(path, own), parse_result(json_report(*loaded.answer), path),
                 flat_values(*loaded.scenario), loaded.answer.get()};
  return loaded;
}

}  // namespace

LoadedSide loaded_side(const std::string& path, const ReadOptions& how, const std::vector<std::string>& own) {
  return path.ends_with(".json") ? from_document(path, own) : simulated_side(path, how, own);
}

}  // namespace pipewright::study
