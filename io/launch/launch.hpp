// Files that start a plan in a training framework. Each begins with what was predicted, what the framework cannot say,
// and the command that compares the run with the prediction.
//
// Names of flags and settings as of the versions that `framework_version` gives; docs/reference/launch.md lists them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/answers/report.hpp"
#include "core/model/trained_as.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::io {

struct LaunchRequest {
  const Answer& asked;    // the plan
  const Answer& written;  // the nearest that the framework can say; `asked` where that is the plan itself
  std::vector<std::string> differences;    // also what it cannot say though `written` is the plan
  std::string asked_words, written_words;  // "TP4 PP8 VP5 DP2 MBS1 x 64 interleaved_1f1b"
  std::string plan_path;                   // as the user named it
  std::string command;                     // how this was made
  std::vector<std::string> set{};          // changes behind plan_path that make it the plan written, for --set
  bool set_says_all = true;                // false: no --set says the rest
  bool sbatch = false;                     // as a Slurm job
  // Why a run cannot compute the model's layers; "": it can, and they are written.
  std::string layers_refused = "it was not asked whether a run can compute its operators";
  std::vector<std::string> stand_ins{};  // as below
};

// Of the layers below that stand in a program for the model's own.
constexpr int kMadeUpWidth = 64;
// What the file for `target` has in place of what is the reader's, though it can express the plan: "layers and data are
// placeholders (width 64); replace them with yours".
std::vector<std::string> stand_ins(std::string_view target, std::string_view layers_refused);

std::string megatron_launch(const LaunchRequest& request);    // a shell script
std::string deepspeed_launch(const LaunchRequest& request);   // a Python program that holds its own JSON
std::string torchtitan_launch(const LaunchRequest& request);  // a Python recipe for torchtitan's config registry
// What torchtitan lacks though it can express the plan, as differences; of a model that check_model takes.
std::vector<std::string> torchtitan_lacks(const Model& model);
std::string torch_launch(const LaunchRequest& request);  // a Python program on torch.distributed.pipelining
std::string slurm_launch(const LaunchRequest& request);  // a Slurm job around `pipewright run`

// What a scenario says in words (names, descriptions, paths) stands in comments and in arguments of commands, through
// `comment` and `shell_word` of io/text/quote.hpp, and nowhere in a program's code: that has numbers and names of its own.

// The header's lines, each a comment.
std::string launch_header(const LaunchRequest& request, std::string_view framework, std::string_view version,
                          std::string_view afterwards);

// #SBATCH lines for the devices of a plan: whole nodes. `tasks_per_node`: 1 where a launcher starts the others.
std::string sbatch_lines(const LaunchRequest& request, int tasks_per_node);

// Nodes that a plan takes devices of. A launcher starts as many ranks on each of them: throws InputError where the plan
// takes more devices of one than of another.
struct NodeShape {
  int nodes = 1, per_node = 1;  // nodes * per_node: the plan's devices
};
NodeShape nodes_of(const Answer& answer);

// "torchrun --nnodes=2 --nproc-per-node=8 --rdzv-id=ID --rdzv-backend=c10d --rdzv-endpoint=HEAD:29500"
std::string torchrun(const Answer& answer, std::string_view id, std::string_view head);
// The same as a person types it, on every node where there are several: "torchrun --nproc-per-node=4".
std::string torchrun_by_hand(const Answer& answer);

// "# Run with: COMMAND": on every node where there are several, and what HEAD_NODE stands for.
std::string run_with(const Answer& answer, const std::string& command, std::string_view more = "");

// "PLAN --set plan.stages=2": what names the plan written on a command line.
std::string plan_named(const LaunchRequest& request);

// Whether ranks count the copies of a stage first, then its stages; one copy or one stage: no.
bool copies_first(const Plan& plan);

// `script` as a job: a shell script as it is; a Python program is written to a file first.
std::string torchrun_job(const LaunchRequest& request, const std::string& program, const std::string& file);

// The header of a Python program, below a line that says how it is encoded: of the first two lines a comment with
// "coding: utf-7" in it would make Python read what follows as UTF-7, where "+AAo-" is a line end.           PEP 263
std::string python_head(const LaunchRequest& request, std::string_view framework, std::string_view version);

// "ROPE_THETA = 500000\n..": what is known of how the model is trained, for layers that are the user's; "" if nothing.
std::string python_trained_as(const Model& model);
// The same in words: "rope_theta 500000, rope_scaling none, norm epsilon 1e-05".
std::string trained_as_in_words(const TrainedAs& trained);

// Megatron-LM's --pipeline-model-parallel-layout: which layers on which chunk.                         [MegatronPP26]
//
//     E embedding   t block   L head and loss   | next chunk   x*n, (..)*n repeated   , nothing
//
// Chunk j lies on pipeline rank j mod K. "Et*2|(t*2|)*34,t*3|(t*2|)*3,tL" is Llama-3 70B on 8 ranks with 5 chunks each.
struct LayoutChunk {
  bool embedding = false;
  std::int64_t blocks = 0;
  bool head = false;
  bool operator==(const LayoutChunk&) const = default;
};
std::string megatron_layout(const std::vector<LayoutChunk>& chunks);

// "plan.schedule=1f1b": every key of `training` and `plan` that `to` has otherwise than `from`, as --set takes it; null
// where `to` has none.
std::vector<std::string> changed_keys(const Scenario& from, const Scenario& to);

}  // namespace pipewright::io
