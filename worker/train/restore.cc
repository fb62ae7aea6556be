#include "worker/train/restore.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "plan/world_layout.h"
#include "worker/comm/link_socket.h"
#include "worker/holdings/holding_links.h"
#include "worker/holdings/lost_holder.h"
#include "worker/holdings/remote_version.h"

namespace sherd {
namespace {

// Parts that are taken at the same time.
constexpr size_t kMostReaders = 8;

// A part of the version, where it is, and what of it goes where.
struct Source {
  std::string address;
  HoldingKey key;
  int64_t slot_bytes = 0;
  std::vector<VersionRange> ranges;
};

// What comes of it beside the bytes.
struct Taken {
  absl::Status status;
  VersionFigures figures;
  std::vector<v1::StepReport> reports;
  // The holder was not reached, rather than that it has nothing to give.
  bool unreached = false;
};

bool IsLinkError(const absl::Status& error) {
  return absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error);
}

// Adds what the source has of what the rank owns of a unit; the elements of it.
int64_t AddUnit(const ElementRange& held, int64_t held_begin, const ElementRange& owned,
                const AdamWState& to, int64_t elements, std::vector<VersionRange>& ranges) {
  const int64_t begin = std::max(held.begin, owned.begin);
  const int64_t end = std::min({held.end, owned.end, elements});
  if (begin >= end) return 0;
  constexpr int64_t kBytes = sizeof(float);
  for (float* const array : {to.master, to.m, to.v}) {
    ranges.push_back({.begin = (held_begin + begin - held.begin) * kBytes,
                      .bytes = (end - begin) * kBytes,
                      .to = reinterpret_cast<std::byte*>(array + (begin - owned.begin))});
    held_begin += held.size();
  }
  return end - begin;
}

// Adds to `elements` those that the source has of what the rank owns.
absl::StatusOr<Source> SourceOf(const v1::Assignment& assignment, const v1::RestoreSource& named,
                                const RankPlan& plan, RankMemory& memory, int64_t& elements) {
  const v1::RestorePlan& version = assignment.restore();
  if (named.owner() < 0 || named.owner() >= version.world()) {
    return absl::InvalidArgumentError(absl::StrCat("the restore plan names rank ", named.owner(),
                                                   " of a world of ", version.world()));
  }
  v1::JobSpec spec = assignment.spec();
  // Its epoch may have been laid out otherwise.
  if (version.has_parallel()) *spec.mutable_parallel() = version.parallel();
  const int granule = static_cast<int>(WorldGranuleOf(spec.parallel()));
  if (FindStrategy(spec.parallel()) == nullptr || version.world() % granule != 0) {
    return absl::InvalidArgumentError("the restore plan names a layout that no epoch can have");
  }
  const RankPlan held = BuildRankPlan(spec, named.owner(), version.world());
  if (held.part().place.index != plan.part().place.index) {
    return absl::InvalidArgumentError(
        "the restore plan names a rank of another place in its tensor-parallel group");
  }
  Source source{
      .address = named.address(),
      .key = {assignment.job_id(), version.epoch(), version.world(), named.owner()},
      .slot_bytes = VersionBytes(held),
      .ranges = {},
  };
  int64_t unit_begin = 0;
  for (size_t index = 0; index < plan.inventory.units.size(); ++index) {
    const int unit = static_cast<int>(index);
    const ElementRange owned_there = held.Owned(unit);
    elements += AddUnit(owned_there, unit_begin, plan.Owned(unit), memory.unit(unit).state,
                        plan.layout.units[index].elements, source.ranges);
    unit_begin += 3 * owned_there.size();
  }
  return source;
}

// That of this process, if it holds the step, else that of the one that is named.
absl::StatusOr<std::shared_ptr<HoldingSegment>> FindSegment(const Source& source, int64_t step,
                                                            const OwnHoldings& own,
                                                            const FormationAbort& abort) {
  std::shared_ptr<HoldingSegment> segment = own.store.Find(source.key);
  if (segment != nullptr && segment->FindStep(step) >= 0) return segment;
  const bool named_itself =
      std::find(own.addresses.begin(), own.addresses.end(), source.address) != own.addresses.end();
  if (named_itself) return absl::UnavailableError("this process does not hold it any more");
  if (!SharesMemory(source.address)) return nullptr;
  return Obtain(source.address, source.key, source.slot_bytes, &abort);
}

absl::Status CopyRange(const std::byte* from, const VersionRange& range, const CopyWatch& watch) {
  for (int64_t at = 0; at < range.bytes; at += kWatchedBytes) {
    const int64_t piece = std::min(kWatchedBytes, range.bytes - at);
    std::memcpy(range.to + at, from + at, static_cast<size_t>(piece));
    SHERD_RETURN_IF_ERROR(watch(piece));
  }
  return absl::OkStatus();
}

Taken CopyFrom(const Source& source, int64_t step, const CopyWatch& watch,
               HoldingSegment& segment) {
  if (segment.slot_bytes() != source.slot_bytes) {
    return {absl::UnavailableError("it is of another size"), {}, {}};
  }
  const int slot = segment.FindStep(step);
  const std::optional<v1::Holding> held = slot < 0 ? std::nullopt : segment.Held(slot);
  if (!held.has_value()) return {absl::UnavailableError("it holds other steps"), {}, {}};
  const absl::StatusOr<uint64_t> checksum = segment.Checksum(slot, watch);
  if (!checksum.ok()) return {checksum.status(), {}, {}};
  if (*checksum != held->checksum()) {
    segment.Discard(slot);
    return {absl::UnavailableError("its bytes are not those that were stored"), {}, {}};
  }
  for (const VersionRange& range : source.ranges) {
    const absl::Status copied = CopyRange(segment.slot(slot) + range.begin, range, watch);
    if (!copied.ok()) return {copied, {}, {}};
  }
  return {absl::OkStatus(), segment.Figures(slot), segment.Reports(0, step)};
}

Taken ReadFrom(const Source& source, const v1::RestorePlan& version, const FormationAbort& abort,
               const CopyWatch& watch) {
  const absl::StatusOr<std::unique_ptr<RemoteVersion>> remote = RemoteVersion::Open(
      source.address, source.key, source.slot_bytes, version.step(), version.secret(), abort);
  if (!remote.ok()) return {remote.status(), {}, {}, IsLinkError(remote.status())};
  absl::Status read = (*remote)->Read(source.ranges, watch);
  const bool unreached = IsLinkError(read);
  return {std::move(read), (*remote)->figures(), (*remote)->reports(), unreached};
}

Taken Take(const Source& source, const v1::RestorePlan& version, const OwnHoldings& own,
           const FormationAbort& abort, const CopyWatch& told) {
  // Parts may have gigabytes.
  const CopyWatch watch = [&](int64_t bytes) -> absl::Status {
    if (told) SHERD_RETURN_IF_ERROR(told(bytes));
    return abort.aborted() ? absl::AbortedError(abort.reason()) : absl::OkStatus();
  };
  if (abort.aborted()) return {absl::AbortedError(abort.reason()), {}, {}};
  const absl::StatusOr<std::shared_ptr<HoldingSegment>> segment =
      FindSegment(source, version.step(), own, abort);
  Taken taken;
  if (!segment.ok()) {
    taken.status = segment.status();
  } else {
    taken = *segment == nullptr ? ReadFrom(source, version, abort, watch)
                                : CopyFrom(source, version.step(), watch, **segment);
  }
  if (taken.status.ok()) return taken;
  if (abort.aborted()) {
    taken.status = absl::AbortedError(abort.reason());
    return taken;
  }
  const auto code = IsOwnLack(taken.status) ? absl::StatusCode::kResourceExhausted
                                            : absl::StatusCode::kUnavailable;
  taken.status = absl::Status(
      code, absl::StrCat("the part of rank ", source.key.owner, " of step ", version.step(),
                         " of epoch ", version.epoch(), " cannot be had from ", source.address,
                         ": ", taken.status.message()));
  if (taken.unreached) taken.status = WithLostHolder(taken.status, source.address);
  return taken;
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

absl::StatusOr<VersionFigures> RestoreVersion(const v1::Assignment& assignment,
                                              const RankPlan& plan, const OwnHoldings& own,
                                              const FormationAbort& abort, const CopyWatch& watch,
                                              RankMemory& memory, HoldingSegment& segment) {
  const v1::RestorePlan& version = assignment.restore();
  std::vector<Source> sources;
  int64_t elements = 0;
  for (const v1::RestoreSource& named : version.sources()) {
    SHERD_ASSIGN_OR_RETURN(Source source, SourceOf(assignment, named, plan, memory, elements));
    sources.push_back(std::move(source));
  }
  if (elements != ElementsOwned(plan)) {
    return absl::InvalidArgumentError(absl::StrCat("the restore plan's parts hold ", elements,
                                                   " of the ", ElementsOwned(plan),
                                                   " elements that the rank owns"));
  }
  // Holders look at all of their part and send at the same time. Each writes elements of its own.
  std::vector<Taken> taken(sources.size());
  std::atomic<size_t> next{0};
  const auto take_some = [&] {
    for (size_t at = next++; at < sources.size(); at = next++) {
      taken[at] = Take(sources[at], version, own, abort, watch);
    }
  };
  std::vector<std::thread> helpers;
  while (helpers.size() + 1 < std::min(sources.size(), kMostReaders))
    helpers.emplace_back(take_some);
  take_some();
  for (std::thread& helper : helpers) helper.join();
  VersionFigures figures;
  for (const Taken& part : taken) {
    SHERD_RETURN_IF_ERROR(part.status);
    figures = part.figures;
    for (const v1::StepReport& report : part.reports) segment.Report(report);
  }
  return figures;
}

}  // namespace sherd
