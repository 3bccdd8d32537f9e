// cuDNN's files. libcudnn.so.9 itself only hands calls on to its parts, libcudnn_graph.so.9 and
// others, which it opens by name: LD_LIBRARY_PATH comes before its own folder then, and on a
// cluster may lead to another cuDNN. Here the parts are opened by their paths, so that the loader
// has them when they are asked for.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/device/cuda/libraries/library_search.h"

namespace tessera::trainer::cuda {

// A LibraryCheck of libcudnn.so.9: of the CUDA that the trainer was built with, and new enough for
// attention (why_too_old). Asks libcudnn_graph, which lies beside it; libcudnn itself would open
// that by name.
std::optional<std::string> why_not_cudnn(LinkNamespace& link_namespace,
                                         const std::filesystem::path& library);

// Opens the parts that lie beside libcudnn and that its graph interface uses: those of the older
// interface (adv, cnn, ops) are left alone. To be called before libcudnn is. A part that cannot be
// opened is left to cudnn_faults.
void open_cudnn_parts(const std::filesystem::path& library);

// What is wrong with these parts: opened from elsewhere, or not at all; each sentence begun with
// "; ". Empty: nothing.
std::string cudnn_faults(const std::filesystem::path& library);

// Why attention is not left to a cuDNN of this version (91900 for 9.19.0), as a sentence. Nothing:
// it may be.
std::optional<std::string> why_too_old(std::size_t version);

}  // namespace tessera::trainer::cuda
