#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sherd/v1/worker.pb.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/holdings.h"
#include "worker/agent/agent_state.h"

namespace sherd::simulation {

// A rank's trainer without its arithmetic: it forms, restores, and trains by the commit rule of
// docs/adr/0009. It does everything as its process, so that freezing and killing that one stops it
// between any two things.
class FakeRank {
 public:
  FakeRank(Cluster& cluster, WorkerProcess& process, const v1::Assignment& assignment);
  FakeRank(const FakeRank&) = delete;

  void Start();
  void Abort();
  void Pause() { pause_ = true; }
  v1::RankPosition Position() const;
  // Its process has ended: its peers see its links close.
  void Vanish();
  // It does nothing any more until it is aborted; and perhaps not even then.
  void Wedge(bool for_ever);
  // It loses the link to a peer, as that one does to it.
  void LoseLink();
  // It loses for good the link to a process on another host that stores its shard.
  void LoseHolder();

 private:
  void After(absl::Duration delay, void (FakeRank::*next)());
  Cluster::World& world();
  bool leads() const { return assignment_.rank() == 0; }
  v1::RankReport Stamp() const;

  void Join();
  void Form();
  void GiveUpForming();
  void Restore();
  void EndRestore();
  void HandOver();
  // Of an epoch that only measures.
  void BeginMeasuring();
  void EndMeasuring();
  void BeReady();
  void Compute();
  void Enter();
  void ComeBack();
  void Begin();
  void Update();
  void EndUpdate();
  void Stored();
  void Finish();

  // It opens a link to a process at this address.
  void Meet(const WorkerProcess& other, const std::string& address);
  bool CopyFrom(const v1::RestoreSource& source);
  void Commit();
  void SendStep(int64_t step);
  void TellCheckpoint();
  // Its copies elsewhere, which are sent what it stores.
  void StoreRemote(size_t copy);
  void PeerLost(int rank);
  void CloseLinks();
  void Fail(absl::Status status, int lost_peer = -1, const std::string& lost_holder = "");
  void HolderLost(const std::string& address);
  void End(TrainerEnded ended);

  Cluster& cluster_;
  WorkerProcess& process_;
  const v1::Assignment assignment_;
  bool running_ = true;
  bool formed_ = false;
  bool finishing_ = false;
  bool aborted_ = false;
  bool pause_ = false;
  bool wedged_ = false;
  bool deaf_ = false;
  std::shared_ptr<Segment> segment_;
  struct Copy {
    WorkerProcess* holder = nullptr;
    std::shared_ptr<Segment> segment;
    bool stored = false;
  };
  std::vector<Copy> copies_;  // in other memory
  std::vector<std::pair<std::shared_ptr<Segment>, int>> reading_;
  size_t handed_over_ = 0;
  int newest_slot_ = 0;
  Lineage lineage_;
  bool stored_ = true;
  bool uncommitted_ = false;
  bool waits_for_store_ = false;
  // It waits until all ranks have restored.
  bool begins_ = false;
  // No update follows the exchange that it is in; the weights are being written.
  bool settles_ = false;
  bool writes_ = false;
  bool pausing_ = false;
  int64_t committed_ = 0;
};

}  // namespace sherd::simulation
