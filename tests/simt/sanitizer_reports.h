#pragma once

namespace sherd::simt {

// Races that the thread sanitizer has reported so far; 0 without it. Each is printed with the
// kernel, block and thread that ran.
int SanitizerReports();

}  // namespace sherd::simt
