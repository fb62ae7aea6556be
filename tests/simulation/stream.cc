#include "tests/simulation/stream.h"

#include <algorithm>
#include <utility>

#include "tests/simulation/coordinator_host.h"
#include "tests/simulation/worker_process.h"

namespace sherd::simulation {

absl::Time Stream::Arrival(Direction direction) {
  absl::Time& last = direction == Direction::kUp ? last_up_ : last_down_;
  last = std::max(last, cluster_.queue.Now() + cluster_.Delay());
  return last;
}

bool Stream::Passes(Direction direction) const {
  return cluster_.queue.Now() <= (direction == Direction::kUp ? cut_up_ : cut_down_);
}

void Stream::Open(const v1::Hello& hello) {
  cluster_.queue.At(Arrival(Direction::kUp), [self = shared_from_this(), hello] {
    if (!self->Passes(Direction::kUp)) return;
    CoordinatorHost& coordinator = *self->cluster_.coordinator;
    if (!coordinator.up()) {
      return self->EndAtWorker(self->cluster_.Delay(),
                               absl::UnavailableError("connection refused"));
    }
    self->life_ = coordinator.life();
    coordinator.AddStream(self);
    coordinator.Hear([&](Controller& controller) { controller.fleet().Connect(hello, self); });
  });
}

void Stream::SendUp(const v1::SessionRequest& request) {
  cluster_.queue.At(Arrival(Direction::kUp), [self = shared_from_this(), request] {
    CoordinatorHost& coordinator = *self->cluster_.coordinator;
    if (!self->Passes(Direction::kUp) || self->closed_ || coordinator.life() != self->life_) return;
    coordinator.Hear(
        [&](Controller& controller) { controller.fleet().Receive(self.get(), request); });
  });
}

void Stream::Send(v1::SessionResponse message) {
  if (closed_) return;
  cluster_.queue.At(Arrival(Direction::kDown),
                    [self = shared_from_this(), message = std::move(message)] {
                      if (!self->Passes(Direction::kDown)) return;
                      self->process_.Run([self, message] { self->process_.Hear(*self, message); });
                    });
}

void Stream::Close(const absl::Status& status) {
  if (std::exchange(closed_, true)) return;
  cluster_.queue.At(Arrival(Direction::kDown), [self = shared_from_this(), status] {
    if (!self->Passes(Direction::kDown)) return;
    self->EndAtWorker(absl::ZeroDuration(), status);
  });
}

void Stream::DisconnectCoordinator(absl::Duration delay) {
  cluster_.queue.After(delay, [self = shared_from_this()] {
    CoordinatorHost& coordinator = *self->cluster_.coordinator;
    if (self->closed_ || coordinator.life() != self->life_) return;
    self->closed_ = true;
    coordinator.Hear([&](Controller& controller) { controller.fleet().Disconnect(self.get()); });
  });
}

void Stream::EndAtWorker(absl::Duration delay, const absl::Status& status) {
  cluster_.queue.After(delay, [self = shared_from_this(), status] {
    self->process_.Run([self, status] { self->process_.StreamEnded(*self, status); });
  });
}

void Stream::Abandon() {
  const absl::Time now = cluster_.queue.Now();
  cut_down_ = std::min(cut_down_, now);
  // Sometimes the kernel still sends everything, sometimes the connection is reset.
  const absl::Time cut = cluster_.chance.OneIn(2) ? std::max(now, last_up_) : now;
  cut_up_ = std::min(cut_up_, cut);
  DisconnectCoordinator(cut - now + cluster_.Delay());
}

void Stream::Break() {
  const absl::Time now = cluster_.queue.Now();
  cut_up_ = std::min(cut_up_, now + cluster_.chance.Milliseconds(0, 5));
  cut_down_ = std::min(cut_down_, now + cluster_.chance.Milliseconds(0, 5));
  DisconnectCoordinator(absl::Milliseconds(5) + cluster_.Delay());
  EndAtWorker(absl::Milliseconds(5) + cluster_.Delay(), absl::UnavailableError("the stream broke"));
}

}  // namespace sherd::simulation
