#include "worker/agent/report_buffer.h"

#include <algorithm>
#include <utility>

namespace sherd {
namespace {

// A watcher can do without these; without a milestone or a ledger a job would never end or show
// what it used.
bool MayBeDropped(const v1::SessionRequest& request) {
  return request.has_report() &&
         (request.report().has_step() || request.report().has_eval() || request.report().has_log());
}

}  // namespace

bool ReportBuffer::Add(v1::SessionRequest report) {
  reports_.push_back(std::move(report));
  if (reports_.size() <= capacity_) return true;
  const auto oldest = std::find_if(reports_.begin() + static_cast<std::ptrdiff_t>(numbered_),
                                   reports_.end(), MayBeDropped);
  if (oldest == reports_.end()) return true;
  reports_.erase(oldest);
  return false;
}

const v1::SessionRequest* ReportBuffer::NextToSend() {
  if (!HasUnsent()) return nullptr;
  v1::SessionRequest& report = reports_[sent_++];
  if (sent_ > numbered_) {
    numbered_ = sent_;
    report.set_sequence(++last_sequence_);
  }
  return &report;
}

void ReportBuffer::Acknowledge(uint64_t sequence) {
  while (numbered_ > 0 && reports_.front().sequence() <= sequence) {
    reports_.pop_front();
    --numbered_;
    if (sent_ > 0) --sent_;
  }
}

}  // namespace sherd
