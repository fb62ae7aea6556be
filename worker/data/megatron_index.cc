#include "worker/data/megatron_index.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

constexpr absl::string_view kMagic("MMIDIDX\0\0", 9);
constexpr int64_t kVersionAt = 9;
constexpr int64_t kTypeAt = 17;
constexpr int64_t kSequencesAt = 18;
constexpr int64_t kDocumentsAt = 26;
constexpr int64_t kHeaderBytes = 34;
// Sequences that are read together.
constexpr int64_t kBlock = 1024;

// By the code of numpy's type, from 1.
constexpr IdType kTypes[] = {IdType::kU8,  IdType::kI8,  IdType::kI16, IdType::kI32,
                             IdType::kI64, IdType::kF64, IdType::kF32, IdType::kU16};

uint64_t WordAt(const std::array<char, kHeaderBytes>& header, int64_t byte) {
  uint64_t word;
  std::memcpy(&word, header.data() + byte, sizeof word);
  return word;
}

}  // namespace

absl::Status MegatronIndex::Refuse(int64_t byte, absl::string_view reason) const {
  return absl::InvalidArgumentError(absl::StrCat(name(), ": byte ", byte, ": ", reason));
}

absl::StatusOr<MegatronIndex> MegatronIndex::Open(MappedFile file, int64_t data_bytes) {
  MegatronIndex index(std::move(file), data_bytes);
  SHERD_RETURN_IF_ERROR(index.ReadHeader());
  SHERD_RETURN_IF_ERROR(index.CheckSequences());
  SHERD_RETURN_IF_ERROR(index.CheckDocuments());
  return index;
}

absl::Status MegatronIndex::ReadHeader() {
  if (bytes() < kHeaderBytes) {
    return Refuse(bytes(), absl::StrCat("the file ends within the header of ", kHeaderBytes,
                                        " bytes of a Megatron index"));
  }
  std::array<char, kHeaderBytes> header;
  SHERD_RETURN_IF_ERROR(file_.Read(0, kHeaderBytes, header.data()));
  if (absl::string_view(header.data(), kMagic.size()) != kMagic) {
    return Refuse(0, "a Megatron index starts with MMIDIDX and two NUL bytes, this file does not");
  }
  if (const uint64_t version = WordAt(header, kVersionAt); version != 1) {
    return Refuse(kVersionAt, absl::StrCat("the version is ", version, "; it must be 1"));
  }
  const int code = static_cast<unsigned char>(header[kTypeAt]);
  if (code < 1 || code > static_cast<int>(std::size(kTypes))) {
    return Refuse(kTypeAt, absl::StrCat("the code of the type is ", code, "; it must be 1 to ",
                                        std::size(kTypes)));
  }
  type_ = kTypes[code - 1];
  lengths_at_ = kHeaderBytes;
  // As unsigned numbers: each may be anything.
  const uint64_t sequences = WordAt(header, kSequencesAt);
  const uint64_t most_sequences = static_cast<uint64_t>(bytes() - kHeaderBytes) / 12;
  if (sequences > most_sequences) {
    return Refuse(kSequencesAt,
                  absl::StrCat("the index of ", sequences, " sequences takes 12 bytes for each, ",
                               "but the file ends at byte ", bytes()));
  }
  sequences_ = static_cast<int64_t>(sequences);
  const uint64_t limits = WordAt(header, kDocumentsAt);
  const auto left = static_cast<uint64_t>(bytes() - documents_at());
  if (limits < 1 || limits > left / 8 || limits * 8 != left) {
    const bool modes = limits >= 1 && limits <= left / 8 && left - limits * 8 == sequences;
    return Refuse(
        kDocumentsAt,
        modes ? std::string("behind its documents the index has a mode for every "
                            "sequence; data of several modes are not supported")
              : absl::StrCat(limits, " limits of documents take 8 bytes each from byte ",
                             documents_at(), " to the end of the file, which is byte ", bytes()));
  }
  documents_ = static_cast<int64_t>(limits) - 1;
  return absl::OkStatus();
}

absl::StatusOr<MegatronIndex::Sequences> MegatronIndex::ReadBlock(int64_t block) const {
  const int64_t first = block * kBlock;
  const int64_t count = std::min(kBlock, sequences_ - first);
  Sequences sequences;
  sequences.lengths.resize(static_cast<size_t>(count));
  sequences.pointers.resize(static_cast<size_t>(count));
  SHERD_RETURN_IF_ERROR(file_.Read(lengths_at_ + 4 * first, 4 * count, sequences.lengths.data()));
  SHERD_RETURN_IF_ERROR(
      file_.Read(pointers_at() + 8 * first, 8 * count, sequences.pointers.data()));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = sequences.lengths[static_cast<size_t>(i)];
    const int64_t pointer = sequences.pointers[static_cast<size_t>(i)];
    if (length < 0) {
      return Refuse(lengths_at_ + 4 * (first + i),
                    absl::StrCat("sequence ", first + i, " has a length of ", length));
    }
    if (pointer < 0 || pointer > data_bytes_ || length * WidthOf(type_) > data_bytes_ - pointer) {
      return Refuse(pointers_at() + 8 * (first + i),
                    absl::StrCat("sequence ", first + i, " has ", length, " tokens of ",
                                 WidthOf(type_), " bytes from byte ", pointer,
                                 " on, but the file of tokens ends at byte ", data_bytes_));
    }
  }
  return sequences;
}

absl::Status MegatronIndex::CheckSequences() {
  int64_t end = 0;
  for (int64_t block = 0; block * kBlock < sequences_; ++block) {
    SHERD_ASSIGN_OR_RETURN(const Sequences sequences, ReadBlock(block));
    block_tokens_.push_back(tokens_);
    for (size_t i = 0; i < sequences.lengths.size(); ++i) {
      const int64_t length = sequences.lengths[i];
      if (length > std::numeric_limits<int64_t>::max() - tokens_) {
        return Refuse(lengths_at_, "all lengths together are above 2^63");
      }
      tokens_ += length;
      end = std::max(end, sequences.pointers[i] + length * WidthOf(type_));
    }
  }
  if (tokens_ == 0) {
    return Refuse(kSequencesAt,
                  absl::StrCat("the index names ", sequences_, " sequences, which have no token"));
  }
  if (end != data_bytes_) {
    return Refuse(pointers_at(), absl::StrCat("the last sequence ends at byte ", end,
                                              " of the file of tokens, which has ", data_bytes_,
                                              " bytes: it is of another index"));
  }
  return absl::OkStatus();
}

absl::Status MegatronIndex::CheckDocuments() const {
  std::array<int64_t, kBlock> limits;
  int64_t before = 0;
  for (int64_t first = 0; first <= documents_; first += kBlock) {
    const int64_t count = std::min(kBlock, documents_ + 1 - first);
    const int64_t at = documents_at() + 8 * first;
    SHERD_RETURN_IF_ERROR(file_.Read(at, 8 * count, limits.data()));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t limit = limits[static_cast<size_t>(i)];
      const bool starts = first + i == 0;
      if (starts ? limit != 0 : limit < before || limit > sequences_) {
        return Refuse(at + 8 * i,
                      absl::StrCat("document ", first + i, " starts at sequence ", limit,
                                   ", the one before at ", before, ", of ", sequences_));
      }
      before = limit;
    }
  }
  if (before == sequences_) return absl::OkStatus();
  return Refuse(
      documents_at() + 8 * documents_,
      absl::StrCat("the last document ends before sequence ", before, " of ", sequences_));
}

absl::StatusOr<MegatronIndex::Sequences> MegatronIndex::Around(int64_t token) const {
  const auto block =
      static_cast<size_t>(std::upper_bound(block_tokens_.begin(), block_tokens_.end(), token) -
                          block_tokens_.begin() - 1);
  absl::StatusOr<Sequences> sequences = ReadBlock(static_cast<int64_t>(block));
  int64_t held = 0;
  if (sequences.ok()) {
    sequences->first_token = block_tokens_[block];
    for (const int32_t length : sequences->lengths) held += length;
  }
  const int64_t next = block + 1 < block_tokens_.size() ? block_tokens_[block + 1] : tokens_;
  if (absl::IsInvalidArgument(sequences.status()) ||
      (sequences.ok() && block_tokens_[block] + held != next)) {
    return absl::DataLossError(absl::StrCat(
        name(), " has changed since it was opened; leave data files as they are while a job runs"));
  }
  return sequences;
}

}  // namespace sherd
