// SPDX-License-Identifier: Apache-2.0
// The built-in models of other families than MPT, against what their publishers say.
#include <doctest/doctest.h>

#include "lib/model/model_file.h"

using namespace tessera;
using namespace tessera::model;

namespace {

struct Published {
  const char* name;
  std::int64_t parameters;
  double norm_eps;
  double rope_theta;  // 10000 also where there is no rope
};

// Parameters: what transformers' num_parameters() gives for the publisher's config.json (a tied
// head once, no buffers; GPT-2 with its 1024 positions), and what the model cards round ("6.74B",
// "494M", "124M"). norm_eps, rope_theta: the same config.json.
constexpr Published kPublished[] = {
    {"llama-2-7b", 6'738'415'616, 1e-5, 1e4},     {"llama-3-8b", 8'030'261'248, 1e-5, 5e5},
    {"llama-3.1-70b", 70'553'706'496, 1e-5, 5e5}, {"qwen2.5-0.5b", 494'032'768, 1e-6, 1e6},
    {"qwen2.5-1.5b", 1'543'714'304, 1e-6, 1e6},   {"qwen2.5-3b", 3'085'938'688, 1e-6, 1e6},
    {"qwen2.5-7b", 7'615'616'512, 1e-6, 1e6},     {"qwen2.5-14b", 14'770'033'664, 1e-5, 1e6},
    {"qwen2.5-32b", 32'763'876'352, 1e-5, 1e6},   {"smollm2-1.7b", 1'711'376'384, 1e-5, 1.3e5},
    {"tinyllama-1.1b", 1'100'048'384, 1e-5, 1e4}, {"mistral-7b", 7'241'732'096, 1e-5, 1e6},
    {"gpt2-124m", 124'439'808, 1e-5, 1e4},        {"gpt2-1558m", 1'557'611'200, 1e-5, 1e4},
};

}  // namespace

TEST_CASE("every published model: the parameter count is exact") {
  for (const Published& published : kPublished) {
    CAPTURE(published.name);
    const Model model = find_model(published.name, "");
    // Only GPT-2's learned positions make the count depend on the length.
    CHECK(parameter_count(model.shape, 1024) == published.parameters);
    CHECK((parameter_count(model.shape, 512) == published.parameters) ==
          (model.shape.positions != Positions::learned));
    CHECK(model.shape.norm_eps == published.norm_eps);
    CHECK(model.shape.rope_theta == published.rope_theta);
  }
}

TEST_CASE("the families' traits") {
  for (const Published& published : kPublished) {
    CAPTURE(published.name);
    const Shape shape = find_model(published.name, "").shape;
    const std::string_view name = published.name;
    const bool gpt2 = name.starts_with("gpt2");
    CHECK(shape.norm == (gpt2 ? Norm::layernorm : Norm::rmsnorm));
    CHECK(shape.positions == (gpt2 ? Positions::learned : Positions::rope));
    CHECK(shape.activation == (gpt2 ? Activation::gelu_tanh : Activation::swiglu));
    CHECK(shape.biases.qkv == (gpt2 || name.starts_with("qwen")));
    CHECK(shape.biases.out == gpt2);
    CHECK(shape.biases.mlp == gpt2);
    CHECK(shape.biases.norm == gpt2);
  }
}
