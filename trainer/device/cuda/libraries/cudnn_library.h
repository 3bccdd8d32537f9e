// SPDX-License-Identifier: Apache-2.0
// cuDNN's files. libcudnn.so.9 only forwards calls to its parts, libcudnn_graph.so.9 and others. It
// opens them by name: LD_LIBRARY_PATH then comes before its own folder, and on a cluster may lead
// to another cuDNN. Here the parts are opened by path first, so that the loader has them when they
// are asked for by name.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/device/cuda/libraries/library_search.h"

namespace tessera::trainer::cuda {

// A LibraryCheck of libcudnn.so.9: it is built for the trainer's CUDA and new enough for attention
// (why_too_old). It asks libcudnn_graph, which lies beside it, because libcudnn itself would open
// that part by name.
std::optional<std::string> why_not_cudnn(LinkNamespace& link_namespace,
                                         const std::filesystem::path& library);

// Opens the parts beside libcudnn that its graph interface uses, not those of the older interface
// (adv, cnn, ops). Call it before opening libcudnn. A part that cannot be opened is left to
// cudnn_faults.
void open_cudnn_parts(const std::filesystem::path& library);

// Returns what is wrong with the open parts: opened from elsewhere, or not at all; each sentence
// begins with "; ". Empty: nothing.
std::string cudnn_faults(const std::filesystem::path& library);

// Returns, as a sentence, why a cuDNN of this version (91900 for 9.19.0) does not run attention.
// Nothing: it may.
std::optional<std::string> why_too_old(std::size_t version);

}  // namespace tessera::trainer::cuda
