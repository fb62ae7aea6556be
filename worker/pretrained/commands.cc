#include "worker/pretrained/commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/command_docs.h"
#include "common/counted.h"
#include "common/file_commands.h"
#include "common/printable_text.h"
#include "nlohmann/json.hpp"
#include "worker/pretrained/export.h"
#include "worker/pretrained/import.h"

namespace sherd {
namespace {

constexpr size_t kMostTextBytes = 4096;

int Cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

void AddShared(CLI::App& app, int& threads, std::string& format) {
  app.add_option("--threads", threads, "Threads that read and write (default: one a core)")
      ->check(CLI::Range(1, 1024))
      ->option_text("N");
  app.add_option("-o,--output", format, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->option_text("FORMAT");
}

// Nothing when the command line is fine.
std::optional<int> Parse(CLI::App& app, int argc, char** argv) {
  AddManual(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kFileCommandUsage;
  }
  return std::nullopt;
}

int Complain(const CLI::App& app, const absl::Status& status) {
  // Names of tensors come from files.
  std::cerr << app.get_name() << ": " << PrintableText(AsToldHere(status.message()), kMostTextBytes)
            << std::endl;
  return FileCommandCode(status);
}

const char* ArchitectureOf(const Transferred& done) {
  return done.model.arch == Architecture::kLlama ? "llama" : "gpt2";
}

int Print(const CLI::App& app, const std::string& format, const Transferred& done) {
  if (format == "json") {
    const nlohmann::ordered_json json = {{"path", done.path},
                                         {"arch", ArchitectureOf(done)},
                                         {"parameters", done.parameters},
                                         {"bytes", done.bytes},
                                         {"files", done.files}};
    // Paths need not be UTF-8.
    std::cout << json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else {
    std::cout << done.path << ": " << ArchitectureOf(done) << ", "
              << Counted(done.parameters, "parameter") << ", " << Counted(done.bytes, "byte")
              << " in " << Counted(done.files, "file") << "\n";
  }
  if (std::cout.flush()) return 0;
  std::cerr << app.get_name() << ": cannot write to the standard output" << std::endl;
  return kFileCommandOther;
}

}  // namespace

int ImportMain(int argc, char** argv) {
  ImportOptions options;
  options.threads = Cores();
  std::string format = "table";
  CLI::App app(
      "Makes a checkpoint of weights out of a GPT-2 or Llama folder (config.json, "
      "safetensors).",
      "sherd import");
  app.add_option("DIR", options.folder, "The folder")->required()->option_text(" ");
  app.add_option("CHECKPOINT", options.checkpoint, "The checkpoint's directory, yet to be made")
      ->required()
      ->option_text(" ");
  AddShared(app, options.threads, format);
  if (const std::optional<int> code = Parse(app, argc, argv)) return *code;
  const absl::StatusOr<Transferred> done = ImportFolder(options);
  return done.ok() ? Print(app, format, *done) : Complain(app, done.status());
}

int ExportMain(int argc, char** argv) {
  ExportOptions options;
  options.threads = Cores();
  std::string format = "table";
  std::string type = "fp32";
  CLI::App app("Makes a folder that the common Python stack loads out of a checkpoint.",
               "sherd export");
  app.add_option("CHECKPOINT", options.checkpoint, "A job's checkpoint.dir, or one checkpoint")
      ->required()
      ->option_text(" ");
  app.add_option("DIR", options.folder, "The folder, yet to be made")->required()->option_text(" ");
  app.add_option("--dtype", type, "Type of the weights: fp32 (the default), bf16 or fp16")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->option_text("TYPE");
  app.add_option("--shard-size", options.shard_bytes,
                 "Cut more than so many bytes into several files, as in 2GB (default: 5GB)")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->check(CLI::PositiveNumber)
      ->option_text("SIZE");
  app.add_option(
         "--tokenizer", options.tokenizer,
         "The tokenizer.json of the training data, to put beside the weights, or bytes: none")
      ->option_text("PATH|bytes");
  AddShared(app, options.threads, format);
  if (const std::optional<int> code = Parse(app, argc, argv)) return *code;
  options.type = *ElementTypeFromName(type);
  const absl::StatusOr<Exported> done = ExportCheckpoint(options);
  if (!done.ok()) return Complain(app, done.status());
  if (const std::string note = TokenizerNote(*done); !note.empty()) {
    std::cerr << "sherd export: " << PrintableText(note, kMostTextBytes) << std::endl;
  }
  return Print(app, format, done->written);
}

}  // namespace sherd
