// A run that is cut in two by a checkpoint ends as the run that was not.
#include "runtime/checkpoint.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/check.hpp"
#include "runtime/backends/cpu.hpp"
#include "runtime/hash.hpp"
#include "runtime/rank_run.hpp"
#include "tests/io/scratch.hpp"
#include "tests/runtime/run_case.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;
namespace fs = std::filesystem;

namespace {

struct Variant {
  std::string name;
  std::vector<std::string> changes;
  RunOptions options;
};

// A model whose steps take a millisecond.
struct SmallCase : RunCase {
  explicit SmallCase(std::vector<std::string> changes, const RunOptions& options = {})
      : RunCase(small(std::move(changes)), options, "small-ops.yaml") {}
  static std::vector<std::string> small(std::vector<std::string> changes) {
    changes.insert(changes.begin(), {"cluster.node.devices=8", "plan.schedule=gpipe", "training.micro_batches=4"});
    return changes;
  }
};

RunSettings of_steps(int steps) {
  RunSettings settings = one_step(steps);
  settings.keep_gradients = false;
  settings.optimizer.learning_rate = 0.05;
  return settings;
}

Checkpoints checkpoints(const RunCase& run, const std::string& folder, int every, int steps,
                        const std::string& version = "1") {
  RunSettings settings = of_steps(steps);
  settings.optimizer.kind = run.scenario.training.optimizer;
  return {folder, every, steps, checkpoint_identity(run.run_plan, settings, *run.data, *cpu_backend(), version),
          run.plan};
}

std::vector<WorkerResult> run_with(const RunCase& run, const Checkpoints& all, int steps) {
  RunSettings settings = of_steps(steps);
  settings.checkpoints = &all;
  return run.run(settings);
}
std::vector<WorkerResult> begun(const RunCase& run, const std::string& folder, int every, int steps) {
  Checkpoints all = checkpoints(run, folder, every, steps);
  all.begin_anew();
  return run_with(run, all, steps);
}
std::vector<WorkerResult> resumed(const RunCase& run, const std::string& folder, int every, int steps) {
  Checkpoints all = checkpoints(run, folder, every, steps);
  all.resume(all.newest());
  return run_with(run, all, steps);
}

bool same_bits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t v = 0; v < a.size(); ++v)
    if (a[v].size() != b[v].size() ||
        (!a[v].empty() && std::memcmp(a[v].data(), b[v].data(), a[v].size() * sizeof(float)) != 0))
      return false;
  return true;
}

std::string bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::vector<std::string> names(const std::string& folder) {
  std::vector<std::string> list;
  for (const auto& entry : fs::directory_iterator(folder))
    list.push_back(entry.path().filename().string());
  std::sort(list.begin(), list.end());
  return list;
}

std::string refusal(const RunCase& run, const std::string& folder, int steps = 4) {
  return message_of([&] { resumed(run, folder, 0, steps); });
}

// 704 B of weights, or units of 256 B and less, over twelve members, and nothing else that goes from step to step.
std::vector<std::string> empty_parts(const std::string& zero) {
  return {
      "model={name: chain, input_shape: [6], layers: [{name: body, repeat: 2, ops: [{op: linear, features: 6}, {op: "
      "tanh}]}, {name: head, op: linear, features: 4}, {name: loss, op: cross_entropy}]}",
      "model.input_tokens=null",
      "cluster.node.devices=12",
      "plan.stages=1",
      "plan.data_parallel=12",
      "training.optimizer=sgd",
      zero};
}

const std::vector<std::string> kTwo = {"plan.stages=2", "training.micro_batches=2", "training.optimizer=adam"};

}  // namespace

TEST_CASE(
    "A member without a part of the weights counts its updates in a checkpoint, too, and asks for no gather alone") {
  for (const std::string zero : {"training.zero=2", "training.zero=3"}) {
    CAPTURE(zero);
    const Scratch scratch;
    const SmallCase run(empty_parts(zero));
    begun(run, scratch.path("cut"), 2, 2);
    Checkpoints all = checkpoints(run, scratch.path("cut"), 0, 4);
    all.resume(all.newest());
    RunSettings settings = of_steps(4);
    settings.checkpoints = &all, settings.keep_gradients = true;
    const auto workers = run.run(settings);
    CHECK(workers.size() == 12);
    for (const WorkerResult& worker : workers)
      CHECK(worker.gradients.empty());  // those of the first step, which is done
    const auto size = [&](int worker) {
      return fs::file_size(scratch.path("cut/step-2/worker-" + std::to_string(worker)));
    };
    CHECK(size(0) - size(11) == run.run_plan.code.size() * (64 + 8));  // parts, and their lengths
  }
}

TEST_CASE("Three steps, a checkpoint and three more are six steps: losses and weights, bit by bit") {
  const std::string pipedream = "plan.schedule=pipedream";
  const std::vector<Variant> variants = {
      {"gpipe, adam", {"plan.stages=3", "training.optimizer=adam"}, {}},
      {"gpipe, momentum", {"plan.stages=3", "training.optimizer=momentum"}, {}},
      {"gpipe, rmsprop", {"plan.stages=2", "training.optimizer=rmsprop"}, {}},
      {"1f1b", {"plan.stages=3", "plan.schedule=1f1b"}, {}},
      {"1f1b, ragged",
       {"plan.stages=2", "plan.schedule=1f1b", "training.ragged=true", "training.global_batch_size=7",
        "training.micro_batches=4", "training.optimizer=adam"},
       {}},
      {"interleaved",
       {"plan.schedule=interleaved_1f1b", "plan.stages=2", "plan.virtual_stages=2", "training.optimizer=adam"},
       {}},
      {"copies", {"plan.data_parallel=2", "plan.stages=2", "training.optimizer=momentum"}, {}},
      {"divided states",
       {"plan.data_parallel=2", "plan.stages=2", "plan.schedule=1f1b", "training.optimizer=adam", "training.zero=1"},
       {}},
      {"divided gradients",
       {"plan.data_parallel=3", "plan.stages=1", "training.optimizer=adam", "training.zero=2",
        "cluster.node.devices=3"},
       {}},
      {"divided weights",
       {"plan.data_parallel=2", "plan.stages=2", "plan.schedule=1f1b", "training.optimizer=adam", "training.zero=3"},
       {}},
      {"divided gradients, members without a part", empty_parts("training.zero=2"), {}},
      {"divided weights, members without a part", empty_parts("training.zero=3"), {}},
      {"stashing", {pipedream, "plan.stages=3", "training.micro_batches=7", "training.optimizer=adam"}, {}},
      {"no stashing", {pipedream, "plan.stages=3", "training.micro_batches=7"}, {.weight_stashing = false}},
      {"vertical sync", {pipedream, "plan.stages=3", "training.micro_batches=7", "plan.vertical_sync=true"}, {}},
      {"replicas 2-1", {pipedream, "plan.stages=2", "plan.replicas=[2, 1]", "training.optimizer=momentum"}, {}},
      {"replicas 2-1, at once",
       {pipedream, "plan.stages=2", "plan.replicas=[2, 1]", "plan.gradient_sync=at_once", "training.optimizer=adam"},
       {}},
  };
  for (const Variant& variant : variants) {
    CAPTURE(variant.name);
    const Scratch scratch;
    const SmallCase run(variant.changes, variant.options);
    const auto straight = begun(run, scratch.path("whole"), 3, 6);
    const auto first = begun(run, scratch.path("cut"), 3, 3);
    const auto second = resumed(run, scratch.path("cut"), 3, 6);
    REQUIRE(second.size() == straight.size());
    for (std::size_t w = 0; w < straight.size(); ++w) {
      CHECK(second[w].steps.size() == 3);
      CHECK(second[w].steps[0].number == 3);
      CHECK(same_bits(second[w].weights, straight[w].weights));
      CHECK_FALSE(same_bits(first[w].weights, straight[w].weights));
      CHECK(second[w].memory == straight[w].memory);
    }
    for (std::size_t step = 0; step < 3; ++step) {
      CHECK(loss_of(first, step) == loss_of(straight, step));
      CHECK(loss_of(second, step) == loss_of(straight, step + 3));
      CHECK(loss_of(second, step) != loss_of(first, step));
    }
    // Everything that goes from step to step.
    const std::vector<std::string> files = names(scratch.path("whole/step-6"));
    CHECK(files.size() == straight.size() + 1);
    CHECK(names(scratch.path("cut/step-6")) == files);
    for (const std::string& file : files)
      CHECK(bytes(scratch.path("cut/step-6/" + file)) == bytes(scratch.path("whole/step-6/" + file)));
  }
}

TEST_CASE("Writing checkpoints changes nothing") {
  const Scratch scratch;
  const SmallCase run({"plan.stages=3", "plan.schedule=pipedream", "training.optimizer=adam"});
  const auto plain = run.run(of_steps(4)), written = begun(run, scratch.path("c"), 1, 4);
  for (std::size_t w = 0; w < plain.size(); ++w)
    CHECK(same_bits(plain[w].weights, written[w].weights));
}

TEST_CASE("The newest two checkpoints are kept; one is left after the last step, too") {
  const Scratch scratch;
  const SmallCase run(kTwo);
  begun(run, scratch.path("c"), 2, 7);
  CHECK(names(scratch.path("c")) == std::vector<std::string>{"step-6", "step-7"});
  begun(run, scratch.path("last"), 0, 2);
  CHECK(names(scratch.path("last")) == std::vector<std::string>{"step-2"});
}

TEST_CASE("A run that died while it wrote is resumed from the checkpoint before, and what it left is written anew") {
  const SmallCase run(kTwo);
  const Scratch scratch;
  const std::string folder = scratch.path("c"), partial = folder + "/step-4.partial";
  begun(run, scratch.path("whole"), 2, 6);
  const std::string whole = bytes(scratch.path("whole/step-4/worker-0"));
  // Every state in which it can die: with no file, with part of one, with all of them but the manifest's end, and after
  // the new name, when an older checkpoint is half removed.
  for (int died = 0; died < 5; ++died) {
    CAPTURE(died);
    fs::remove_all(folder);
    begun(run, folder, 2, 2);
    fs::create_directory(partial);
    if (died >= 1) put(partial + "/worker-0", whole.substr(0, whole.size() / 2));
    if (died >= 2) put(partial + "/worker-1", bytes(scratch.path("whole/step-4/worker-1")));
    if (died >= 3) put(partial + "/manifest", bytes(scratch.path("whole/step-4/manifest")).substr(0, 40));
    if (died >= 4) fs::create_directory(folder + "/step-1.partial");
    const auto end = resumed(run, folder, 2, 6);
    CHECK(end[0].steps.size() == 4);
    CHECK(names(folder) == std::vector<std::string>{"step-4", "step-6"});
    CHECK(bytes(folder + "/step-4/worker-0") == whole);
    CHECK(bytes(folder + "/step-6/worker-1") == bytes(scratch.path("whole/step-6/worker-1")));
  }
}

TEST_CASE("A checkpoint has its name only when every worker's file and the manifest are there") {
  const SmallCase run(kTwo);
  const Scratch scratch;
  const std::string folder = scratch.path("c");
  const Checkpoints all = checkpoints(run, folder, 0, 2);
  std::int64_t updates = 2;
  std::vector<std::byte> weights(256);
  const std::vector<ChunkState> state = {{0, &updates, {weights}}};
  all.write(2, 0, state);
  CHECK(names(folder) == std::vector<std::string>{"step-2.partial"});
  const std::string message = message_of([&] { all.complete(2); });
  CHECK(message.starts_with(folder + "/step-2.partial/worker-1: the checkpoint cannot be written: "));
  CHECK(message.find("all processes of a run must share the folder") != std::string::npos);
  CHECK(names(folder) == std::vector<std::string>{"step-2.partial"});
  all.write(2, 1, state);
  CHECK(names(folder + "/step-2.partial") == std::vector<std::string>{"worker-0", "worker-1"});
  all.complete(2);
  CHECK(names(folder) == std::vector<std::string>{"step-2"});
  CHECK(names(folder + "/step-2") == std::vector<std::string>{"manifest", "worker-0", "worker-1"});
}

TEST_CASE("A checkpoint that cannot be written ends the run, names the file, and leaves the one before") {
  const SmallCase run(kTwo);
  const Scratch scratch;
  const std::string folder = scratch.path("c");
  begun(run, folder, 2, 2);
  // A file of that name stands where the next step's folder would be renamed to.
  put(folder + "/step-4", "");
  CHECK_THROWS_WITH_AS(resumed(run, folder, 2, 6), doctest::Contains("worker 0 at op checkpoint: "), RunFailed);
  CHECK_THROWS_WITH_AS(resumed(run, folder, 2, 6), doctest::Contains("/step-4: the checkpoint cannot be written: "),
                       RunFailed);
  fs::remove(folder + "/step-4");
  CHECK(resumed(run, folder, 2, 6)[0].steps.size() == 4);
}

TEST_CASE("A checkpoint of another run is refused: file, what differs, way out") {
  const Scratch scratch;
  const std::string folder = scratch.path("c");
  begun(SmallCase(kTwo), folder, 0, 2);
  const auto refused = [&](std::vector<std::string> changes, const std::string& what, const RunOptions& options = {}) {
    CAPTURE(what);
    for (const std::string& same : kTwo)
      if (std::none_of(changes.begin(), changes.end(), [&](const std::string& change) {
            return change.substr(0, change.find('=')) == same.substr(0, same.find('='));
          }))
        changes.push_back(same);
    const std::string message = refusal(SmallCase(changes, options), folder);
    CHECK(message.starts_with(folder + "/step-2/manifest: "));
    CHECK(message.find("the checkpoint's run differs in its " + what) != std::string::npos);
    CHECK(message.find("resume with that run's scenario and options, or begin again") != std::string::npos);
  };
  refused({"plan.schedule=1f1b"}, "plan (gpipe, 2 workers");
  refused({"plan.stages=1"}, "plan");
  refused({"training.micro_batches=4"}, "plan");
  refused({"training.micro_batch_size=1"}, "plan");
  refused({"plan.data_parallel=2"}, "plan");
  refused({"plan.partition={layers: [2, 5]}"}, "plan");
  refused({"training.optimizer=momentum"}, "settings (seed 1, adam, ");
  refused({"model.input_tokens=8"}, "layers");

  const SmallCase run(kTwo);
  const auto differs = [&](const RunSettings& settings, const Data& data, const std::string& version) {
    Checkpoints all(folder, 0, 4, checkpoint_identity(run.run_plan, settings, data, *cpu_backend(), version), run.plan);
    return message_of([&] { all.resume(all.newest()); });
  };
  RunSettings settings = of_steps(4);
  settings.optimizer.kind = Optimizer::Adam;
  CHECK(differs(settings, *run.data, "1") == "");
  CHECK(differs(settings, *run.data, "2").find("differs in its version of pipewright (1 there, 2 here)") !=
        std::string::npos);
  const SampleShape shape = sample_shape(run.run_plan.code);
  CHECK(differs(settings, *synthetic_data(shape, 2), "1").find("differs in its data (synthetic, seed 1") !=
        std::string::npos);
  settings.optimizer.learning_rate = 0.06;
  CHECK(differs(settings, *run.data, "1").find("learning rate 0.05, ") != std::string::npos);
  settings.optimizer.learning_rate = 0.05, settings.seed = 2;
  CHECK(differs(settings, *run.data, "1").find("seed 1, ") != std::string::npos);
}

TEST_CASE("Whole optimizer states are not resumed as parts of them, nor parts as whole ones") {
  const Scratch scratch;
  const std::vector<std::string> copies = {"plan.data_parallel=2", "plan.stages=1", "training.optimizer=adam"};
  std::vector<std::string> divided = copies;
  divided.push_back("training.zero=1");
  const SmallCase whole(copies), parts(divided);
  begun(whole, scratch.path("whole"), 0, 2), begun(parts, scratch.path("parts"), 0, 2);
  CHECK(refusal(parts, scratch.path("whole")).find("epsilon 1e-08, training.zero 1 here)") != std::string::npos);
  CHECK(refusal(whole, scratch.path("parts")).find("epsilon 1e-08, training.zero 1 there, ") != std::string::npos);
  divided.back() = "training.zero=2";
  CHECK(refusal(SmallCase(divided), scratch.path("parts")).find("differs in its schedule (gpipe, hash ") !=
        std::string::npos);
}

TEST_CASE(
    "The schedule's hash in a checkpoint: without gathers that of compute and reductions, as it was before them") {
  const auto hash_of_schedule = [](const RunCase& run) {
    for (const MustMatch& each : must_match(run.run_plan, of_steps(1), *run.data, *cpu_backend()))
      if (each.what == "schedule") return each.hash;
    return std::uint64_t{0};
  };
  const auto before_gathers = [](const RunCase& run) {
    Hash hash;
    for (const Lane& lane : run.schedule.positions)
      for (const auto* const ops : {&lane.compute, &lane.communication[kReductions]}) {
        hash.add(ops->size());
        for (const Op& op : *ops)
          hash.add(static_cast<int>(op.kind)).add(op.virtual_stage).add(op.micro_batch).add(op.bucket);
      }
    return hash.value();
  };
  const std::vector<std::string> copies = {"plan.stages=2", "plan.data_parallel=2", "training.zero=1"};
  const SmallCase whole(copies);
  CHECK(hash_of_schedule(whole) == before_gathers(whole));
  std::vector<std::string> units = copies;
  units.back() = "training.zero=3";
  const SmallCase divided(units);
  CHECK(hash_of_schedule(divided) != before_gathers(divided));
}

TEST_CASE("Another backend, other versions of the weights, and one more byte of the data are told, too") {
  const Scratch scratch;
  const std::vector<std::string> changes = {"plan.stages=2", "plan.schedule=pipedream"};
  const SmallCase run(changes), newest(changes, {.weight_stashing = false});
  begun(run, scratch.path("c"), 0, 2);
  CHECK(refusal(newest, scratch.path("c")).find("differs in its weights' versions (up to 2 kept") != std::string::npos);

  std::vector<MustMatch> other = checkpoint_identity(run.run_plan, of_steps(4), *run.data, *cpu_backend(), "1");
  for (MustMatch& each : other)
    if (each.what == "backend") each.text = "cpu (an abacus)";
  Checkpoints all(scratch.path("c"), 0, 4, other, run.plan);
  const std::string message = message_of([&] { all.resume(all.newest()); });
  CHECK(message.find("differs in its backend (" + cpu_backend()->name() + " there, cpu (an abacus) here)") !=
        std::string::npos);

  const SampleShape shape = sample_shape(run.run_plan.code);
  const auto data_of = [&](std::vector<unsigned char> text, const std::string& name) {
    return checkpoint_identity(run.run_plan, of_steps(4), *text_data(std::move(text), shape, 1, name), *cpu_backend(),
                               "1")
        .back()
        .hash;
  };
  std::vector<unsigned char> text(100'000, 'a');
  const auto a = data_of(text, "a.txt");
  CHECK(a == data_of(text, "moved/a.txt"));
  text.back() = 'b';
  CHECK(a != data_of(text, "a.txt"));
}

TEST_CASE("Files that are cut short, damaged, hostile or missing are refused, whatever byte it is") {
  const SmallCase run({"plan.stages=2", "training.micro_batches=2"});
  const Scratch scratch;
  const std::string folder = scratch.path("c"), manifest = folder + "/step-2/manifest",
                    worker = folder + "/step-2/worker-1";
  begun(run, folder, 0, 2);
  const auto with = [&](const std::string& path, const std::string& text, const std::string& what) {
    const std::string before = bytes(path);
    put(path, text);
    const std::string message = refusal(run, folder);
    put(path, before);
    CAPTURE(text.size());
    CHECK(message.starts_with(path + ": "));
    CHECK(message.find(what) != std::string::npos);
    CHECK(message.find("remove this checkpoint to resume from the one before") != std::string::npos);
  };
  const auto changed = [](std::string text, std::size_t at, const std::string& to) {
    return text.replace(at, to.size(), to);
  };
  const std::string head = bytes(manifest), state = bytes(worker);
  for (const std::size_t length : {std::size_t{0}, std::size_t{7}, std::size_t{31}, std::size_t{32}, head.size() - 1})
    with(manifest, head.substr(0, length), "");
  with(manifest, head + "x", "is cut short or damaged");
  for (std::size_t at = 0; at < head.size(); ++at)
    with(manifest, changed(head, at, {static_cast<char>(head[at] ^ 1)}), "");
  with(manifest, changed(head, 0, "x"), "is not a file of a checkpoint of pipewright");
  with(manifest, changed(head, 8, "\x02"), "has format 2, this pipewright reads 1");
  with(manifest, changed(head, 16, std::string(8, '\x7f')), "is cut short or damaged");
  with(manifest, std::string(std::size_t{2} << 20, ' '), "is not a file of a checkpoint of pipewright");
  with(worker, "", "are not files of a checkpoint");
  with(worker, state.substr(0, state.size() / 2), "is cut short or damaged");
  // Sizes inside: the list of blocks says more than there can be.
  with(worker, changed(state, 40, std::string(8, '\x7f')), "belongs to another checkpoint");
  for (std::size_t at = 0; at < state.size(); at += state.size() / 37)
    with(worker, changed(state, at, {static_cast<char>(state[at] ^ 0x80)}), "");
  with(worker, changed(state, state.size() / 2, {static_cast<char>(state[state.size() / 2] ^ 0x80)}), "is damaged");
  with(worker, bytes(folder + "/step-2/worker-0"), "worker 1 carries");
  CHECK(refusal(run, folder, 2) == "");  // all steps are done: nothing is wrong
  CHECK(refusal(run, folder) == "");

  fs::remove_all(folder + "/step-4");
  fs::remove(worker);
  CHECK(refusal(run, folder).starts_with(worker + ": cannot be read: No such file"));
  fs::create_directory(worker);
  CHECK(refusal(run, folder).starts_with(worker + ": "));
  fs::remove(manifest);
  CHECK(refusal(run, folder).starts_with(manifest + ": cannot be read: "));
}

TEST_CASE("A checkpoint of an earlier step under a later name is refused, as is one worker's file of another step") {
  const SmallCase run({"plan.stages=2", "training.micro_batches=2"});
  const Scratch scratch;
  const std::string folder = scratch.path("c");
  begun(run, folder, 1, 2);
  fs::copy_file(folder + "/step-1/worker-1", folder + "/step-2/worker-1", fs::copy_options::overwrite_existing);
  CHECK(refusal(run, folder).find("/step-2/worker-1: belongs to another checkpoint") != std::string::npos);
  fs::rename(folder + "/step-1", folder + "/step-3");
  CHECK(refusal(run, folder).find("/step-3/manifest: is of step 1, the folder was renamed") != std::string::npos);
}

TEST_CASE("A folder without a checkpoint has none to resume; one with it is not written over; a file is not a folder") {
  const SmallCase run(kTwo);
  const Scratch scratch;
  const std::string folder = scratch.path("deep/er");
  CHECK(checkpoints(run, folder, 0, 4).newest() == 0);
  fs::create_directory(folder + "/step-2.partial");
  CHECK(checkpoints(run, folder, 0, 4).newest() == 0);
  begun(run, folder, 0, 2);
  CHECK(checkpoints(run, folder, 0, 4).newest() == 2);
  CHECK(message_of([&] { begun(run, folder, 0, 2); }).find("/step-2: this folder has a checkpoint already; go on") !=
        std::string::npos);
  CHECK(message_of([&] { checkpoints(run, folder, 0, 8).resume(6); }) ==
        folder +
            "/step-6: rank 0 goes on from this checkpoint, and it is not there; all processes of a run must share "
            "the folder");
  scratch.write("file", "");
  CHECK(message_of([&] {
          begun(run, scratch.path("file"), 0, 2);
        }).starts_with("--checkpoint " + scratch.path("file") + ": "));
}
