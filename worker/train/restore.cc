#include "worker/train/restore.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/holdings/holding_links.h"

namespace sherd {
namespace {

// A part of the version, and how it is cut.
struct Source {
  RankPlan plan;
  std::shared_ptr<HoldingSegment> segment;
  int slot = -1;
};

absl::StatusOr<std::shared_ptr<HoldingSegment>> FindSegment(
    const v1::RestoreSource& source, const HoldingKey& key, int64_t slot_bytes,
    const HoldingStore& store, const std::string& own_address, const FormationAbort& abort) {
  if (std::shared_ptr<HoldingSegment> own = store.Find(key); own != nullptr) return own;
  if (source.address() == own_address) {
    return absl::UnavailableError("this process does not hold it any more");
  }
  return Obtain(source.address(), key, slot_bytes, &abort);
}

absl::StatusOr<Source> Open(const v1::Assignment& assignment, const v1::RestoreSource& named,
                            const HoldingStore& store, const std::string& own_address,
                            const FormationAbort& abort) {
  const v1::RestorePlan& version = assignment.restore();
  if (named.owner() < 0 || named.owner() >= version.world()) {
    return absl::InvalidArgumentError(absl::StrCat("the restore plan names rank ", named.owner(),
                                                   " of a world of ", version.world()));
  }
  Source source;
  source.plan = BuildRankPlan(assignment.spec(), named.owner(), version.world());
  const HoldingKey key{assignment.job_id(), version.epoch(), version.world(), named.owner()};
  const int64_t bytes = VersionBytes(source.plan);
  absl::StatusOr<std::shared_ptr<HoldingSegment>> segment =
      FindSegment(named, key, bytes, store, own_address, abort);
  const auto lost = [&](absl::string_view why) {
    return absl::UnavailableError(absl::StrCat("the part of rank ", named.owner(), " of step ",
                                               version.step(), " of epoch ", version.epoch(),
                                               " cannot be had from ", named.address(), ": ", why));
  };
  if (absl::IsAborted(segment.status())) return segment.status();
  if (!segment.ok()) return lost(segment.status().message());
  source.segment = *std::move(segment);
  if (source.segment->slot_bytes() != bytes) return lost("it is of another size");
  source.slot = source.segment->FindStep(version.step());
  const std::optional<v1::Holding> held =
      source.slot < 0 ? std::nullopt : source.segment->Held(source.slot);
  if (!held.has_value()) return lost("it holds other steps");
  if (source.segment->Checksum(source.slot) != held->checksum()) {
    source.segment->Discard(source.slot);
    return lost("its bytes are not those that were stored");
  }
  return source;
}

// Copies what the source has of what the rank owns of a unit; the elements copied.
int64_t CopyUnit(const ElementRange& held, const float* from, const ElementRange& owned,
                 const AdamWState& to, int64_t elements) {
  const int64_t begin = std::max(held.begin, owned.begin);
  const int64_t end = std::min({held.end, owned.end, elements});
  if (begin >= end) return 0;
  const size_t bytes = static_cast<size_t>(end - begin) * sizeof(float);
  for (float* const array : {to.master, to.m, to.v}) {
    std::memcpy(array + (begin - owned.begin), from + (begin - held.begin), bytes);
    from += held.size();
  }
  return end - begin;
}

int64_t CopySource(const Source& source, const RankPlan& plan, RankMemory& memory) {
  const auto* from = reinterpret_cast<const float*>(source.segment->slot(source.slot));
  int64_t copied = 0;
  for (size_t index = 0; index < plan.inventory.units.size(); ++index) {
    const int unit = static_cast<int>(index);
    const ElementRange held = source.plan.Owned(unit);
    copied += CopyUnit(held, from, plan.Owned(unit), memory.unit(unit).state,
                       plan.layout.units[index].elements);
    from += 3 * held.size();
  }
  return copied;
}

int64_t ElementsOwned(const RankPlan& plan) {
  int64_t elements = 0;
  for (size_t index = 0; index < plan.layout.units.size(); ++index) {
    const ElementRange owned = plan.Owned(static_cast<int>(index));
    elements +=
        std::max<int64_t>(0, std::min(owned.end, plan.layout.units[index].elements) - owned.begin);
  }
  return elements;
}

}  // namespace

bool RestoresVersion(const v1::Assignment& assignment) {
  return assignment.has_restore() && assignment.restore().checkpoint().empty();
}

absl::Status RestoreVersion(const v1::Assignment& assignment, const RankPlan& plan,
                            const HoldingStore& store, const std::string& own_address,
                            const FormationAbort& abort, RankMemory& memory,
                            HoldingSegment& segment) {
  int64_t copied = 0;
  for (const v1::RestoreSource& named : assignment.restore().sources()) {
    SHERD_ASSIGN_OR_RETURN(const Source source, Open(assignment, named, store, own_address, abort));
    if (source.plan.part().place.index != plan.part().place.index) {
      return absl::InvalidArgumentError(
          "the restore plan names a rank of another place in its tensor-parallel group");
    }
    copied += CopySource(source, plan, memory);
    for (const v1::StepReport& report : source.segment->Reports(0, assignment.restore().step())) {
      segment.Report(report);
    }
  }
  if (copied == ElementsOwned(plan)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the restore plan's parts hold ", copied,
                                                 " of the ", ElementsOwned(plan),
                                                 " elements that the rank owns"));
}

}  // namespace sherd
