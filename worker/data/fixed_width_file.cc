#include <array>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/data/open_formats.h"

namespace sherd {
namespace {

// Ids of one width from `start` to the end of the file.
class FixedWidthFile final : public TokenFile {
 public:
  FixedWidthFile(MappedFile file, IdType type, int64_t start)
      : file_(std::move(file)),
        type_(type),
        start_(start),
        tokens_((file_.bytes() - start) / WidthOf(type)) {}

  const std::string& name() const override { return file_.name(); }
  int64_t tokens() const override { return tokens_; }
  int64_t bytes() const override { return file_.bytes(); }
  IdType type() const override { return type_; }

  absl::Status Read(int64_t begin, int64_t count, int32_t* out) const override {
    return ReadIds(file_, type_, start_ + begin * WidthOf(type_), count, out);
  }

 private:
  const MappedFile file_;
  const IdType type_;
  const int64_t start_;
  const int64_t tokens_;
};

constexpr int64_t kLlmcHeaderBytes = 1024;

struct LlmcKind {
  int32_t magic;
  int32_t version;
  IdType type;
};

constexpr LlmcKind kLlmcKinds[] = {{20240520, 1, IdType::kU16}, {20240801, 7, IdType::kU32}};
// Examples of multiple-choice questions.
constexpr int32_t kLlmcEvalMagic = 20240522;

const LlmcKind* KindOf(int32_t magic) {
  for (const LlmcKind& kind : kLlmcKinds) {
    if (kind.magic == magic) return &kind;
  }
  return nullptr;
}

// Magic, version and number of tokens.
using LlmcWords = std::array<int32_t, 3>;

bool IsWhole(const LlmcKind& kind, const LlmcWords& words, int64_t bytes) {
  return words[1] == kind.version && words[2] > 0 &&
         kLlmcHeaderBytes + words[2] * WidthOf(kind.type) == bytes;
}

absl::Status Refuse(const MappedFile& file, int64_t byte, absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat(file.name(), ": byte ", byte, ": ", reason));
}

// Ids may be anything, but not all of another format's header.
absl::Status CheckNoHeader(const MappedFile& file) {
  if (file.bytes() >= kLlmcHeaderBytes) {
    LlmcWords words;
    SHERD_RETURN_IF_ERROR(file.Read(0, sizeof words, words.data()));
    const LlmcKind* const kind = KindOf(words[0]);
    if (kind != nullptr && IsWhole(*kind, words, file.bytes())) {
      return Refuse(file, 0, "llm.c's header is there; data.format llmc reads such files");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenFile>> OpenTokensU16File(MappedFile file) {
  if (file.bytes() % 2 != 0) {
    return Refuse(file, file.bytes() - 1,
                  "the file ends in the middle of a token; tokens_u16 has two bytes for each");
  }
  SHERD_RETURN_IF_ERROR(CheckNoHeader(file));
  return std::make_unique<FixedWidthFile>(std::move(file), IdType::kU16, 0);
}

absl::StatusOr<std::unique_ptr<TokenFile>> OpenLlmcFile(MappedFile file) {
  if (file.bytes() < kLlmcHeaderBytes) {
    return Refuse(file, file.bytes(), "the file ends within llm.c's header of 1024 bytes");
  }
  LlmcWords words;
  SHERD_RETURN_IF_ERROR(file.Read(0, sizeof words, words.data()));
  const auto [magic, version, tokens] = words;
  if (magic == kLlmcEvalMagic) {
    return Refuse(file, 0, "the magic number 20240522 is of llm.c's multiple-choice questions");
  }
  const LlmcKind* const kind = KindOf(magic);
  if (kind == nullptr) {
    return Refuse(file, 0,
                  absl::StrCat("the magic number is ", magic, "; llm.c has ", kLlmcKinds[0].magic,
                               " and ", kLlmcKinds[1].magic));
  }
  if (version != kind->version) {
    return Refuse(file, 4,
                  absl::StrCat("the version is ", version, "; with magic number ", magic,
                               " it must be ", kind->version));
  }
  if (tokens < 1) {
    return Refuse(file, 8,
                  absl::StrCat("the number of tokens is ", tokens, "; it must be above 0"));
  }
  if (!IsWhole(*kind, words, file.bytes())) {
    return Refuse(file, 8,
                  absl::StrCat(tokens, " tokens of ", WidthOf(kind->type), " bytes make a file of ",
                               kLlmcHeaderBytes + tokens * WidthOf(kind->type),
                               " bytes, but it has ", file.bytes()));
  }
  return std::make_unique<FixedWidthFile>(std::move(file), kind->type, kLlmcHeaderBytes);
}

}  // namespace sherd
