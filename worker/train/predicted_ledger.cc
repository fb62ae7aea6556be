#include "worker/train/predicted_ledger.h"

#include "plan/device_ledger.h"
#include "plan/groups.h"

namespace sherd {

v1::RankLedger PredictLedgerOn(const v1::Assignment& assignment, const RankPlan& plan, int threads,
                               const Accelerator* accelerator) {
  v1::RankLedger ledger = PredictLedger(assignment, plan, threads);
  if (accelerator == nullptr) return ledger;
  return OnDevice(plan, assignment.spec(), ledger, accelerator->workspace_bytes(),
                  MediaOf(assignment));
}

}  // namespace sherd
