#include "worker/train/rank_mesh.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "plan/step_plan.h"
#include "worker/train/phase_timer.h"

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

absl::Status WithRanks(const absl::Status& error, const std::vector<int>& ranks) {
  if (ranks.back() + 1 == static_cast<int>(ranks.size())) return error;
  absl::Status explained(error.code(),
                         absl::StrCat(error.message(), " (ranks of a group that are ranks ",
                                      absl::StrJoin(ranks, ", "), " of the job)"));
  error.ForEachPayload([&explained](absl::string_view url, const absl::Cord& payload) {
    explained.SetPayload(url, payload);
  });
  return explained;
}

RankMesh::RankMesh(Axes axes) : axes_(std::move(axes)) {
  SHERD_CHECK(axes_.sharers.comm != nullptr);
}

int RankMesh::rank() const {
  const int data_rank = PlaceOf(axes_.replicas) * SizeOf(axes_.sharers) + PlaceOf(axes_.sharers);
  return data_rank * SizeOf(axes_.tensor) + PlaceOf(axes_.tensor);
}

int RankMesh::size() const { return data_size() * SizeOf(axes_.tensor); }

int RankMesh::data_size() const { return SizeOf(axes_.sharers) * SizeOf(axes_.replicas); }

Communicator& RankMesh::Sharing(int members) const {
  const Axis& axis = members == SizeOf(axes_.tensor) ? axes_.tensor : axes_.kv_copies;
  SHERD_CHECK(axis.comm != nullptr && axis.comm->size() == members);
  return *axis.comm;
}

// Each axis in turn passes on all that the ones before it have brought together.
absl::Status RankMesh::Exchange(const void* record, void* records, int64_t bytes) {
  const WaitingFlag flag(waiting_);
  const auto* const own = static_cast<const std::byte*>(record);
  std::vector<std::byte> known(own, own + bytes);
  for (const Axis* axis : {&axes_.sharers, &axes_.replicas, &axes_.tensor}) {
    if (axis->comm == nullptr) continue;
    std::vector<std::byte> more(known.size() * static_cast<size_t>(axis->comm->size()));
    SHERD_RETURN_IF_ERROR(ExchangeInPieces(*axis->comm, known.data(), more.data(),
                                           static_cast<int64_t>(known.size())));
    known = std::move(more);
  }
  // They lie tensor place by tensor place, each with the ranks of its data-parallel group.
  auto* const all = static_cast<std::byte*>(records);
  const size_t tensor = static_cast<size_t>(SizeOf(axes_.tensor));
  const size_t data = static_cast<size_t>(data_size());
  const size_t size = static_cast<size_t>(bytes);
  for (size_t place = 0; place < tensor; ++place) {
    for (size_t rank = 0; rank < data; ++rank) {
      std::memcpy(all + (rank * tensor + place) * size, known.data() + (place * data + rank) * size,
                  size);
    }
  }
  return absl::OkStatus();
}

// Who has left the barrier of the last axis knows that all members of it have left those before,
// and so that all ranks have come.
absl::Status RankMesh::Barrier() {
  const WaitingFlag flag(waiting_);
  for (const Axis* axis : {&axes_.sharers, &axes_.replicas, &axes_.tensor}) {
    if (axis->comm != nullptr) SHERD_RETURN_IF_ERROR(axis->comm->Wait(axis->comm->Barrier()));
  }
  return absl::OkStatus();
}

std::vector<int> RankMesh::missing() const {
  std::set<int> ranks;
  for (const Axis* axis : all()) {
    if (axis->comm == nullptr) continue;
    for (const int place : axis->comm->missing()) {
      ranks.insert(axis->ranks[static_cast<size_t>(place)]);
    }
  }
  return {ranks.begin(), ranks.end()};
}

void RankMesh::AwaitQuiet() {
  for (const Axis* axis : all()) {
    if (axis->comm != nullptr) axis->comm->Wait(axis->comm->Barrier()).IgnoreError();
  }
}

absl::Status RankMesh::status() const {
  for (const Axis* axis : all()) {
    if (axis->comm != nullptr) SHERD_RETURN_IF_ERROR(axis->comm->status());
  }
  return absl::OkStatus();
}

void RankMesh::Abort(absl::string_view reason) {
  for (const Axis* axis : all()) {
    if (axis->comm != nullptr) axis->comm->Abort(reason);
  }
}

const RankMesh::Axis* RankMesh::SourceOf(const absl::Status& error) const {
  const Axis* source = nullptr;
  int best = -1;
  for (const Axis* axis : all()) {
    if (axis->comm == nullptr || error.ok()) continue;
    const absl::Status status = axis->comm->status();
    if (status.ok() || status.message() != error.message()) continue;
    // Whoever hears of an error on one axis ends the others with its words, as an abort: `error`
    // may be of one of those, and those of peers may have come from whom they had heard it.
    const int rating = (axis->comm->ended_by() >= 0 ? 2 : 0) + (absl::IsAborted(status) ? 0 : 1);
    if (rating <= best) continue;
    best = rating;
    source = axis;
  }
  return source;
}

int RankMesh::ended_by(const absl::Status& error) const {
  const Axis* source = SourceOf(error);
  const int place = source == nullptr ? -1 : source->comm->ended_by();
  return place < 0 ? -1 : source->ranks[static_cast<size_t>(place)];
}

absl::Status RankMesh::Explain(const absl::Status& error) const {
  const Axis* source = SourceOf(error);
  return source == nullptr ? error : WithRanks(error, source->ranks);
}

std::array<WireGroup, 4> RankMesh::wire_groups() const {
  // Where nobody else holds copies, those that share shards are the data-parallel group.
  const WireGroup sharers = axes_.replicas.comm == nullptr ? WireGroup::kData : WireGroup::kShard;
  return {sharers, WireGroup::kReplica, WireGroup::kTensor, WireGroup::kKvCopy};
}

GroupCounts RankMesh::counts_by_group() const {
  GroupCounts counts{};
  for (size_t axis = 0; axis < all().size(); ++axis) {
    const Communicator* comm = all()[axis]->comm.get();
    if (comm != nullptr) counts[static_cast<size_t>(wire_groups()[axis])] = comm->counts();
  }
  return counts;
}

std::array<absl::string_view, kWireGroups> RankMesh::transports() const {
  std::array<absl::string_view, kWireGroups> transports{};
  for (size_t axis = 0; axis < all().size(); ++axis) {
    const Communicator* comm = all()[axis]->comm.get();
    if (comm != nullptr) transports[static_cast<size_t>(wire_groups()[axis])] = comm->transport();
  }
  return transports;
}

int64_t RankMesh::ControlBytes(bool on_device) const {
  int64_t bytes = 0;
  for (const Axis* axis : all()) {
    if (axis->comm != nullptr && axis->on_device == on_device) bytes += axis->comm->control_bytes();
  }
  return bytes;
}

int64_t RankMesh::arena_bytes() const {
  int64_t bytes = 0;
  for (const Axis* axis : all()) bytes += axis->comm == nullptr ? 0 : axis->comm->arena_bytes();
  return bytes;
}

}  // namespace sherd
