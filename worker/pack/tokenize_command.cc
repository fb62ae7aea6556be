#include "worker/pack/tokenize_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/pack/pack.h"

namespace sherd {
namespace {

struct CommandLine {
  PackOptions pack;
  // The default, spelled out.
  bool text = false;
  std::string format = "llmc";
  std::string output = "table";
};

void AddFlags(CLI::App& app, CommandLine& line) {
  PackOptions& pack = line.pack;
  app.add_option("FILES", pack.files, "What to tokenize, in this order")
      ->required()
      ->option_text(" ");
  app.add_option("--tokenizer", pack.tokenizer, "A tokenizer.json of byte-level BPE")
      ->required()
      ->option_text("PATH");
  app.add_option("--out", pack.out, "The token file to write; it must not exist")
      ->required()
      ->option_text("FILE");
  app.add_option("--format", line.format, "llmc (the default) or tokens_u16, as in a job file")
      ->check(CLI::IsMember({"llmc", "tokens_u16"}))
      ->option_text("FORMAT");
  CLI::Option* jsonl = app.add_flag("--jsonl", pack.jsonl, "Each line is an object and a document");
  app.add_flag("--text", line.text, "Each file is a document (the default)")->excludes(jsonl);
  app.add_option("--field", pack.field, "With --jsonl: where the text is (default: text)")
      ->needs(jsonl)
      ->option_text("NAME");
  CLI::Option* end =
      app.add_option("--end", pack.end_token,
                     "The added token after each document (default: <|endoftext|> or "
                     "<|end_of_text|>, whichever there is)")
          ->option_text("TOKEN");
  app.add_flag("--no-end", pack.no_end_token, "Nothing after a document")->excludes(end);
  app.add_flag("--post-process", pack.post_process,
               "Add to each document what the tokenizer adds to texts, as <|begin_of_text|>");
  app.add_flag("--special-as-text", pack.special_as_text,
               "Special tokens that documents spell out are text");
  app.add_option("--threads", pack.threads, "Compute threads (default: all cores)")
      ->check(CLI::Range(1, 1024))
      ->option_text("N");
  app.add_option("-o,--output", line.output, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->option_text("FORMAT");
}

void PrintProgress(const PackProgress& progress) {
  const double fresh = static_cast<double>(progress.bytes - progress.found_bytes);
  std::cerr << absl::StreamFormat("tokenized %.1f of %.1f MB, %.1f MB/s",
                                  static_cast<double>(progress.bytes) / 1e6,
                                  static_cast<double>(progress.total_bytes) / 1e6,
                                  progress.seconds > 0 ? fresh / 1e6 / progress.seconds : 0.0)
            << std::endl;
}

void PrintSummary(const CommandLine& line, const PackSummary& summary) {
  if (line.output == "json") {
    const nlohmann::json document = {{"out", line.pack.out},
                                     {"format", line.format},
                                     {"documents", summary.documents},
                                     {"tokens", summary.tokens},
                                     {"input_bytes", summary.bytes},
                                     {"vocab", summary.vocab},
                                     {"id_bytes", summary.id_bytes},
                                     {"pieces", summary.pieces},
                                     {"found_pieces", summary.found_pieces},
                                     {"seconds", summary.seconds}};
    // Paths need not be UTF-8.
    std::cout << document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return;
  }
  std::cout << absl::StreamFormat(
                   "%s: %d tokens of %d documents, %d input bytes; ids are uint%d, the vocabulary "
                   "is %d",
                   line.pack.out, summary.tokens, summary.documents, summary.bytes,
                   8 * summary.id_bytes, summary.vocab)
            << "\n";
}

}  // namespace

DataSubcommand DeclareDataTokenize(CLI::App& app) {
  const auto line = std::make_shared<CommandLine>();
  line->pack.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  CLI::App* command =
      app.add_subcommand("tokenize", "Turns text into a token file that jobs train on");
  AddFlags(*command, *line);
  return {command, [line]() -> absl::Status {
            line->pack.format = line->format == "llmc" ? PackFormat::kLlmc : PackFormat::kTokensU16;
            SHERD_ASSIGN_OR_RETURN(const PackSummary summary, Pack(line->pack, PrintProgress));
            PrintSummary(*line, summary);
            return absl::OkStatus();
          }};
}

}  // namespace sherd
