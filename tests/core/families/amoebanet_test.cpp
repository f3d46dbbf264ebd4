#include <doctest/doctest.h>

#include "tests/support/family_model.hpp"
#include "tests/support/tensors_over_cut.hpp"

using namespace pipewright::tests;

namespace {

Model amoebanet_d(int layers, int filters) {
  return family_model("amoebanet_d", {{"layers", std::to_string(layers)}, {"filters", std::to_string(filters)}});
}

std::int64_t bytes(const Model& model, std::string_view layer) {
  return layer_of(model, layer).activation.value;
}

}  // namespace

TEST_CASE("AmoebaNet-D has the parameters that torchgpipe counts, to the last one") {
  const struct {
    int layers, filters;
    std::int64_t parameters;
  } rows[] = {{18, 128, 31'694'440},  {18, 208, 81'505'540},  {18, 256, 122'470'120},   {18, 416, 319'024'120},
              {18, 512, 481'268'200}, {18, 544, 542'734'840}, {36, 544, 1'055'832'376}, {72, 512, 1'844'858'344}};
  for (const auto& row : rows) {
    CAPTURE(row.layers);
    CAPTURE(row.filters);
    CHECK(parameters_of(amoebanet_d(row.layers, row.filters)) == row.parameters);
  }
}

TEST_CASE("A normal cell of AmoebaNet-D at c channels has 13.75 c^2 + 17 c parameters") {
  const Model model = amoebanet_d(18, 256);  // c = 256, 512, 1024 in the three groups
  CHECK(work_of(model, "cell1_normal6").parameters == 14'080 * 64 + 17 * 256);
  CHECK(work_of(model, "cell5_normal6").parameters == 14'435'328);
  // The reduction before and the third group hold 74 % of all: balancing parameters and balancing outputs differ.
  std::int64_t last = 0;
  for (LayerId i = 16; i < 23; ++i)
    last += model.works[static_cast<std::size_t>(model.layers[i].work)].parameters;
  CHECK(model.layers[16].name == "cell4_reduction");
  const std::int64_t all = parameters_of(model);
  CHECK((last * 100 + all / 2) / all == 74);
}

TEST_CASE("AmoebaNet-D(18, 256) hands on 28 x 28 x 1024, 14 x 14 x 2048 and 7 x 7 x 4096 values in its groups") {
  Model model = amoebanet_d(18, 256);
  settle(model, Bytes{4}, {});
  REQUIRE(model.layers.size() == 24);
  CHECK(bytes(model, "stem1") == 64 * 112 * 112 * 4);
  CHECK(bytes(model, "stem2") == 3 * 128 * 56 * 56 * 4);
  CHECK(bytes(model, "stem3") == 3 * 256 * 28 * 28 * 4);
  for (const char* number : {"1", "2", "3", "6"}) {
    CHECK(bytes(model, std::string("cell1_normal") + number) == 1024 * 28 * 28 * 4);  // 3.06 MiB
    CHECK(bytes(model, std::string("cell3_normal") + number) == 2048 * 14 * 14 * 4);
    CHECK(bytes(model, std::string("cell5_normal") + number) == 4096 * 7 * 7 * 4);
  }
  CHECK(bytes(model, "cell2_reduction") == 3 * 512 * 14 * 14 * 4);
  CHECK(bytes(model, "classify") == 1000 * 4);
}

TEST_CASE("Every cut of AmoebaNet behind the first two layers carries two tensors") {
  const Model model = amoebanet_d(18, 256);
  CHECK(tensors_over_cut(model, 1) == std::vector<LayerId>{0});
  for (LayerId cut = 2; cut < 24; ++cut)
    CHECK(tensors_over_cut(model, cut) == std::vector<LayerId>{cut - 2, cut - 1});
}

TEST_CASE("Cells of AmoebaNet from the third of a group on share one work: 15 works however many layers") {
  CHECK(amoebanet_d(18, 256).works.size() == 15);
  CHECK(amoebanet_d(72, 512).works.size() == 15);
  CHECK(amoebanet_d(72, 512).layers.size() == 78);
  CHECK(amoebanet_d(3, 256).layers.size() == 9);
}

TEST_CASE("The classifier of AmoebaNet is handed two tensors and reads one") {
  const Model model = amoebanet_d(18, 256);
  CHECK(model.layers.back().inputs == std::vector<LayerId>{22, 21});
  CHECK(work_of(model, "classify").parameters == 4096 * 1000 + 1000);
  CHECK(work_of(model, "classify").keeps_input == std::vector<char>{0, 0});  // the average needs only its size
}

TEST_CASE("Max pools keep their positions for backward, averages keep nothing") {
  // At 28 x 28 and c = 256 a normal cell has two 3 x 3 max pools: 2 * 256 * 28 * 28 indices of 8 B. What they read is
  // state 1, which is not kept but for them, and state 2, which the last 1 x 1 convolution does not read either.
  const Model maximum = amoebanet_d(18, 256);
  const Model average = family_model("amoebanet_d", {{"layers", "18"}, {"filters", "256"}, {"max_pools", "average"}});
  const Amount more = work_of(maximum, "cell1_normal6").kept - work_of(average, "cell1_normal6").kept;
  CHECK(more.fixed == 2 * 256 * 28 * 28 * 8);
  CHECK(more.values == 2 * 256 * 28 * 28);
  CHECK(parameters_of(average) == parameters_of(maximum));
}

TEST_CASE("AmoebaNet-B(18, 512) has 560.1 million parameters, 0.5 % more than GPipe's 557 million") {
  const Model model = family_model("amoebanet_b", {});
  CHECK(parameters_of(model) == 560'053'608);
  CHECK(work_of(model, "cell1_normal6").parameters == 16 * 512 * 512 + 56 * 512);
  CHECK(model.layers.size() == 24);
}

TEST_CASE("AmoebaNet-B at 480 pixels ends at 15 x 15") {
  Model model = family_model("amoebanet_b", {});
  settle(model, Bytes{4}, {});
  CHECK(bytes(model, "cell5_normal6") == 4 * 2048 * 15 * 15 * 4);
  CHECK(bytes(model, "cell4_reduction") == 2 * 2048 * 15 * 15 * 4);
}

TEST_CASE("Layers, filters and images that AmoebaNet cannot have are refused with the nearest that it can") {
  CHECK(refusal("amoebanet_d", {{"layers", "20"}, {"filters", "256"}}) ==
        "model.layers: 20 is not a multiple of 3 (three groups of normal cells); use 18 or 21");
  CHECK(refusal("amoebanet_d", {{"layers", "18"}, {"filters", "210"}}) ==
        "model.filters: 210 is not a multiple of 4 (the stem has a quarter); use 208 or 212");
  CHECK(refusal("amoebanet_d", {{"layers", "18"}, {"filters", "256"}, {"image", "225"}}) ==
        "model.image: 225 is not a multiple of 32 (it is halved five times); use 224 or 256");
  CHECK(refusal("amoebanet_d", {{"layers", "18"}, {"filters", "256"}, {"image", "31"}}).find("32 to 8192") !=
        std::string::npos);
  CHECK(refusal("amoebanet_d", {{"layers", "18"}}).find("filters: is missing") != std::string::npos);
  CHECK(family_model("amoebanet_d", {{"layers", "3"}, {"filters", "8"}, {"image", "32"}}).layers.size() == 9);
}
