#include "worker/pack/pack.h"

#define XXH_INLINE_ALL
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status_macros.h"
#include "worker/tokenizer/tokenizer_json.h"

namespace sherd {
namespace {

// Of files that cannot be cut into pieces.
constexpr int64_t kMostWholeBytes = 256 << 20;
constexpr int64_t kMostUint16Vocab = 1 << 16;

struct LoadedTokenizer {
  Tokenizer tokenizer;
  uint64_t hash;
};

absl::StatusOr<std::string> ReadTokenizer(const PackOptions& options) {
  SHERD_ASSIGN_OR_RETURN(const SourceFile file, SourceFile::Open(options.tokenizer, options.root));
  if (file.bytes() > kMostTokenizerFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.tokenizer, " is larger than a tokenizer may be"));
  }
  return file.Read(0, file.bytes());
}

uint64_t HashOf(absl::string_view text) { return XXH3_64bits(text.data(), text.size()); }

absl::StatusOr<LoadedTokenizer> LoadTokenizer(const PackOptions& options) {
  SHERD_ASSIGN_OR_RETURN(const std::string json, ReadTokenizer(options));
  absl::StatusOr<Tokenizer> tokenizer = ParseTokenizer(json);
  if (!tokenizer.ok()) {
    return absl::Status(tokenizer.status().code(),
                        absl::StrCat(options.tokenizer, ": ", tokenizer.status().message()));
  }
  return LoadedTokenizer{*std::move(tokenizer), HashOf(json)};
}

absl::StatusOr<std::optional<TokenId>> EndToken(const PackOptions& options,
                                                const Tokenizer& tokenizer) {
  if (options.no_end_token) return std::nullopt;
  if (options.end_token.has_value()) {
    const std::optional<TokenId> token = tokenizer.FindAdded(*options.end_token);
    if (token.has_value()) return token;
    return absl::InvalidArgumentError(
        absl::StrCat("the tokenizer has no added token ", *options.end_token));
  }
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>"}) {
    if (const std::optional<TokenId> token = tokenizer.FindAdded(name)) return token;
  }
  if (options.may_lack_end_token) return std::nullopt;
  return absl::InvalidArgumentError(
      "the tokenizer has neither <|endoftext|> nor <|end_of_text|>; name the token that ends a "
      "document with --end TOKEN, or give --no-end");
}

absl::StatusOr<std::vector<SourceFile>> OpenFiles(const PackOptions& options, bool whole) {
  std::vector<SourceFile> files;
  for (const std::string& path : options.files) {
    SHERD_ASSIGN_OR_RETURN(SourceFile file, SourceFile::Open(path, options.root));
    if (whole && file.bytes() > kMostWholeBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " has ", file.bytes(),
                       " bytes, and texts cannot be cut under this tokenizer, whose "
                       "added tokens have to do with spaces or whose words have no ends; at most ",
                       kMostWholeBytes, " are possible"));
    }
    files.push_back(std::move(file));
  }
  if (files.empty()) return absl::InvalidArgumentError("no file is named");
  return files;
}

// All that decides the bytes of the pieces.
std::string PlanText(const PackOptions& options, uint64_t tokenizer_hash,
                     const std::optional<TokenId>& end_token, int id_bytes,
                     const std::vector<SourceFile>& files) {
  std::string plan = absl::StrCat(
      "sherd pieces 1\ntokenizer ", absl::Hex(tokenizer_hash, absl::kZeroPad16), "\nid bytes ",
      id_bytes, "\nend ", end_token.has_value() ? absl::StrCat(*end_token) : "none",
      "\npost-process ", options.post_process, "\nspecial as text ", options.special_as_text,
      "\npiece bytes ", options.piece_bytes, "\n",
      options.jsonl ? absl::StrCat("jsonl ", options.field) : "text", "\n");
  for (const SourceFile& file : files) {
    absl::StrAppend(&plan, file.bytes(), " bytes of ", file.modified_nanoseconds(), " ",
                    file.path(), "\n");
  }
  return plan;
}

// 256 int32: magic, version and number of tokens.
absl::StatusOr<std::string> HeaderOf(PackFormat format, int id_bytes, int64_t tokens) {
  if (format == PackFormat::kTokensU16) return "";
  if (tokens > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(tokens, " tokens do not fit into one llmc file, whose header counts to ",
                     std::numeric_limits<int32_t>::max(), "; tokenize fewer files at once"));
  }
  std::array<int32_t, 256> header = {};
  header[0] = id_bytes == 2 ? 20240520 : 20240801;
  header[1] = id_bytes == 2 ? 1 : 7;
  header[2] = static_cast<int32_t>(tokens);
  return std::string(reinterpret_cast<const char*>(header.data()), sizeof(header));
}

// What was read while it changed is neither the old file nor the new one.
absl::Status CheckUnchanged(const std::vector<SourceFile>& files, const std::string& root) {
  for (const SourceFile& file : files) {
    SHERD_ASSIGN_OR_RETURN(const SourceFile now, SourceFile::Open(file.path(), root));
    if (now.bytes() != file.bytes() || now.modified_nanoseconds() != file.modified_nanoseconds()) {
      return absl::DataLossError(absl::StrCat(file.path(), " has changed while it was tokenized"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> FingerprintOf(const PackOptions& options) {
  SHERD_ASSIGN_OR_RETURN(const std::string tokenizer, ReadTokenizer(options));
  SHERD_ASSIGN_OR_RETURN(const std::vector<SourceFile> files, OpenFiles(options, /*whole=*/false));
  return HashOf(PlanText(options, HashOf(tokenizer), std::nullopt, 0, files));
}

absl::StatusOr<PackSummary> Pack(const PackOptions& options,
                                 absl::FunctionRef<void(const PackProgress&)> on_progress) {
  const absl::Time start = absl::Now();
  if (access(options.out.c_str(), F_OK) == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat(options.out, " exists; name another file or remove it"));
  }
  SHERD_ASSIGN_OR_RETURN(const LoadedTokenizer loaded, LoadTokenizer(options));
  const Tokenizer& tokenizer = loaded.tokenizer;
  if (options.format == PackFormat::kTokensU16 && tokenizer.vocab() > kMostUint16Vocab) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tokenizer's ", tokenizer.vocab(),
                     " ids do not fit into uint16; the format llmc takes them"));
  }
  DocumentOptions documents;
  documents.jsonl = options.jsonl;
  documents.field = options.field;
  documents.post_process = options.post_process;
  documents.encode.special_as_text = options.special_as_text;
  SHERD_ASSIGN_OR_RETURN(documents.end_token, EndToken(options, tokenizer));
  const bool whole = !options.jsonl && !tokenizer.CanCut();
  SHERD_ASSIGN_OR_RETURN(const std::vector<SourceFile> files, OpenFiles(options, whole));

  PackSummary summary;
  summary.vocab = tokenizer.vocab();
  summary.id_bytes = tokenizer.vocab() > kMostUint16Vocab ? 4 : 2;
  std::vector<int64_t> file_bytes;
  for (const SourceFile& file : files) {
    file_bytes.push_back(file.bytes());
    summary.bytes += file.bytes();
  }
  const std::vector<PlannedPiece> plan = PlanPieces(file_bytes, options.piece_bytes, whole);
  SHERD_ASSIGN_OR_RETURN(
      PieceStore store,
      PieceStore::Open(options.out,
                       PlanText(options, loaded.hash, documents.end_token, summary.id_bytes, files),
                       summary.id_bytes));
  SHERD_ASSIGN_OR_RETURN(const PiecesDone done,
                         RunPieces(files, plan, tokenizer, documents, store, options.threads,
                                   options.stopped, on_progress));
  summary.tokens = done.tokens;
  summary.documents = done.documents;
  summary.pieces = plan.size();
  summary.found_pieces = done.found_pieces;
  SHERD_RETURN_IF_ERROR(CheckUnchanged(files, options.root));
  SHERD_ASSIGN_OR_RETURN(const std::string header,
                         HeaderOf(options.format, summary.id_bytes, summary.tokens));
  SHERD_RETURN_IF_ERROR(store.Assemble(header, plan.size()));
  summary.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  return summary;
}

}  // namespace sherd
