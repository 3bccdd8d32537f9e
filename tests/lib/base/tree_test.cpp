// SPDX-License-Identifier: Apache-2.0
#include "lib/base/tree.h"

#include <doctest/doctest.h>

using namespace tessera;

namespace {

std::string fault(const std::string& yaml, void (*read)(const Value&)) {
  try {
    read(parse_yaml(yaml, "a.yaml"));
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::input);
    return error.what();
  }
  return "no error";
}

void read_model(const Value& value) {
  Fields fields(value, "a model");
  as_integer(fields.required("d_model"), 1, 100000);
  if (const Value* tied = fields.optional("tied")) as_bool(*tied);
  if (const Value* lr = fields.optional("lr")) as_number(*lr);
  fields.finish();
}

}  // namespace

TEST_CASE("every fault has its line and column, counted from 1") {
  CHECK(fault("d_model: 64\n", read_model) == "no error");
  CHECK(fault("d_model: 64\ntide: true\n", read_model) ==
        "a.yaml:2:1: unknown key 'tide' in a model; did you mean tied?");
  CHECK(fault("d_model: 64\nd_model: 65\n", read_model) ==
        "a.yaml:2:1: key 'd_model' stands twice in this mapping; keep one of them");
  CHECK(fault("d_model: 011\n", read_model) ==
        "a.yaml:1:10: '011' has a leading zero; write a decimal integer or 2^n");
  CHECK(fault("d_model: [1]\n", read_model) == "a.yaml:1:10: a list where an integer belongs");
  CHECK(fault("d_model: \"64\"\n", read_model) ==
        "a.yaml:1:10: '64' is quoted text, not an integer; remove the quotes");
  CHECK(fault("d_model: 2^20\n", read_model) ==
        "a.yaml:1:10: 2^20 is out of range; from 1 to 100000");
  CHECK(fault("d_model: 64\ntied: yes\n", read_model) ==
        "a.yaml:2:7: 'yes' is not a boolean; write true or false");
  CHECK(fault("tied: true\n", read_model) == "a.yaml:1:1: a model lacks 'd_model'");
  CHECK(fault("d_model:\n", read_model) == "a.yaml:1:1: a model lacks 'd_model'");
  CHECK(fault("- 1\n", read_model) == "a.yaml:1:1: a list where a model (a mapping) belongs");
}

TEST_CASE("YAML that readers disagree about is refused") {
  CHECK(fault("", read_model) == "a.yaml: is empty");
  CHECK(fault("d_model: 1\n---\nd_model: 2\n", read_model) ==
        "a.yaml: holds more than one YAML document");
  CHECK(fault("d_model: !!int 64\n", read_model).find("tags") != std::string::npos);
  CHECK(fault("<<: {a: 1}\n", read_model).find("merge keys") != std::string::npos);
  CHECK(fault("d_model: [1\n", read_model).starts_with("a.yaml:2:1: not valid YAML"));
  CHECK(fault(std::string("a\0b", 3), read_model) == "a.yaml: is binary, not YAML");
}

TEST_CASE("a scalar is a list of one, null is absent") {
  const Value value = parse_yaml("a: 7b\nb: [7b, 13b]\nc: null\nd: ''\n", "a.yaml");
  Fields fields(value, "a sweep");
  CHECK(as_texts(fields.required("a")) == std::vector<std::string>{"7b"});
  CHECK(as_texts(fields.required("b")) == std::vector<std::string>{"7b", "13b"});
  CHECK(fields.optional("c") == nullptr);
  CHECK(fields.nullable("c") != nullptr);
  CHECK(as_text(fields.required("d")).empty());
  fields.finish();
}

TEST_CASE("JSON is walked the same way, its places are paths") {
  const Value value = parse_json(R"({"point":{"d_model":64,"list":[1,"x"]},"lr":0.00012})", "spec");
  CHECK(as_integer(*value.find("point")->find("d_model")) == 64);
  CHECK(as_number(*value.find("lr")) == 1.2e-4);
  CHECK(value.find("point")->find("list")->items[1].where == "spec:point.list[1]");
  CHECK(value.find("point")->find("list")->items[1].quoted);
  CHECK_THROWS_WITH_AS(parse_json(R"({"a":1,"a":2})", "spec"),
                       "spec: key 'a' stands twice; keep one of them", Error);
  CHECK_THROWS_AS(parse_json(R"({"a":)", "spec"), Error);
  CHECK_THROWS_AS(parse_json("{} x", "spec"), Error);
  CHECK_THROWS_AS(parse_json(std::string(100, '['), "spec"), Error);
}
