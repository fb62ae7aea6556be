#include "worker/evaluate/evaluate_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/command_docs.h"
#include "common/file_commands.h"
#include "nlohmann/json.hpp"
#include "plan/job_spec.h"
#include "worker/evaluate/evaluate.h"

namespace sherd {
namespace {

void Print(const Evaluation& evaluation, bool json) {
  if (json) {
    nlohmann::ordered_json document = {
        {"loss", evaluation.loss},  {"perplexity", evaluation.perplexity},
        {"bits_per_byte", nullptr}, {"tokens", evaluation.tokens},
        {"bytes", nullptr},         {"sequences", evaluation.sequences},
        {"step", evaluation.step}};
    if (evaluation.bytes.has_value()) document["bytes"] = *evaluation.bytes;
    if (evaluation.bits_per_byte.has_value()) {
      document["bits_per_byte"] = *evaluation.bits_per_byte;
    }
    std::cout << document.dump() << "\n";
    return;
  }
  std::cout << absl::StreamFormat("loss %.4f nats a token, perplexity %.4g", evaluation.loss,
                                  evaluation.perplexity);
  if (evaluation.bits_per_byte.has_value()) {
    std::cout << absl::StreamFormat(", %.4f bits a byte", *evaluation.bits_per_byte);
  }
  std::cout << absl::StreamFormat("\n%d tokens in %d sequences, weights of step %d\n",
                                  evaluation.tokens, evaluation.sequences, evaluation.step);
}

}  // namespace

int EvaluateMain(int argc, char** argv) {
  EvaluateOptions options;
  options.workers = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::string format = "text";
  std::string output = "table";
  std::vector<std::string> formats;
  for (const absl::string_view name : DataFormatNames()) formats.emplace_back(name);
  CLI::App app("Evaluates the weights of a job, or a checkpoint, on data.", "sherd eval");
  app.add_option("CHECKPOINT", options.weights, "The directory of the weights")
      ->required()
      ->option_text(" ");
  app.add_option("DATA", options.data, "Files, or patterns of files, as in a job's data.eval")
      ->required()
      ->option_text(" ");
  app.add_option("--format", format, "How the files hold tokens, as data.format of a job")
      ->check(CLI::IsMember(formats))
      ->option_text("FORMAT");
  app.add_option("--tokenizer", options.tokenizer,
                 "The tokenizer.json of the model, or bytes (default: what the weights name)")
      ->option_text("PATH|bytes");
  app.add_option("--seq-len", options.seq_len, "Tokens a sequence (default: the model's context)")
      ->option_text("T");
  app.add_option("--workers", options.workers,
                 "Sequences computed side by side (default: one a core); changes no bit")
      ->option_text("N");
  app.add_option("-o,--output", output, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->option_text("FORMAT");
  AddManual(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kFileCommandUsage;
  }
  options.format = DataFormatFromName(format);
  const absl::StatusOr<Evaluation> evaluation = Evaluate(options);
  if (!evaluation.ok()) {
    std::cerr << "sherd eval: " << AsToldHere(evaluation.status().message()) << std::endl;
    return FileCommandCode(evaluation.status());
  }
  if (!evaluation->note.empty()) std::cerr << evaluation->note << std::endl;
  Print(*evaluation, output == "json");
  return 0;
}

}  // namespace sherd
