#pragma once

#include <set>
#include <vector>

#include "absl/status/status.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// What a run told: what was under way when a unit computed, and where its blocks lay.
struct ObservedSteps {
  int forwards_beside_gathers = 0;
  int backwards_beside_gathers = 0;
  int backwards_beside_reductions = 0;
  std::set<const void*> block_params;
  std::set<const void*> block_grads;
  std::vector<double> norms;
  // AdamW's, of the first block's first element after the first step.
  double first_moment = 0;
};

// What the model makes up, and what comes of the first step with it.
struct MadeUpFigures {
  double loss = 1;
  float gradient_scale = 1;
  absl::StatusCode outcome = absl::StatusCode::kOk;
  // The first step's loss is no number at first, and it is trained again.
  bool diverges_once = false;
};

// Two steps of a rank out of `degree`, over a communicator that is as late as it may be, with a
// model that checks what it may touch; or one step that does not come out well.
ObservedSteps TwoSteps(const v1::JobSpec& spec, int rank, int degree,
                       const MadeUpFigures& made_up = {});

}  // namespace sherd
