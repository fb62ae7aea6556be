#pragma once

#include <string>

namespace sherd {

// Two network namespaces of the test's own, joined by a cable, with an address each: what two hosts
// are to each other. They go with the object.
class NetworkNamespaces {
 public:
  NetworkNamespaces();
  ~NetworkNamespaces();
  NetworkNamespaces(const NetworkNamespaces&) = delete;

  // False where this process may not make them.
  bool made() const { return made_; }
  // Of side 0 or 1.
  std::string address(int side) const;
  // Sockets that the calling thread, and threads that it starts, make from now on are on this side.
  void Enter(int side) const;
  // Nothing passes any more, and nobody is told.
  void CutCable() const;
  // What comes to side 1 arrives, and nothing comes back.
  void SwallowAnswers() const;

 private:
  std::string name(int side) const;

  bool made_ = false;
};

}  // namespace sherd
