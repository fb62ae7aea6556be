#include "worker/holdings/version_stream.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/holdings/checksum_stream.h"
#include "worker/holdings/holding_links.h"

namespace sherd {
namespace {

constexpr int64_t kSlowestBytesPerSecond = int64_t{256} << 20;

LinkReport LinkReportOf(const v1::StepReport& report) {
  return {.step = report.step(),
          .loss = report.loss(),
          .grad_norm = report.grad_norm(),
          .lr = report.lr(),
          .tokens = report.tokens(),
          .tokens_per_second = report.tokens_per_second(),
          .step_ms = report.step_ms(),
          .exposed_ms = report.exposed_ms(),
          .skipped_windows = report.skipped_windows()};
}

v1::StepReport StepReportOf(const LinkReport& said) {
  v1::StepReport report;
  report.set_step(said.step);
  report.set_loss(said.loss);
  report.set_grad_norm(said.grad_norm);
  report.set_lr(said.lr);
  report.set_tokens(said.tokens);
  report.set_tokens_per_second(said.tokens_per_second);
  report.set_step_ms(said.step_ms);
  report.set_exposed_ms(said.exposed_ms);
  report.set_skipped_windows(said.skipped_windows);
  return report;
}

absl::Status Fenced(const HoldingSegment& segment) {
  const HoldingKey& key = segment.key();
  return absl::FailedPreconditionError(
      absl::StrCat("epoch ", key.epoch, " of job ", key.job_id, " has ended there"));
}

// The checksum of HoldingSegment::Checksum, made while the bytes come.
absl::StatusOr<uint64_t> ReceiveSlot(LinkStream& stream, std::byte* slot, int64_t bytes) {
  ChecksumStream checksum;
  SHERD_RETURN_IF_ERROR(stream.ReceiveBytes(
      slot, bytes, [&](const std::byte* piece, int64_t size) { checksum.Add(piece, size); }));
  return checksum.Sum();
}

absl::Status StoreVersion(LinkStream& stream, const LinkVersion& version, HoldingSegment& segment) {
  if (!segment.Invalidate(version.slot)) return Fenced(segment);
  SHERD_ASSIGN_OR_RETURN(const std::vector<v1::StepReport> reports,
                         ReceiveReports(stream, version));
  for (const v1::StepReport& report : reports) segment.Report(report);
  SHERD_ASSIGN_OR_RETURN(const uint64_t checksum,
                         ReceiveSlot(stream, segment.slot(version.slot), segment.slot_bytes()));
  if (checksum != version.checksum) {
    return absl::DataLossError(absl::StrCat("step ", version.step, " has changed on the way"));
  }
  const VersionFigures figures{version.skipped_windows, version.loss};
  if (!segment.Complete(version.slot, version.step, checksum, figures)) return Fenced(segment);
  return stream.Send(LinkStored{version.step});
}

absl::Status SendRange(LinkStream& stream, const HoldingSegment& segment, int slot,
                       const LinkRanges::Range& range) {
  const bool inside = range.begin >= 0 && range.bytes >= 0 && range.bytes <= segment.slot_bytes() &&
                      range.begin <= segment.slot_bytes() - range.bytes;
  if (!inside) return absl::InvalidArgumentError("a range outside of the shard");
  const std::byte* const begin = segment.slot(slot) + range.begin;
  const uint64_t checksum = XXH3_64bits(begin, static_cast<size_t>(range.bytes));
  std::byte sum[sizeof(checksum)];
  std::memcpy(sum, &checksum, sizeof(checksum));
  SHERD_RETURN_IF_ERROR(stream.SendBytes(begin, range.bytes));
  return stream.SendBytes(sum, sizeof(sum));
}

}  // namespace

absl::Duration AnswerTime(int64_t slot_bytes) {
  return kHoldingAnswerTime +
         absl::Seconds(static_cast<double>(slot_bytes) / kSlowestBytesPerSecond);
}

LinkHolding WishFor(LinkHolding::Wish wish, const HoldingKey& key, int64_t slot_bytes,
                    const std::string& secret) {
  LinkHolding message;
  message.wish = wish;
  message.job_id = key.job_id;
  message.epoch = key.epoch;
  message.world = key.world;
  message.owner = key.owner;
  message.slot_bytes = slot_bytes;
  message.secret = secret;
  return message;
}

HoldingKey KeyOf(const LinkHolding& said) {
  return {said.job_id, said.epoch, said.world, said.owner};
}

absl::StatusOr<int64_t> SendVersion(LinkStream& stream, const HoldingSegment& segment, int slot,
                                    int64_t reports_after) {
  const std::optional<v1::Holding> held = segment.Held(slot);
  if (!held.has_value()) return absl::DataLossError("the version is not whole any more");
  const VersionFigures figures = segment.Figures(slot);
  const std::vector<v1::StepReport> reports = segment.Reports(reports_after, held->step());
  SHERD_RETURN_IF_ERROR(stream.Send(LinkVersion{.slot = slot,
                                                .step = held->step(),
                                                .checksum = held->checksum(),
                                                .skipped_windows = figures.skipped_windows,
                                                .loss = figures.loss,
                                                .reports = static_cast<int32_t>(reports.size())}));
  for (size_t first = 0; first < reports.size(); first += LinkReports::kMost) {
    LinkReports list;
    for (size_t at = first; at < std::min(reports.size(), first + LinkReports::kMost); ++at) {
      list.reports.push_back(LinkReportOf(reports[at]));
    }
    SHERD_RETURN_IF_ERROR(stream.Send(list));
  }
  return held->step();
}

absl::StatusOr<std::vector<v1::StepReport>> ReceiveReports(LinkStream& stream,
                                                           const LinkVersion& version) {
  const size_t wanted = static_cast<size_t>(std::max(0, version.reports));
  if (version.reports < 0 || wanted > static_cast<size_t>(HoldingSegment::kReports)) {
    return absl::InvalidArgumentError(absl::StrCat(version.reports, " reports of one version"));
  }
  std::vector<v1::StepReport> reports;
  while (reports.size() < wanted) {
    SHERD_ASSIGN_OR_RETURN(const LinkReports list, stream.Receive<LinkReports>());
    if (list.reports.empty() || list.reports.size() > wanted - reports.size()) {
      return absl::InvalidArgumentError("other reports than were announced");
    }
    for (const LinkReport& said : list.reports) {
      if (said.step < 1 || said.step > version.step) {
        return absl::InvalidArgumentError(
            absl::StrCat("a report of step ", said.step, " with version ", version.step));
      }
      reports.push_back(StepReportOf(said));
    }
  }
  return reports;
}

absl::Status StoreVersions(LinkStream& stream, HoldingSegment& segment) {
  SHERD_RETURN_IF_ERROR(stream.Send(LinkStored{}));
  // Of the version that is whole; the owner writes the other slot next.
  int newest_slot = -1;
  int64_t newest_step = 0;
  while (true) {
    SHERD_ASSIGN_OR_RETURN(const LinkVersion version,
                           stream.Receive<LinkVersion>(absl::InfiniteDuration()));
    const bool in_turn = version.slot >= 0 && version.slot < HoldingSegment::kSlots &&
                         version.slot != newest_slot && version.step > newest_step;
    if (!in_turn) {
      return absl::InvalidArgumentError(absl::StrCat("step ", version.step, " for slot ",
                                                     version.slot, " after step ", newest_step,
                                                     " in slot ", newest_slot));
    }
    SHERD_RETURN_IF_ERROR(StoreVersion(stream, version, segment));
    newest_slot = version.slot;
    newest_step = version.step;
  }
}

absl::Status ServeVersion(LinkStream& stream, HoldingSegment& segment, int64_t step) {
  const int slot = segment.FindStep(step);
  const std::optional<v1::Holding> held = slot < 0 ? std::nullopt : segment.Held(slot);
  if (!held.has_value()) return absl::NotFoundError("it holds other steps");
  if (segment.Checksum(slot) != held->checksum()) {
    segment.Discard(slot);
    return absl::DataLossError("its bytes are not those that were stored");
  }
  SHERD_RETURN_IF_ERROR(SendVersion(stream, segment, slot, /*reports_after=*/0).status());
  while (true) {
    SHERD_ASSIGN_OR_RETURN(const LinkRanges list, stream.Receive<LinkRanges>());
    for (const LinkRanges::Range& range : list.ranges) {
      SHERD_RETURN_IF_ERROR(SendRange(stream, segment, slot, range));
    }
    // Of a segment that is not sealed the owner may have begun to write the slot.
    const std::optional<v1::Holding> still = segment.Held(slot);
    if (!still.has_value() || still->step() != step) {
      return absl::DataLossError("it holds other steps by now");
    }
    SHERD_RETURN_IF_ERROR(stream.Send(LinkStored{step}));
  }
}

}  // namespace sherd
