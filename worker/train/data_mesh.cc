#include "worker/train/data_mesh.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/status_macros.h"
#include "plan/step_plan.h"

namespace sherd {
namespace {

absl::Status ExchangeInPieces(Communicator& comm, const std::byte* record, std::byte* records,
                              int64_t bytes) {
  static_assert(kExchangePieceBytes <= Communicator::kMaxExchangeBytes);
  const size_t ranks = static_cast<size_t>(comm.size());
  for (int64_t begin = 0; begin < bytes; begin += kExchangePieceBytes) {
    const size_t piece = static_cast<size_t>(std::min(kExchangePieceBytes, bytes - begin));
    std::vector<std::byte> pieces(piece * ranks);
    SHERD_RETURN_IF_ERROR(
        comm.Wait(comm.Exchange(record + begin, pieces.data(), static_cast<int64_t>(piece))));
    for (size_t rank = 0; rank < ranks; ++rank) {
      std::memcpy(records + static_cast<int64_t>(rank) * bytes + begin,
                  pieces.data() + rank * piece, piece);
    }
  }
  return absl::OkStatus();
}

}  // namespace

DataMesh::DataMesh(std::unique_ptr<Communicator> sharers, std::unique_ptr<Communicator> replicas)
    : sharers_(std::move(sharers)), replicas_(std::move(replicas)) {}

int DataMesh::rank() const {
  return sharers_->rank() + (replicas_ == nullptr ? 0 : replicas_->rank() * sharers_->size());
}

int DataMesh::size() const {
  return sharers_->size() * (replicas_ == nullptr ? 1 : replicas_->size());
}

absl::Status DataMesh::Exchange(const void* record, void* records, int64_t bytes) {
  const auto* const mine = static_cast<const std::byte*>(record);
  auto* const all = static_cast<std::byte*>(records);
  if (replicas_ == nullptr) return ExchangeInPieces(*sharers_, mine, all, bytes);
  const int64_t shared_bytes = bytes * sharers_->size();
  std::vector<std::byte> shared(static_cast<size_t>(shared_bytes));
  SHERD_RETURN_IF_ERROR(ExchangeInPieces(*sharers_, mine, shared.data(), bytes));
  return ExchangeInPieces(*replicas_, shared.data(), all, shared_bytes);
}

// Who has left the second barrier knows that the holders of copies have left their first, and so
// that all who share with those have come to it.
absl::Status DataMesh::Barrier() {
  SHERD_RETURN_IF_ERROR(sharers_->Wait(sharers_->Barrier()));
  if (replicas_ == nullptr) return absl::OkStatus();
  return replicas_->Wait(replicas_->Barrier());
}

absl::Status DataMesh::status() const {
  SHERD_RETURN_IF_ERROR(sharers_->status());
  return replicas_ == nullptr ? absl::OkStatus() : replicas_->status();
}

void DataMesh::Abort(absl::string_view reason) {
  sharers_->Abort(reason);
  if (replicas_ != nullptr) replicas_->Abort(reason);
}

int DataMesh::ended_by() const {
  const int sharer = sharers_->ended_by();
  if (sharer >= 0) return rank() / sharers_->size() * sharers_->size() + sharer;
  if (replicas_ == nullptr || replicas_->ended_by() < 0) return -1;
  return replicas_->ended_by() * sharers_->size() + sharers_->rank();
}

WireCounts DataMesh::counts() const {
  WireCounts counts = sharers_->counts();
  if (replicas_ == nullptr) return counts;
  const WireCounts more = replicas_->counts();
  for (size_t op = 0; op < counts.size(); ++op) {
    counts[op].bytes += more[op].bytes;
    counts[op].messages += more[op].messages;
    counts[op].calls += more[op].calls;
    counts[op].seconds += more[op].seconds;
  }
  return counts;
}

int64_t DataMesh::control_bytes() const {
  return sharers_->control_bytes() + (replicas_ == nullptr ? 0 : replicas_->control_bytes());
}

int64_t DataMesh::arena_bytes() const {
  return sharers_->arena_bytes() + (replicas_ == nullptr ? 0 : replicas_->arena_bytes());
}

}  // namespace sherd
