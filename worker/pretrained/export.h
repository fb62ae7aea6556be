#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "worker/pretrained/element_type.h"
#include "worker/pretrained/import.h"

namespace sherd {

struct ExportOptions {
  // A job's checkpoint.dir, of which the weights are taken that WeightsDirectory finds, or one
  // checkpoint.
  std::string checkpoint;
  // Which must not hold anything yet.
  std::string folder;
  ElementType type = ElementType::kF32;
  // Weights of more bytes are cut into several files with an index. A tensor is not cut.
  int64_t shard_bytes = int64_t{5'000'000'000};
  // A tokenizer.json to put beside the weights; "": that which the checkpoint names, if it is
  // there; "bytes": none.
  std::string tokenizer = {};
  int threads = 1;
};

struct Exported {
  Transferred written;
  // That was put beside the weights; "" when none was.
  std::string tokenizer;
  // That the checkpoint names and that is not there; "" else.
  std::string missing_tokenizer;
  // There is no tokenizer.json for its tokens.
  bool tokens_are_bytes = false;
};

// A sentence on why there is no tokenizer beside the weights, and what to do; "" when there is one.
std::string TokenizerNote(const Exported& exported);

// Makes a folder that the common Python stack loads out of a checkpoint of any layout, training
// state or weights alone. It appears under its name whole and durable, or not at all. Threads read,
// convert and write ranges side by side, each with some tens of MiB. Errors name the file:
// kNotFound, kDataLoss, kFailedPrecondition (something is at `folder`), kOutOfRange (values that
// `type` cannot hold), kResourceExhausted, … .
absl::StatusOr<Exported> ExportCheckpoint(const ExportOptions& options);

}  // namespace sherd
