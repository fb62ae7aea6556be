#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/id_type.h"
#include "worker/data/mapped_file.h"

namespace sherd {

// The index beside a file of Megatron's IndexedDataset: how its ids are stored, where each sequence
// lies, and which sequences make a document. Thread-safe.
class MegatronIndex {
 public:
  // Sequences [first, first + lengths.size()), in the order of the documents.
  struct Sequences {
    int64_t first_token = 0;
    // In tokens; where each starts, in bytes of the file of ids.
    std::vector<int32_t> lengths;
    std::vector<int64_t> pointers;
  };

  // Checks all of the index against a file of ids that has `data_bytes` bytes. kInvalidArgument,
  // naming byte and reason, when they contradict each other.
  static absl::StatusOr<MegatronIndex> Open(MappedFile file, int64_t data_bytes);

  const std::string& name() const { return file_.name(); }
  int64_t bytes() const { return file_.bytes(); }
  IdType type() const { return type_; }
  int64_t tokens() const { return tokens_; }
  int64_t sequences() const { return sequences_; }
  int64_t documents() const { return documents_; }

  // Some sequences, of which one holds token `token` in [0, tokens()); more follow at first_token
  // and the sum of their lengths. kDataLoss when the index is not what it was when it was opened.
  absl::StatusOr<Sequences> Around(int64_t token) const;

 private:
  explicit MegatronIndex(MappedFile file, int64_t data_bytes)
      : file_(std::move(file)), data_bytes_(data_bytes) {}

  absl::Status ReadHeader();
  absl::Status CheckSequences();
  absl::Status CheckDocuments() const;
  // kInvalidArgument for sequences that are not in the file of ids.
  absl::StatusOr<Sequences> ReadBlock(int64_t block) const;
  absl::Status Refuse(int64_t byte, absl::string_view reason) const;
  int64_t pointers_at() const { return lengths_at_ + 4 * sequences_; }
  int64_t documents_at() const { return lengths_at_ + 12 * sequences_; }

  MappedFile file_;
  int64_t data_bytes_;
  IdType type_ = IdType::kU16;
  int64_t lengths_at_ = 0;
  int64_t sequences_ = 0;
  int64_t documents_ = 0;
  int64_t tokens_ = 0;
  // The first token of every block of sequences.
  std::vector<int64_t> block_tokens_;
};

}  // namespace sherd
