#include "worker/train/predicted_ledger.h"

#include <cstdint>

#include "plan/device_scratch.h"

namespace sherd {

v1::RankLedger PredictLedgerOn(const v1::Assignment& assignment, const RankPlan& plan, int threads,
                               const Accelerator* accelerator) {
  v1::RankLedger ledger = PredictLedger(assignment, plan, threads);
  if (accelerator == nullptr || !accelerator->workspace_bytes().has_value()) return ledger;
  const int64_t bytes =
      PredictDeviceScratch(plan, assignment.spec(), *accelerator->workspace_bytes());
  v1::LedgerLine& scratch = (*ledger.mutable_memory())["scratch"];
  v1::LedgerLine& peak = (*ledger.mutable_memory())["peak"];
  peak.set_predicted(peak.predicted() - scratch.predicted() + bytes);
  scratch.set_predicted(bytes);
  return ledger;
}

}  // namespace sherd
