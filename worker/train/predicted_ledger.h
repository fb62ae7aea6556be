#pragma once

#include "kernels/device.h"
#include "plan/ledger.h"
#include "sherd/v1/events.pb.h"
#include "sherd/v1/layout.pb.h"

namespace sherd {

// As PredictLedger (plan/ledger.h); on an accelerator, null: none, ops work in what its own do.
v1::RankLedger PredictLedgerOn(const v1::Assignment& assignment, const RankPlan& plan, int threads,
                               const Accelerator* accelerator);

}  // namespace sherd
