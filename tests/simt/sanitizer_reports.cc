// What the sanitizers' run-time libraries call. Not instrumented itself; see fiber.cc.
#include "tests/simt/sanitizer_reports.h"

#include "tests/simt/executor.h"

namespace sherd::simt {
namespace {

// Set by hooks that have no other place to leave it.
int reports = 0;

void PrintPlace() {
  if (context != nullptr && context->executor != nullptr) context->executor->PrintHere();
}

}  // namespace

int SanitizerReports() { return reports; }

}  // namespace sherd::simt

extern "C" {

// Ahead of the address sanitizer's report, which ends the process.
void __asan_on_error() { sherd::simt::PrintPlace(); }

// With the thread sanitizer's report.
void __tsan_on_report(void*) {
  ++sherd::simt::reports;
  sherd::simt::PrintPlace();
}

}  // extern "C"
