#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sherd/v1/job.pb.h"
#include "sherd/v1/job_service.pb.h"

namespace sherd {

// Names as the job file and the command line spell them; kUnspecified has no name.
absl::string_view NameOf(v1::Strategy strategy);
absl::string_view NameOf(v1::Architecture arch);
absl::string_view NameOf(v1::DataType type);
absl::string_view NameOf(v1::DataFormat format);
absl::string_view NameOf(v1::ScheduleKind kind);
absl::string_view NameOf(v1::GradientReduction reduction);
absl::string_view NameOf(v1::Recompute recompute);
absl::string_view NameOf(v1::Offload offload);
absl::string_view NameOf(v1::OnNan on_nan);
absl::string_view NameOf(v1::JobState state);  // "QUEUED", …

// All valid names of an enumeration of the job file, in order: for parsers and "did you mean".
std::vector<absl::string_view> StrategyNames();
std::vector<absl::string_view> ArchitectureNames();
std::vector<absl::string_view> DataTypeNames();
std::vector<absl::string_view> DataFormatNames();
std::vector<absl::string_view> ScheduleKindNames();
std::vector<absl::string_view> GradientReductionNames();
std::vector<absl::string_view> RecomputeNames();
std::vector<absl::string_view> OffloadNames();
std::vector<absl::string_view> OnNanNames();
std::vector<absl::string_view> PresetNames();

// Whether a tokenizer makes the tokens of a job's data: files of ids hold them already.
bool IsText(v1::DataFormat format);

// UNSPECIFIED when no value has the name.
v1::Strategy StrategyFromName(absl::string_view name);
v1::Architecture ArchitectureFromName(absl::string_view name);
v1::DataType DataTypeFromName(absl::string_view name);
v1::DataFormat DataFormatFromName(absl::string_view name);
v1::ScheduleKind ScheduleKindFromName(absl::string_view name);
v1::GradientReduction GradientReductionFromName(absl::string_view name);
v1::Recompute RecomputeFromName(absl::string_view name);
v1::Offload OffloadFromName(absl::string_view name);
v1::OnNan OnNanFromName(absl::string_view name);

// The candidate closest to `name` by edit distance, then beginning, then last digit; "" for none.
std::string Nearest(absl::string_view name, const std::vector<absl::string_view>& candidates);

// Whether sums have the order of the contract, as they have unless the job says otherwise.
bool IsReproducible(const v1::PrecisionSpec& precision);

// Fills in presets and defaults. Idempotent; leaves what is wrong for ValidateJobSpec to report,
// and what only the folder model.from says (model_folder.h).
v1::JobSpec NormalizeJobSpec(v1::JobSpec spec);

// Everything that is wrong with a normalised specification, each with the field's name as in the
// job file and one sentence that says what would be right; empty when it can run. Looks at no file.
// Bounds every size so that later arithmetic in int64 bytes cannot overflow.
v1::InvalidFields ValidateJobSpec(const v1::JobSpec& spec);

}  // namespace sherd
