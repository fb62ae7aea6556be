#pragma once

namespace sherd {

// The largest message that the coordinator sends, and so that its workers and clients accept: an
// assignment of a world of 16,384 ranks fits; nothing else comes close.
inline constexpr int kMostCoordinatorMessageBytes = 16 << 20;
// The largest complete job specification that is accepted, so that everything that repeats it fits.
inline constexpr int kMostJobSpecBytes = 1 << 20;

}  // namespace sherd
