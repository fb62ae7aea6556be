#pragma once

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "plan/holdings.h"
#include "sherd/v1/job.pb.h"

namespace sherd::protocol {

// What the parts of the protocol decide by. The defaults are the product's own rules and the
// agreements of docs/adr/0009; a planted fault changes one of them.
struct Policy {
  // The slot for step `step`, given that with the newest version that is known whole, or with the
  // version that is restored.
  int (*update_slot)(int newest_whole, int step) = [](int newest_whole, int) {
    return NextSlot(newest_whole);
  };
  int (*restore_slot)(int chosen, int step) = [](int chosen, int) { return NextSlot(chosen); };
  std::optional<Version> (*choose)(const v1::JobSpec& spec, int64_t restored,
                                   absl::Span<const Holder> holders) = ChooseVersion;
  // The coordinator chooses when everybody has answered or is lost.
  bool waits_for_all_answers = true;
  // Versions of one step are told apart by their epochs.
  bool matches_epochs = true;
  // A restore writes a second header instead of changing that of the chosen version.
  bool copies_to_restore = true;
  // The last step is committed by an exchange, too.
  bool final_exchange = true;
  // The loss of a process that holds copies, and is no rank, ends the epoch.
  bool holders_end_epochs = true;
  // Whoever answers fences the memory that it holds: its writer, who may only be frozen, can mark
  // no slot there any more.
  bool fences_memory = true;
  // A step that an epoch trained proves that all its ranks had restored.
  bool steps_prove_restored = true;
};

}  // namespace sherd::protocol
