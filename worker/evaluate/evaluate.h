#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

struct EvaluateOptions {
  // The directory of weights that a job left, or of a checkpoint.
  std::string weights{};
  // Paths and patterns, as in data.eval.
  std::vector<std::string> data{};
  v1::DataFormat format = v1::DATA_FORMAT_TEXT;
  // Of a tokenizer.json; "": the one that the weights name.
  std::string tokenizer{};
  // Tokens a sequence; 0: the model's context.
  int64_t seq_len = 0;
  // That compute sequences, side by side.
  int workers = 1;
};

struct Evaluation {
  // Of the weights.
  int64_t step = 0;
  int64_t sequences = 0;
  // That were predicted.
  int64_t tokens = 0;
  // Of text that these tokens stand for; nothing when it is not known what the tokens stand for.
  std::optional<int64_t> bytes;
  // Nats a token.
  double loss = 0;
  // e^loss.
  double perplexity = 0;
  // Of all predicted tokens' losses together.
  std::optional<double> bits_per_byte;
  // What of the data is left out, or "".
  std::string note;
};

// Evaluates a model on data, each token of which is predicted from those before it in its sequence.
// The losses of sequences, one computed at a time, are summed in the data's order: the number of
// workers changes no bit. kInvalidArgument for an option out of range; errors of LoadWeights,
// CodecOf and OpenSequences; kDataLoss for a loss that is no number.
absl::StatusOr<Evaluation> Evaluate(const EvaluateOptions& options);

}  // namespace sherd
