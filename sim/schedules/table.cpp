#include "sim/schedules/table.hpp"

#include <algorithm>
#include <array>

#include "core/folds.hpp"
#include "sim/schedules/expand.hpp"
#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

std::string chunks_refusal(const ScheduleRule& rule, const ScheduleShape& shape) {
  const std::string name(rule.name), has = "virtual_stages is " + std::to_string(shape.virtual_stages);
  if (rule.chunks == 2 && shape.virtual_stages != 2)
    return name + " has two chunks on each stage, one on the way to the last stage and one on the way back, but " +
           has + ": set plan.virtual_stages: 2";
  if (!rule.facts.takes_chunks && !rule.from_file && shape.virtual_stages > 1)
    return name + " keeps each stage in one piece, but " + has +
           ": set plan.virtual_stages: 1, or use schedule: interleaved_1f1b";
  return "";
}

}  // namespace

std::span<const ScheduleRule> schedules() {
  static const std::array rules = {
      naive(),             //
      gpipe(),             //
      one_f_one_b(),       //
      eager_1f1b(),        //
      bpipe(),             //
      seq1f1b(),           //
      interleaved_1f1b(),  //
      moe_overlap_1f1b(),  //
      looped_bfs(),        //
      zb_h1(),             //
      zb_h2(),             //
      zb_auto(),           //
      search_order(),      //
      interleaved_zb(),    //
      zbv(),               //
      zbv_auto(),          //
      v_half(),            //
      v_min(),             //
      v_zb(),              //
      v_1f1b(),            //
      v_auto(),            //
      v_search(),          //
      hanayo(),            //
      gems(),              //
      chimera(),           //
      dualpipe(),          //
      dualpipev(),         //
      pipedream(),         //
      pipedream_2bw(),     //
      data_parallel(),
  };
  return rules;
}

const ScheduleRule* find_schedule(std::string_view name) {
  static const ScheduleRule given = given_order();
  if (name == given.name) return &given;
  const auto all = schedules();
  const auto found = std::ranges::find_if(all, [&](const ScheduleRule& rule) { return rule.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::string ScheduleRule::refusal(const ScheduleShape& shape) const {
  if (std::string why = chunks_refusal(*this, shape); !why.empty()) return why;
  if (std::string why = shape_refusal(shape, from_file ? shape.chunk_order : chunk_order); !why.empty()) return why;
  if (std::string why = also_refused == nullptr ? "" : also_refused(shape); !why.empty()) return why;
  if (facts.takes_replicas || !has_replicas(shape)) return "";
  return std::string(name) +
         " has one worker per stage, but plan.replicas asks for more: leave it out, use plan.data_parallel for whole "
         "copies, or use schedule: gpipe, 1f1b or pipedream";
}

Schedule ScheduleRule::generate(const ScheduleShape& shape) const {
  ScheduleShape whole = shape;
  whole.units = 1, whole.buckets.clear(), whole.offloaded.clear();
  Schedule schedule = compute(whole);
  expand(*this, shape, schedule);
  return schedule;
}

std::optional<Formula> textbook_bubble(const ScheduleRule& rule, const ScheduleShape& shape, const PassTimes& times) {
  if (rule.bubble_of_times != nullptr) return rule.bubble_of_times(shape, times);
  return rule.bubble != nullptr ? rule.bubble(shape) : std::nullopt;
}

std::vector<std::string_view> schedule_names() {
  return mapped<std::string_view>(schedules(), &ScheduleRule::name);
}

std::vector<std::string> schedule_names(const std::function<bool(const ScheduleRule&)>& has) {
  std::vector<std::string> names;
  for (const ScheduleRule& rule : schedules())
    if (has(rule)) names.emplace_back(rule.name);
  return names;
}

std::vector<std::string> searched_schedules(int ScheduleRule::*place) {
  std::vector<std::string> names = schedule_names([&](const ScheduleRule& rule) { return rule.*place > 0; });
  std::ranges::sort(names, [&](const std::string& a, const std::string& b) {
    return find_schedule(a)->*place < find_schedule(b)->*place;
  });
  return names;
}

}  // namespace pipewright::sim
