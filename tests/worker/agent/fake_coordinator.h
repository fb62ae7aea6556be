#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sherd/v1/worker.pb.h"

namespace sherd {

// Longest wait for anything in these tests; reached only by a failure.
inline constexpr int kPatienceSeconds = 20;

// What a coordinator has heard over all streams.
struct Heard {
  std::vector<v1::Hello> hellos;
  std::vector<v1::SessionRequest> reports;  // and answers to inspections, as they came
  std::vector<v1::ReportExitRequest> exits;
  int heartbeats = 0;
  int goodbyes = 0;  // streams that the worker closed in order
};

// The workers' side of a coordinator on a free port of the loopback device, which does as the test
// says. One worker. Thread-safe.
class FakeCoordinator {
 public:
  FakeCoordinator();
  ~FakeCoordinator();

  std::string address() const;
  // What every later stream's Welcome says.
  void SetWelcome(int64_t heartbeat_interval_ms, uint64_t acknowledged);
  // Takes Hello and never answers it.
  void SetSilent(bool silent);
  // Ends every later stream, and every later unary call, with this instead.
  void Refuse(absl::Status status);
  // Acknowledge every report as soon as it is there.
  void AcknowledgeAtOnce();

  // Waits until `done` holds; a failed expectation when it does not within kPatienceSeconds.
  bool Await(const char* what, const std::function<bool(const Heard&)>& done);
  Heard heard() const;

  // On the current stream.
  void Send(v1::SessionResponse message);
  void Acknowledge(uint64_t sequence);
  // Ends the current stream as a lost connection does.
  void Break();

 private:
  struct Service;
  std::unique_ptr<Service> service_;
};

}  // namespace sherd
