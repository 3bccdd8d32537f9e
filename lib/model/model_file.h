// Model files: `tessera_model: 1` YAML (docs/formats.md, "Models"), built-in or the user's own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/base/tree.h"
#include "lib/model/shape.h"

namespace tessera::model {

struct Model {
  std::string name;
  Shape shape;
  std::int64_t max_seq_len = 0;  // of the recipe; a point's seq_len replaces it
  double lr = 0;                 // peak learning rate of the recipe
  std::string source;            // path of the file
};

// Error(input) with the place of the fault.
Model parse_model(const Value& value, const std::string& source);
Model read_model(const std::string& path);

// Names of the built-in models, shortest number first: 125m, 350m, ... cpu-2m.
std::vector<std::string> built_in_models();

// A built-in name ("7b", also "7b.yaml"), or a file: what holds a '/' or names an existing file.
// Unknown: Error(input) at `where` with the nearest known name.
Model find_model(const std::string& name, std::string_view where);

}  // namespace tessera::model
