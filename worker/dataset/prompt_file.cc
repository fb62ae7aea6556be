#include "worker/dataset/prompt_file.h"

#define XXH_INLINE_ALL
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/data/jsonl_lines.h"
#include "worker/data/mapped_file.h"
#include "worker/pack/new_file.h"
#include "worker/pack/source_file.h"

namespace sherd {
namespace {

static_assert(std::endian::native == std::endian::little, "files are written as memory has them");

constexpr uint64_t kMagic = 0x31545052'44524853u;  // "SHRDRPT1"
constexpr int64_t kMostLineTokens = int64_t{1} << 30;

// The file: a header, an entry a line, and the ids as uint32.
struct Header {
  uint64_t magic = kMagic;
  int64_t lines = 0;
  int64_t tokens = 0;
};
struct Entry {
  int64_t first_token = 0;
  int32_t prompt = 0;
  int32_t length = 0;
};
static_assert(sizeof(Header) == 24 && sizeof(Entry) == 16);

template <typename Value>
absl::string_view BytesOf(const Value* values, size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(Value)};
}

struct Tokens {
  std::vector<Entry> entries;
  std::vector<TokenId> ids;
};

absl::Status ReadLines(const PromptSources& sources, const std::string& path,
                       PromptEncoder& encoder, Tokens& tokens) {
  SHERD_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(sources.root, path));
  JsonlLines lines(file, 0, file.bytes());
  std::array<std::string, 2> texts;
  PromptLine line;
  while (true) {
    if (sources.stopped != nullptr && sources.stopped()) return absl::AbortedError("stopped");
    SHERD_ASSIGN_OR_RETURN(const bool found,
                           lines.NextOf(PromptEncoder::kKeys, absl::MakeSpan(texts)));
    if (!found) return absl::OkStatus();
    encoder.Encode(texts[0], texts[1], line);
    tokens.entries.push_back({static_cast<int64_t>(tokens.ids.size()),
                              static_cast<int32_t>(line.prompt),
                              static_cast<int32_t>(line.tokens.size())});
    tokens.ids.insert(tokens.ids.end(), line.tokens.begin(), line.tokens.end());
  }
}

absl::Status Write(const Tokens& tokens, const std::string& path) {
  // No other process's, where nothing locks.
  const std::string unfinished = absl::StrCat(path, ".", getpid(), ".part");
  const Header header{.lines = static_cast<int64_t>(tokens.entries.size()),
                      .tokens = static_cast<int64_t>(tokens.ids.size())};
  {
    const NewFile file(unfinished);
    SHERD_RETURN_IF_ERROR(file.Append(BytesOf(&header, 1)));
    SHERD_RETURN_IF_ERROR(file.Append(BytesOf(tokens.entries.data(), tokens.entries.size())));
    SHERD_RETURN_IF_ERROR(file.Append(BytesOf(tokens.ids.data(), tokens.ids.size())));
    SHERD_RETURN_IF_ERROR(file.Sync());
  }
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) {
    return FileFailure(path, "given its name", errno);
  }
  return SyncDirectory(std::filesystem::path(path).parent_path().string());
}

}  // namespace

absl::Status NoPrompts(absl::string_view path) {
  return absl::InvalidArgumentError(
      absl::StrCat(path,
                   " holds no line; each must be a JSON object, as in {\"prompt\": \"…\", "
                   "\"completion\": \"…\"}"));
}

absl::StatusOr<uint64_t> FingerprintOf(const PromptSources& sources) {
  std::string plan = "sherd prompts 1\n";
  const auto add = [&](const std::string& path) -> absl::Status {
    SHERD_ASSIGN_OR_RETURN(const SourceFile file, SourceFile::Open(path, sources.root));
    absl::StrAppend(&plan, file.bytes(), " bytes of ", file.modified_nanoseconds(), " ", path,
                    "\n");
    return absl::OkStatus();
  };
  if (sources.tokenizer != "bytes") SHERD_RETURN_IF_ERROR(add(sources.tokenizer));
  for (const std::string& path : sources.files) SHERD_RETURN_IF_ERROR(add(path));
  return XXH3_64bits(plan.data(), plan.size());
}

absl::Status WritePromptFile(const PromptSources& sources, const std::string& path) {
  SHERD_ASSIGN_OR_RETURN(const TextCodec codec, TextCodec::Load(sources.tokenizer, sources.root));
  PromptEncoder encoder(codec);
  Tokens tokens;
  for (const std::string& file : sources.files) {
    SHERD_RETURN_IF_ERROR(ReadLines(sources, file, encoder, tokens));
  }
  if (!tokens.entries.empty()) return Write(tokens, path);
  return NoPrompts(sources.files.empty() ? "" : sources.files.front());
}

struct PromptSequences::File {
  explicit File(MappedFile mapped_file) : mapped(std::move(mapped_file)) {}

  absl::Status Damaged(absl::string_view how) const {
    return absl::DataLossError(absl::StrCat(mapped.name(), " is damaged: ", how,
                                            "; remove it, and the next start makes it again"));
  }
  absl::Status ReadHeader() {
    if (mapped.bytes() < static_cast<int64_t>(sizeof(Header))) return Damaged("it is too short");
    SHERD_RETURN_IF_ERROR(mapped.Read(0, sizeof(Header), &header));
    const int64_t rest = mapped.bytes() - static_cast<int64_t>(sizeof(Header));
    if (header.magic != kMagic || header.lines < 1 || header.tokens < 0 ||
        header.lines > rest / static_cast<int64_t>(sizeof(Entry)) ||
        header.tokens > rest / static_cast<int64_t>(sizeof(TokenId)) ||
        rest != header.lines * static_cast<int64_t>(sizeof(Entry)) +
                    header.tokens * static_cast<int64_t>(sizeof(TokenId))) {
      return Damaged("its header is wrong");
    }
    return absl::OkStatus();
  }
  absl::Status ReadEntries() {
    entries.resize(static_cast<size_t>(header.lines));
    SHERD_RETURN_IF_ERROR(mapped.Read(sizeof(Header), EntryBytes(), entries.data()));
    for (const Entry& entry : entries) {
      if (entry.first_token < 0 || entry.prompt < 0 || entry.length < entry.prompt ||
          entry.length > kMostLineTokens || entry.first_token > header.tokens - entry.length) {
        return Damaged("an entry lies outside of it");
      }
    }
    return absl::OkStatus();
  }
  int64_t EntryBytes() const { return header.lines * static_cast<int64_t>(sizeof(Entry)); }
  absl::Status ReadTokens(const Entry& entry, int64_t count, int32_t* out) const {
    const int64_t offset = static_cast<int64_t>(sizeof(Header)) + EntryBytes() +
                           entry.first_token * static_cast<int64_t>(sizeof(TokenId));
    return mapped.Read(offset, count * static_cast<int64_t>(sizeof(TokenId)), out);
  }

  const MappedFile mapped;
  Header header;
  std::vector<Entry> entries;
};

PromptSequences::PromptSequences(std::unique_ptr<File> file, int64_t seq_len, int64_t vocab)
    : file_(std::move(file)), seq_len_(seq_len), vocab_(vocab) {
  for (size_t line = 0; line < file_->entries.size(); ++line) {
    const Entry& entry = file_->entries[line];
    if (PredictedTokens(entry.prompt, entry.length, seq_len) > 0) {
      kept_.push_back(static_cast<int64_t>(line));
    }
  }
}

PromptSequences::~PromptSequences() = default;

int64_t PromptSequences::lines() const { return file_->header.lines; }
int64_t PromptSequences::tokens() const { return file_->header.tokens; }

absl::StatusOr<std::unique_ptr<PromptSequences>> PromptSequences::Open(const std::string& path,
                                                                       int64_t seq_len,
                                                                       int64_t vocab) {
  SHERD_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open("", path));
  auto file = std::make_unique<File>(std::move(mapped));
  SHERD_RETURN_IF_ERROR(file->ReadHeader());
  SHERD_RETURN_IF_ERROR(file->ReadEntries());
  std::unique_ptr<PromptSequences> sequences(new PromptSequences(std::move(file), seq_len, vocab));
  if (sequences->count() > 0) return sequences;
  return absl::InvalidArgumentError(
      absl::StrCat("of ", sequences->lines(), " lines none has a completion that begins within ",
                   seq_len + 1, " tokens; give a longer train.seq_len or shorter prompts"));
}

int64_t PromptSequences::Targets(int64_t index) const {
  const Entry& entry = file_->entries[static_cast<size_t>(kept_[static_cast<size_t>(index)])];
  return PredictedTokens(entry.prompt, entry.length, seq_len_);
}

absl::Status PromptSequences::Fill(int64_t index, int32_t* inputs, int32_t* targets) const {
  const Entry& entry = file_->entries[static_cast<size_t>(kept_[static_cast<size_t>(index)])];
  const int64_t count = std::min<int64_t>(entry.length, seq_len_ + 1);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  SHERD_RETURN_IF_ERROR(file_->ReadTokens(entry, count, tokens.data()));
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocab_) continue;
    return absl::OutOfRangeError(absl::StrCat("the data hold token ", token,
                                              ", but model.vocab is ", vocab_,
                                              "; it must be above every token"));
  }
  std::fill(std::copy_n(tokens.begin(), count - 1, inputs), inputs + seq_len_, 0);
  std::fill_n(targets, seq_len_, -1);
  for (int64_t place = std::max<int64_t>(entry.prompt - 1, 0); place < count - 1; ++place) {
    targets[place] = tokens[static_cast<size_t>(place + 1)];
  }
  return absl::OkStatus();
}

}  // namespace sherd
