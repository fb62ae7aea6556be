#pragma once

#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sherd {

// A process that makes a file and shows no sign of life for so long is not waited for any more: it
// may be frozen. Making a file shows signs by changing the directory of its name and ".pieces".
inline constexpr absl::Duration kMakerPatience = absl::Minutes(1);

// The path of the file `name` in `directory`, which is made if need be. When the file is not there
// `make` makes it at the path that it is given, whole or not at all; whoever asks for a file of the
// directory meanwhile, in any process, waits until that is done, and takes over when it fails or
// dies. Where the file system locks nothing, or a maker does not go on, several may make it, each
// at a path of its own, and the last one's has the name. kAborted, before long, when `stopped` (may
// be null) says so; errors of `make`, or why the directory cannot be made.
absl::StatusOr<std::string> MakeOnce(const std::string& directory, const std::string& name,
                                     const std::function<bool()>& stopped,
                                     absl::FunctionRef<absl::Status(const std::string&)> make,
                                     absl::Duration patience = kMakerPatience);

}  // namespace sherd
