#pragma once

#include "kernels/device.h"
#include "plan/ledger.h"
#include "sherd/v1/events.pb.h"
#include "sherd/v1/layout.pb.h"

namespace sherd {

// As PredictLedger (plan/ledger.h), and OnDevice (plan/device_ledger.h) where there is an
// accelerator; null: none.
v1::RankLedger PredictLedgerOn(const v1::Assignment& assignment, const RankPlan& plan, int threads,
                               const Accelerator* accelerator);

}  // namespace sherd
