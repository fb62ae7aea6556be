#include "worker/sample/sample_command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <thread>

#include "common/command_docs.h"
#include "common/file_commands.h"
#include "worker/sample/sample.h"

namespace sherd {

int SampleMain(int argc, char** argv) {
  SampleOptions options;
  options.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  CLI::App app("Generates text from the weights that a job left.", "sherd sample");
  app.add_option("DIR", options.weights, "The directory of the weights")
      ->required()
      ->option_text(" ");
  app.add_option(
         "--tokenizer", options.tokenizer,
         "The tokenizer.json of the training data, or bytes (default: what the weights name)")
      ->option_text("PATH|bytes");
  app.add_option("--prompt", options.prompt, "What the text starts with");
  app.add_option("--tokens", options.tokens, "How many tokens to generate")->capture_default_str();
  app.add_option("--temperature", options.temperature, "0: always the likeliest token")
      ->capture_default_str();
  app.add_option("--top-k", options.top_k, "Draw among the likeliest K only; 0: all")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Another seed, another text")->capture_default_str();
  app.add_option("--threads", options.threads, "Compute threads")->capture_default_str();
  AddManual(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kFileCommandUsage;
  }
  options.for_terminal = isatty(STDOUT_FILENO) != 0;
  const absl::Status status = RunSample(options, std::cout);
  if (status.ok()) {
    std::cout << std::endl;
    return 0;
  }
  std::cerr << "sherd sample: " << AsToldHere(status.message()) << std::endl;
  return FileCommandCode(status);
}

}  // namespace sherd
