#include "worker/dataset/job_dataset.h"

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "worker/data/job_tokens.h"
#include "worker/data/mixture_weights.h"
#include "worker/data/path_patterns.h"
#include "worker/data/roots.h"
#include "worker/data/sequences.h"
#include "worker/data/validation_split.h"
#include "worker/dataset/make_once.h"
#include "worker/dataset/prompt_file.h"
#include "worker/pack/pack.h"

namespace sherd {
namespace {

// A rank that is told to stop waits for pieces that are under way.
constexpr int64_t kPieceBytes = 2 << 20;

std::string NameOfFile(absl::string_view kind, uint64_t fingerprint) {
  return absl::StrFormat("%s-%016x.bin", kind, fingerprint);
}

absl::StatusOr<std::vector<std::string>> TextFiles(const v1::DataSpec& data,
                                                   const std::vector<std::string>& patterns,
                                                   const DatasetOptions& options) {
  SHERD_ASSIGN_OR_RETURN(std::vector<std::string> files,
                         ExpandPatterns(options.data_root, patterns, TokenFormat::kText));
  SHERD_RETURN_IF_ERROR(CheckTextBytes(options.data_root, files, data.format()));
  return files;
}

// The file of ids that text has become.
absl::StatusOr<std::string> PackedTokens(const v1::DataSpec& data,
                                         const std::vector<std::string>& patterns,
                                         const DatasetOptions& options) {
  PackOptions pack;
  pack.root = options.data_root;
  pack.tokenizer = data.tokenizer();
  SHERD_ASSIGN_OR_RETURN(pack.files, TextFiles(data, patterns, options));
  pack.jsonl = data.format() == v1::DATA_FORMAT_JSONL;
  pack.may_lack_end_token = true;
  pack.threads = options.threads;
  pack.piece_bytes = kPieceBytes;
  pack.stopped = options.stopped;
  SHERD_ASSIGN_OR_RETURN(const uint64_t fingerprint, FingerprintOf(pack));
  return MakeOnce(options.cache_directory, NameOfFile("tokens", fingerprint), options.stopped,
                  [&](const std::string& path) {
                    pack.out = path;
                    return Pack(pack, [](const PackProgress&) {}).status();
                  });
}

absl::StatusOr<OpenedSequences> OpenPrompts(const v1::DataSpec& data,
                                            const std::vector<std::string>& patterns,
                                            int64_t seq_len, int64_t vocab,
                                            const DatasetOptions& options) {
  PromptSources sources;
  sources.root = options.data_root;
  SHERD_ASSIGN_OR_RETURN(sources.files, TextFiles(data, patterns, options));
  sources.tokenizer = data.tokenizer();
  sources.stopped = options.stopped;
  SHERD_ASSIGN_OR_RETURN(const uint64_t fingerprint, FingerprintOf(sources));
  SHERD_ASSIGN_OR_RETURN(
      const std::string path,
      MakeOnce(options.cache_directory, NameOfFile("prompts", fingerprint), options.stopped,
               [&](const std::string& made) { return WritePromptFile(sources, made); }));
  SHERD_ASSIGN_OR_RETURN(std::unique_ptr<PromptSequences> prompts,
                         PromptSequences::Open(path, seq_len, vocab));
  OpenedSequences opened;
  opened.tokens = prompts->tokens();
  if (prompts->skipped() > 0) {
    opened.note = absl::StrCat(
        prompts->skipped(), " of ", prompts->lines(),
        " lines are left out, as nothing of them would be predicted: their completions do not "
        "begin within train.seq_len + 1, which is ",
        seq_len + 1, ", tokens");
  }
  opened.sequences = std::move(prompts);
  return opened;
}

}  // namespace

absl::Status CheckTextBytes(const std::string& root, const std::vector<std::string>& files,
                            v1::DataFormat format) {
  const bool prompts = format == v1::DATA_FORMAT_PROMPT_COMPLETION;
  const int64_t most = prompts ? kMostPromptBytes : kMostTextBytes;
  int64_t bytes = 0;
  for (const std::string& path : files) {
    SHERD_ASSIGN_OR_RETURN(const InputFile file, OpenBelow(root, path));
    bytes += file.bytes();
    if (bytes <= most) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, " and the files before it have more than ", most, " bytes of text, ",
                     prompts ? "which is the most that a job takes"
                             : "which take too long to tokenize when a job starts; pack them once "
                               "with `sherd data tokenize`, and name the result with data.format "
                               "llmc"));
  }
  return absl::OkStatus();
}

absl::StatusOr<OpenedSequences> OpenSequences(const v1::DataSpec& data,
                                              const std::vector<std::string>& patterns,
                                              int64_t seq_len, int64_t vocab, Tail tail,
                                              const DatasetOptions& options) {
  if (data.format() == v1::DATA_FORMAT_PROMPT_COMPLETION) {
    return OpenPrompts(data, patterns, seq_len, vocab, options);
  }
  TokenFiles files = TokenFilesOf(patterns, data.format(), vocab, options.data_root);
  if (!HoldsTokens(data)) {
    SHERD_ASSIGN_OR_RETURN(std::string packed, PackedTokens(data, patterns, options));
    files = {"", {std::move(packed)}, TokenFormat::kLlmc, vocab};
  }
  SHERD_ASSIGN_OR_RETURN(std::unique_ptr<TokenSource> source, OpenTokens(files));
  OpenedSequences opened;
  opened.tokens = source->tokens();
  SHERD_ASSIGN_OR_RETURN(opened.sequences, CutWindows(std::move(source), seq_len, vocab, tail));
  return opened;
}

absl::StatusOr<JobDataset> OpenJobDataset(const v1::JobSpec& spec, const DatasetOptions& options) {
  const v1::DataSpec& data = spec.data();
  std::vector<std::string> notes;
  const auto open = [&](const char* field, const std::vector<std::string>& patterns, Tail tail) {
    absl::StatusOr<OpenedSequences> opened =
        OpenSequences(data, patterns, spec.train().seq_len(), spec.model().vocab(), tail, options);
    if (opened.ok() && !opened->note.empty()) {
      notes.push_back(absl::StrCat(field, ": ", opened->note));
    }
    return opened;
  };
  std::vector<int64_t> weights = {1};
  if (data.train_weights_size() > 0) weights = WholeWeights(data.train_weights());
  std::vector<TrainingSource> training;
  std::vector<std::unique_ptr<Sequences>> held_out;
  int64_t corpus_tokens = 0;
  for (const std::vector<std::string>& entries : TrainSources(data)) {
    SHERD_ASSIGN_OR_RETURN(OpenedSequences opened, open("data.train", entries, Tail::kDropped));
    corpus_tokens += opened.tokens;
    const int64_t weight = weights[training.size()];
    if (data.validation_split() == 0) {
      training.push_back({std::move(opened.sequences), weight});
      continue;
    }
    const std::shared_ptr<const Sequences> all = std::move(opened.sequences);
    SHERD_ASSIGN_OR_RETURN(
        const ValidationSplit split,
        ValidationSplit::Make(all->count(), data.validation_split(), spec.train().seed()));
    training.push_back({TrainingSide(all, split), weight});
    held_out.push_back(ValidationSide(all, split));
  }
  if (data.eval_size() > 0) {
    SHERD_ASSIGN_OR_RETURN(
        OpenedSequences opened,
        open("data.eval", {data.eval().begin(), data.eval().end()}, Tail::kKept));
    held_out.push_back(std::move(opened.sequences));
  }
  SHERD_ASSIGN_OR_RETURN(
      TrainingData train,
      TrainingData::Make(std::move(training), {spec.train().micro_batch(),
                                               spec.train().global_batch(), spec.train().seed()}));
  JobDataset dataset{std::move(train), std::nullopt, corpus_tokens, std::move(notes)};
  if (!held_out.empty()) {
    dataset.eval.emplace(JoinSequences(std::move(held_out)), spec.train().micro_batch());
  }
  return dataset;
}

}  // namespace sherd
